package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/airlock"
	"github.com/caisson-run/caisson/gate"
	"github.com/caisson-run/caisson/ledger/sqlite"
)

// airlockCall is an allowed call that does nothing, the whole way: prepared,
// judged by the gate, started and settled in the ledger; beside a bare SQLite
// commit of 1 KiB. Must: at most 4 commits. In rounds of one.
func airlockCall(ctx context.Context, b *bench, n int) (r result, err error) {
	dir, remove, err := b.disk()
	if err != nil {
		return result{}, err
	}
	defer remove()
	raw, err := openRaw(ctx, filepath.Join(dir, "raw.db"))
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, raw.Close()) }()
	err = withRuns(ctx, dir, 1, func(l caisson.Ledger, drives []caisson.Drive) error {
		lock, err := guarded(airlock.Options{Ledger: l})
		if err != nil {
			return err
		}
		door := enter(lock, drives[0])
		turn := 0
		ours := func(ctx context.Context) error {
			turn++
			return done(door.Settle(ctx, request(drives[0].Run, turn, noop{reach: caisson.ReachLedger})))
		}
		c, err := compare(ctx, n, byTurns(timed(ours), timed(raw.commit)))
		if err == nil {
			r = c.times("bare SQLite commit")
		}
		return err
	})
	return r, err
}

// reviewDecide is the time from a person's process calling Ledger.Decide to the
// start of the approved call in the process whose airlock waits for it, the
// commits of both included; beside what Decide takes by itself. Must: at most
// 10 ms. In rounds of one.
func reviewDecide(ctx context.Context, b *bench, n int) (r result, err error) {
	dir, remove, err := b.disk()
	if err != nil {
		return result{}, err
	}
	defer remove()
	err = withRuns(ctx, dir, 1, func(l caisson.Ledger, drives []caisson.Drive) (err error) {
		other, err := startDecider(ctx, filepath.Join(dir, "ledger.db"))
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, other.Close()) }()
		lock, err := guarded(airlock.Options{Ledger: l, ParkAfter: longest, Observe: other.observe})
		if err != nil {
			return err
		}
		door := enter(lock, drives[0])
		turn := 0
		c, err := compare(ctx, n, func(ctx context.Context) (time.Duration, time.Duration, error) {
			turn++
			var began time.Duration
			ask := noop{reach: caisson.ReachOutside, begun: func() { began = clock() }}
			if err := done(door.Settle(ctx, request(drives[0].Run, turn, ask))); err != nil {
				return 0, 0, err
			}
			said, err := other.said()
			return began - said.At, said.Took, err
		})
		if err == nil {
			r = c.times("Decide itself")
		}
		return err
	})
	return r, err
}

// decision is what the deciding process says of one: when it called Decide, by
// the clock that all processes share, and how long that took.
type decision struct {
	At   time.Duration `json:"at"`
	Took time.Duration `json:"took"`
}

// wanted is a review to be approved.
type wanted struct {
	Review caisson.ReviewID `json:"review"`
	Digest caisson.Digest   `json:"digest"`
}

// decider approves each review that in names, and says so.
func decider(ctx context.Context, path string, in io.Reader, out io.Writer) error {
	l, err := sqlite.Open(ctx, sqlite.Options{Path: path})
	if err != nil {
		return err
	}
	asked, answers := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var w wanted
		if err := asked.Decode(&w); err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return errors.Join(err, l.Close())
		}
		at := clock()
		_, err := l.Decide(ctx, w.Review, w.Digest, caisson.Decision{Kind: caisson.Approve, By: "bench"}, time.Hour)
		if err == nil {
			err = answers.Encode(decision{at, clock() - at})
		}
		if err != nil {
			return errors.Join(err, l.Close())
		}
	}
}

// otherProcess is this program as a decider.
type otherProcess struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *json.Decoder

	mu     sync.Mutex
	review *caisson.Review // asked last
}

func startDecider(ctx context.Context, ledger string) (*otherProcess, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, "-decider", ledger) //nolint:forbidigo // it ends with its input
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &otherProcess{cmd: cmd, in: in, out: json.NewDecoder(bufio.NewReader(out))}, nil
}

// observe has the open review decided once the airlock has nothing else to do.
func (p *otherProcess) observe(n airlock.Notice) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case n.Kind == airlock.NoticeAsked:
		p.review = n.Review
	case n.Kind == airlock.NoticeWaiting && p.review != nil:
		_ = json.NewEncoder(p.in).Encode(wanted{p.review.ID, p.review.Call.Digest}) // one that has ended is seen by said
		p.review = nil
	}
}

func (p *otherProcess) said() (d decision, err error) {
	err = p.out.Decode(&d)
	return d, err
}

func (p *otherProcess) Close() error { return errors.Join(p.in.Close(), p.cmd.Wait()) }

// clock is the time since the machine's start, the same in every process.
func clock() time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // it always has this clock
	return time.Duration(now.Nano())
}

// guarded returns an airlock whose judge is the gate.
func guarded(o airlock.Options) (*airlock.Airlock, error) {
	policy, err := gate.Load(gate.Sources{Preset: string(gate.Sandboxed)})
	if err != nil {
		return nil, err
	}
	o.Judge = policy
	return airlock.New(o), nil
}

func enter(lock *airlock.Airlock, drive caisson.Drive) *airlock.Door {
	return lock.Enter(drive, func() caisson.Subject { return caisson.Subject{Run: drive.Run} }, "", "")
}

func request(run caisson.RunID, turn int, t caisson.Tool) []airlock.Request {
	return []airlock.Request{{ID: caisson.NewCallID(run, turn, 1), Turn: turn, Name: "noop", Tool: t, Input: `{"text":"x"}`}}
}

// done makes an error of a call that was not done.
func done(s airlock.Settled, err error) error {
	if err == nil && s.Records[0].State.Outcome() != caisson.OutcomeDone {
		err = fmt.Errorf("call %s is %s", s.Records[0].Call.ID, s.Records[0].State)
	}
	return err
}

// noop is a tool without effect. Policy asks about it if its reach says that
// one could leave the sandbox.
type noop struct {
	reach caisson.Reach
	begun func()
}

func (t noop) Spec() caisson.ToolSpec {
	schema := `{"type":"object","properties":{"text":{"type":"string"}},"required":["text"],"additionalProperties":false}`
	return caisson.ToolSpec{Ref: caisson.ToolRef{Name: "noop"}, Schema: json.RawMessage(schema), Effect: caisson.EffectUnsafe, Reach: t.reach}
}

func (t noop) Facets(json.RawMessage) (caisson.Facets, error) { return caisson.Facets{}, nil }

func (t noop) Hold(context.Context, caisson.Call, caisson.EffectID) (caisson.Executor, error) {
	return t, nil
}

func (t noop) Identity() *caisson.ProcessIdentity { return nil }

func (t noop) Open(context.Context) (caisson.Result, error) {
	if t.begun != nil {
		t.begun()
	}
	return caisson.Result{Text: "ok"}, nil
}

func (t noop) Drop() {}

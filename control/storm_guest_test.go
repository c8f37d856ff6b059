package control_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/guest/ctl"
	"github.com/caisson-run/caisson/sandbox/sandboxtest"
)

// Clients inside and brokers outside are killed at random moments, all of them
// processes of their own. No verb runs twice, be its effect the broker's or that
// of a program; every request that was handed over has one end, which can be
// recovered where its client did not live to see it; and what clients left half
// written is swept.
func TestStormOnBothSides(t *testing.T) {
	if testing.Short() {
		t.Skip("kills many processes")
	}
	w := newWorld(t)
	s := &bothSides{world: w, told: map[caisson.RequestID]told{}, handed: map[caisson.RequestID]bool{}}
	seen := s.watchHanded()
	s.leaveHalf()
	asking, enough := context.WithCancel(t.Context())
	defer enough()
	var clients sync.WaitGroup
	for i := range times(t, 10) {
		p := w.spawn("")
		if i == 0 { // there is a channel now
			for range 6 {
				clients.Go(func() { s.askOn(asking) })
			}
		}
		<-time.After(50*time.Millisecond + time.Duration(rand.Int64N(int64(250*time.Millisecond))))
		if err := p.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if !p.died() {
			t.Fatal("it was not killed")
		}
	}
	last := w.spawn("")
	w.await("that something is done, and a client killed", func() bool { return len(w.happenings()) > 0 && s.killed() > 0 })
	enough() // what is asked now is answered
	clients.Wait()
	killed := s.recoverKilled()
	s.awaitSwept()
	if end := last.ended(false); end != "ended " {
		t.Errorf("the last broker says %q", end)
	}
	seen()
	statuses := map[caisson.RequestID]int{}
	for id, told := range s.told {
		statuses[id] = told.status
	}
	w.checkStorm(statuses)
	s.checkHanded()
	w.checkResidue()
	t.Logf("%d clients were killed, %d requests handed over", killed, len(s.handed))
}

// bothSides is a storm's clients and what they were told.
type bothSides struct {
	*world
	mu     sync.Mutex
	told   map[caisson.RequestID]told
	handed map[caisson.RequestID]bool // a file by its name was there, whoever took it
}

// told is what a client was told, or that it was killed.
type told struct {
	status int
	killed bool
	answer caisson.ControlAnswer
}

// watchHanded has the kernel tell which requests clients put in place: neither
// they nor brokers are asked.
func (s *bothSides) watchHanded() (enough func()) {
	s.t.Helper()
	requests := filepath.Join(s.channel(), caisson.ControlRequests)
	if err := os.MkdirAll(requests, 0o700); err != nil {
		s.t.Fatal(err)
	}
	watcher, err := fsnotify.NewBufferedWatcher(10_000)
	if err == nil {
		err = watcher.Add(requests)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	var ended sync.WaitGroup
	ended.Go(func() {
		for e := range watcher.Events {
			id, is := strings.CutSuffix(filepath.Base(e.Name), ".json")
			if e.Has(fsnotify.Create) && is {
				s.mu.Lock()
				s.handed[caisson.RequestID(id)] = true
				s.mu.Unlock()
			}
		}
	})
	ended.Go(func() {
		for err := range watcher.Errors {
			s.t.Errorf("the test has not seen all: %v", err)
		}
	})
	enough = sync.OnceFunc(func() { watcher.Close(); ended.Wait() })
	s.t.Cleanup(enough)
	return enough
}

// leaveHalf leaves what a client leaves that is killed while it writes: at random
// that is seldom hit.
func (s *bothSides) leaveHalf() {
	s.t.Helper()
	for _, text := range []string{"", `{"version":1,"id":"`} {
		path := filepath.Join(s.channel(), caisson.ControlRequests, "."+string(newRequestID())+".tmp")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			s.t.Fatal(err)
		}
	}
}

// client is a client's process that is about to start.
func (s *bothSides) client(ctx context.Context, out *bytes.Buffer, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Getenv(sandboxtest.GuestEnv), append([]string{ctl.Argument}, args...)...)
	cmd.Env = []string{caisson.ControlEnv + "=" + s.channel()}
	cmd.Stdout, cmd.Stderr = out, out
	return cmd
}

// askOn asks one request after the other until ctx ends. Every second client is
// killed, at a moment at which it starts, writes, waits or has ended.
func (s *bothSides) askOn(ctx context.Context) {
	for ctx.Err() == nil {
		id := newRequestID()
		verb := "count"
		if rand.IntN(3) == 0 {
			verb = outsideVerb
		}
		input, err := json.Marshal(map[string]any{"text": caisson.NewRequestCallID(s.run, 1, id)})
		if err != nil {
			s.t.Error(err)
			return
		}
		var out bytes.Buffer
		// Not ended by ctx: each has its answer in the end, from whichever broker.
		cmd := s.client(context.WithoutCancel(ctx), &out, verb, "--id", string(id), "--json", string(input), "--timeout", "60s")
		if err := cmd.Start(); err != nil {
			s.t.Error(err)
			return
		}
		if rand.IntN(2) == 0 {
			<-time.After(time.Duration(rand.Int64N(int64(20 * time.Millisecond))))
			_ = cmd.Process.Kill() // it may have ended
		}
		_ = cmd.Wait() // what it was is in the state
		s.note(id, cmd.ProcessState.ExitCode(), out.Bytes())
	}
}

// note notes what a client was told. One that was killed has the status -1.
func (s *bothSides) note(id caisson.RequestID, status int, out []byte) {
	now := told{status: status, killed: status < 0}
	if !now.killed {
		if err := json.Unmarshal(out, &now.answer); err != nil && status != caisson.ExitRetryable {
			s.t.Errorf("request %s: exit %d, %s", id, status, out)
		}
		switch status {
		case caisson.ExitOK, caisson.ExitRetryable:
		case caisson.ExitUnknown:
			if now.answer.Error == nil || !strings.Contains(now.answer.Error.Message, "nobody saw its end") {
				s.t.Errorf("request %s was not answered: %s", id, out)
			}
		default:
			s.t.Errorf("request %s: exit %d, %s", id, status, out)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told[id] = now
}

// killed is how many clients were killed so far.
func (s *bothSides) killed() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, told := range s.told {
		if told.killed {
			n++
		}
	}
	return n
}

// recoverKilled has clients ask what became of the requests of those that were
// killed, and tells how many these are.
func (s *bothSides) recoverKilled() (killed int) {
	s.t.Helper()
	for id, was := range s.told {
		if !was.killed {
			continue
		}
		killed++
		var out bytes.Buffer
		cmd := s.client(s.t.Context(), &out, "recover", string(id))
		err := cmd.Run()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			s.t.Fatal(err)
		}
		now := told{status: cmd.ProcessState.ExitCode(), killed: true}
		if err := json.Unmarshal(out.Bytes(), &now.answer); err != nil {
			s.t.Errorf("recover %s: exit %d, %s", id, now.status, out.String())
			continue
		}
		// The answer to recover itself, where there is nothing to recover.
		if e := now.answer.Error; e != nil && e.Code == caisson.CodeNotFound {
			now.status = caisson.ExitRetryable
		} else if now.answer.ID != id {
			s.t.Errorf("recover %s: exit %d, %s", id, now.status, out.String())
		}
		s.told[id] = now
	}
	if killed == 0 {
		s.t.Error("no client was killed")
	}
	return killed
}

// awaitSwept waits until nothing is left of what clients had begun to write. A
// file counts as abandoned after 10 s by a time that nobody but the kernel sets,
// so that this takes as long; and it is the broker that sweeps, by itself.
func (s *bothSides) awaitSwept() {
	s.t.Helper()
	s.await("that what was half written is swept", func() bool {
		left, err := os.ReadDir(filepath.Join(s.channel(), caisson.ControlRequests))
		return err == nil && len(left) == 0
	})
}

// checkHanded looks whether each request that was handed over, and not taken
// back, is on record: checkStorm has looked at what is.
func (s *bothSides) checkHanded() {
	s.t.Helper()
	records, err := s.ledger.Requests(s.t.Context(), s.run, caisson.RequestFilter{Names: true})
	if err != nil {
		s.t.Fatal(err)
	}
	recorded := map[caisson.RequestID]int{}
	for _, r := range records {
		recorded[r.ID]++
	}
	lost := 0
	for id := range s.handed {
		told, asked := s.told[id]
		if !asked { // recover, asked for by a client
			continue
		}
		takenBack := !told.killed && told.answer.Error != nil && told.answer.Error.Code == caisson.CodeBrokerUnavailable
		if recorded[id] != 1 && !takenBack {
			lost++
			s.t.Errorf("request %s was handed over, and is on record %d times; its client was told %+v", id, recorded[id], told)
		}
	}
	for id := range recorded {
		if !s.handed[id] {
			s.t.Errorf("request %s was not seen to be handed over", id)
		}
	}
	if lost > 0 {
		s.t.Errorf("%d of %d were lost", lost, len(s.handed))
	}
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/airlock"
	"github.com/caisson-run/caisson/control"
	"github.com/caisson-run/caisson/control/channel"
	"github.com/caisson-run/caisson/ledger/sqlite"
)

const (
	manyChannels = 100
	askers       = 8 // of them ask at once
)

// controlRTT is a request for a verb that does nothing, from before its file is
// written to its last answer read, by a client that waits for the events of the
// file system; ours is the median. Must: at most 5 ms, and 25 ms for 99 of 100.
// The processor time is that of a request, its client's part included. In rounds
// of one.
func controlRTT(ctx context.Context, b *bench, n int) (result, error) {
	return roundTrips(ctx, b, 1, 1, n)
}

// controlRTT100 is controlRTT with 100 channels open in one process, of which 8
// are asked at the same time. Must: at most 50 ms for 99 of 100.
func controlRTT100(ctx context.Context, b *bench, n int) (result, error) {
	return roundTrips(ctx, b, manyChannels, askers, n)
}

func roundTrips(ctx context.Context, b *bench, open, asked, n int) (r result, err error) {
	dir, remove, err := b.disk()
	if err != nil {
		return result{}, err
	}
	defer remove()
	if err := makeChannels(ctx, dir, open, 0); err != nil {
		return result{}, err
	}
	s, err := openChannels(ctx, dir)
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	before, err := used()
	if err != nil {
		return result{}, err
	}
	took := make([][]time.Duration, asked)
	group, ctx := errgroup.WithContext(ctx)
	for i := range asked {
		group.Go(func() (err error) {
			took[i], err = askRepeatedly(ctx, channelDir(dir, i*open/asked), max(n/asked, 1))
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return result{}, err
	}
	after, err := used()
	if err != nil {
		return result{}, err
	}
	all := slices.Concat(took...)
	cpu := rounded(ms(after-before) / float64(len(all)+len(all)/4)) // a quarter was not counted
	slices.Sort(all)
	p99 := rounded(ms(all[len(all)*99/100]))
	return result{Unit: "ms", Ours: ms(median(all)), N: len(all), P99: &p99, CPUMs: &cpu}, nil
}

// askRepeatedly returns how long each of n requests took, after some that are
// not counted, or of as many as there is time for.
func askRepeatedly(ctx context.Context, dir string, n int) ([]time.Duration, error) {
	c, err := openClient(dir)
	if err != nil {
		return nil, err
	}
	defer c.close()
	ask := func(ctx context.Context) (took, _ time.Duration, err error) {
		took, err = c.ask(ctx)
		return took, 0, err
	}
	if _, _, err := repeat(ctx, n/4, warmFor, ask); err != nil {
		return nil, err
	}
	took, _, err := repeat(ctx, n, measureFor, ask)
	return took, err
}

// channels are brokers at work in this process.
type channels struct {
	ledger caisson.Ledger
	end    context.CancelFunc
	ended  chan error
}

func ledgerIn(dir string) sqlite.Options {
	return sqlite.Options{Path: filepath.Join(dir, "ledger.db")}
}

func channelDir(dir string, i int) string { return filepath.Join(dir, "channel"+strconv.Itoa(i)) }

// openChannels opens a broker for each run of the ledger in dir, as a process
// does that takes over what another has left, and returns when all are healthy.
func openChannels(ctx context.Context, dir string) (*channels, error) {
	l, err := sqlite.Open(ctx, ledgerIn(dir))
	if err != nil {
		return nil, err
	}
	runs, err := l.Runs(ctx, caisson.RunFilter{})
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	service := control.New(control.Options{Ledger: l, Watcher: channel.NewWatcher(channel.WatcherOptions{}), Present: present(runs)})
	running, end := context.WithCancel(context.WithoutCancel(ctx))
	c := &channels{ledger: l, end: end, ended: make(chan error, 1)}
	go func() { c.ended <- service.Run(running) }() // ends with close
	group, opening := errgroup.WithContext(ctx)
	for _, r := range runs {
		group.Go(func() error { return openChannel(opening, l, service, dir, r) })
	}
	if err := group.Wait(); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

func openChannel(ctx context.Context, l caisson.Ledger, service *control.Service, dir string, r caisson.Run) error {
	lease, err := l.TakeLease(ctx, r.ID, instance, r.Lease.Fence)
	if err != nil {
		return err
	}
	var i int
	if _, err := fmt.Sscanf(string(r.ID), "r%d", &i); err != nil {
		return err
	}
	var broker atomic.Pointer[control.Broker]
	lock, err := guarded(airlock.Options{Ledger: l, ParkAfter: -1, OnUnknown: airlock.OnUnknownTell, Observe: func(n airlock.Notice) {
		if b := broker.Load(); b != nil { // nothing is asked before
			b.Observe(n)
		}
	}})
	if err != nil {
		return err
	}
	drive := caisson.Drive{Run: r.ID, Fence: lease.Fence}
	b, err := service.Open(ctx, control.Sandbox{
		Dir: channelDir(dir, i), Drive: drive, Door: enter(lock, drive), Guide: "Measured.",
		Record: caisson.SandboxRecord{ID: sandboxOf(r.ID), Run: r.ID, Engine: "none"},
		Verbs:  func() []caisson.Tool { return []caisson.Tool{noop{reach: caisson.ReachLedger}} },
		Bound:  func(context.Context) error { return nil },
		Empty:  true, // who asks is outside
	})
	if err != nil {
		return err
	}
	broker.Store(b)
	if state := b.Status().State; state != caisson.BrokerHealthy {
		return fmt.Errorf("the channel of %s is %s", r.ID, state)
	}
	return nil
}

func sandboxOf(run caisson.RunID) caisson.SandboxID { return caisson.SandboxID("s-" + run) }

// present is an engine that has the sandboxes of all runs.
func present(runs []caisson.Run) func(context.Context, string) (control.Listing, error) {
	listing := control.Listing{Sandboxes: map[caisson.SandboxID]bool{}}
	for _, r := range runs {
		listing.Sandboxes[sandboxOf(r.ID)] = true
	}
	return func(context.Context, string) (control.Listing, error) { return listing, nil }
}

func (c *channels) close() error {
	c.end()
	err := <-c.ended
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	return errors.Join(err, c.ledger.Close())
}

// makeChannels makes a ledger of n runs in dir, each with a channel in which
// some requests were answered.
func makeChannels(ctx context.Context, dir string, n, old int) error {
	const together = 32 // of one channel, so that they share a flush of the disk
	return withRuns(ctx, dir, n, func(l caisson.Ledger, drives []caisson.Drive) error {
		group, ctx := errgroup.WithContext(ctx)
		for i, drive := range drives {
			group.Go(func() error {
				files, err := channel.Make(channelDir(dir, i))
				if err != nil {
					return err
				}
				defer func() { _ = files.Close() }() // it only releases descriptors
				if _, err := l.OpenChannel(ctx, drive, 0); err != nil {
					return err
				}
				group, ctx := errgroup.WithContext(ctx)
				group.SetLimit(together)
				for j := range old {
					group.Go(func() error { return answered(ctx, l, files, drive, j) })
				}
				return group.Wait()
			})
		}
		return group.Wait()
	})
}

// answered records a request as one that is over, with both its answers. It was
// rejected, which takes a third of the writes and is read as quickly.
func answered(ctx context.Context, l caisson.Ledger, files *channel.Files, drive caisson.Drive, j int) error {
	r := caisson.RequestRecord{
		Run: drive.Run, Generation: 1, ID: caisson.RequestID(fmt.Sprintf("%016x", j)), Verb: "noop", Input: json.RawMessage(`{"text":"x"}`),
		Rejected: caisson.Errorf(caisson.CodeBusy, "measured"),
	}
	if err := l.TakeRequest(ctx, drive, r); err != nil {
		return err
	}
	a := caisson.ControlAnswer{ID: r.ID, Generation: 1, State: caisson.AnswerAccepted}
	if err := files.Accept(a); err != nil {
		return err
	}
	a.State, a.Error = caisson.AnswerRejected, r.Rejected
	return files.Answer(a, nil)
}

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/caisson-run/caisson"
)

// together is how many sandboxes open64 opens at once.
const together = 64

// open64 opens 64 namespace sandboxes at once, beside opening one. Must: at most
// 64 times as long, and at most 64 MiB more memory of this process with all of
// them open. In rounds of 64.
func open64(ctx context.Context, b *bench, n int) (r result, err error) {
	e, end, err := engines[0].open(ctx, b)
	if err != nil {
		return result{}, err
	}
	defer end() //nolint:errcheck // what it keeps is its own memory
	debug.FreeOSMemory()
	before, err := memory(os.Getpid(), "VmRSS")
	if err != nil {
		return result{}, err
	}
	var growth float64
	ours := func(ctx context.Context) (took time.Duration, err error) {
		begun := time.Now()
		boxes, err := openAll(ctx, e, together)
		took = time.Since(begun)
		if err == nil {
			var now float64
			now, err = memory(os.Getpid(), "VmRSS")
			growth = max(growth, now-before)
		}
		return took, errors.Join(err, closeAll(boxes))
	}
	one := func(ctx context.Context) (took time.Duration, err error) {
		begun := time.Now()
		boxes, err := openAll(ctx, e, 1)
		took = time.Since(begun)
		return took, errors.Join(err, closeAll(boxes))
	}
	c, err := compare(ctx, n, byTurns(ours, one))
	r = c.times("open one")
	growth = rounded(growth)
	r.GrowthMiB, r.Size = &growth, together
	return r, err
}

// openAll opens sandboxes at the same time. Those that were opened are returned
// beside an error too.
func openAll(ctx context.Context, e caisson.Engine, n int) ([]caisson.Sandbox, error) {
	var mu sync.Mutex
	var boxes []caisson.Sandbox
	var errs []error
	var all sync.WaitGroup
	for range n {
		all.Go(func() { // ends with Open
			box, err := e.Open(ctx, caisson.SandboxSpec{ID: caisson.NewSandboxID()})
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, err)
				return
			}
			boxes = append(boxes, box)
		})
	}
	all.Wait()
	return boxes, errors.Join(errs...)
}

func closeAll(boxes []caisson.Sandbox) error {
	errs := make([]error, len(boxes))
	var all sync.WaitGroup
	for i, box := range boxes {
		all.Go(func() { errs[i] = box.Close() }) // ends with Close
	}
	all.Wait()
	return errors.Join(errs...)
}

const (
	// treeSize is how many processes kill.tree200 ends.
	treeSize  = 200
	treeGrace = 50 * time.Millisecond
)

// killTree stops a command that has started 200 processes, each with a session
// of its own, all of which ignore SIGTERM. What is measured is from the end of
// the grace to the return of Wait, when all of them have ended. Must: at most
// 100 ms. In rounds of one.
func killTree(ctx context.Context, b *bench, n int) (result, error) {
	e, end, err := engines[0].open(ctx, b)
	if err != nil {
		return result{}, err
	}
	defer end() //nolint:errcheck // what it keeps is its own memory
	var took []time.Duration
	err = within(ctx, e, "", func(box caisson.Sandbox) error {
		for i := 0; i < n+n/4 && ctx.Err() == nil; i++ {
			d, err := killOne(ctx, box)
			if err != nil {
				return err
			}
			if i >= n/4 { // those before bring caches and pools to where they stay
				took = append(took, d)
			}
		}
		return context.Cause(ctx)
	})
	if err != nil {
		return result{}, err
	}
	return result{Unit: "ms", Ours: ms(median(took)), N: len(took), Size: treeSize}, nil
}

func killOne(ctx context.Context, box caisson.Sandbox) (time.Duration, error) {
	ready, says := io.Pipe()
	defer ready.Close() //nolint:errcheck // always nil
	line := fmt.Sprintf(`trap "" TERM; i=0; while [ $i -lt %d ]; do setsid sh -c "echo ready; exec sleep 1000" & i=$((i+1)); done; while :; do wait; done`, treeSize-1)
	p, err := box.Hold(ctx, caisson.Command{Argv: []string{"/bin/sh", "-c", line}, Stdout: says, Grace: treeGrace})
	if err == nil {
		err = p.Release()
	}
	if err != nil {
		return 0, err
	}
	lines := bufio.NewReader(ready)
	for range treeSize - 1 {
		if _, err := lines.ReadString('\n'); err != nil {
			return 0, fmt.Errorf("start tree: %w", err)
		}
	}
	begun := time.Now()
	p.Stop(caisson.CauseUser)
	exit, err := p.Wait(ctx)
	took := time.Since(begun) - treeGrace
	if err == nil && (exit.Ended < treeSize/2 || exit.Cause != caisson.CauseUser) {
		err = fmt.Errorf("not all were ended by force: %+v", exit)
	}
	return max(took, time.Microsecond), err
}

// idleFor is how long idle.guest looks at guests that have nothing to do.
const idleFor = 2 * time.Second

// idleGuest opens n sandboxes, runs a command in each and leaves them alone.
// What is measured is the memory of one guest, its share of what it has in
// common with others, and its processor time in a second. Must: at most 5 MiB,
// and less than a tenth of a millisecond.
func idleGuest(ctx context.Context, b *bench, n int) (r result, err error) {
	e, end, err := engines[0].open(ctx, b)
	if err != nil {
		return result{}, err
	}
	defer end() //nolint:errcheck // what it keeps is its own memory
	boxes, err := openAll(ctx, e, n)
	defer func() { err = errors.Join(err, closeAll(boxes)) }()
	for _, box := range boxes {
		if err == nil {
			err = runIn(ctx, box, caisson.Command{Argv: []string{nothing}})
		}
	}
	if err != nil {
		return result{}, err
	}
	var before, after time.Duration
	if before, err = ranFor(boxes); err != nil {
		return result{}, err
	}
	select {
	case <-time.After(idleFor):
	case <-ctx.Done():
		return result{}, context.Cause(ctx)
	}
	if after, err = ranFor(boxes); err != nil {
		return result{}, err
	}
	share, err := shares(boxes)
	cpu := rounded(ms(after-before) / float64(len(boxes)) / idleFor.Seconds())
	slices.Sort(share)
	if err != nil {
		return result{}, err
	}
	return result{Unit: "MiB", Ours: share[len(share)/2], N: len(share), CPUMs: &cpu}, nil
}

// ranFor is how long the guests' threads have run since they began.
func ranFor(boxes []caisson.Sandbox) (total time.Duration, err error) {
	for _, box := range boxes {
		files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", box.Record().Guest.PID))
		if err != nil || len(files) == 0 {
			return 0, fmt.Errorf("a guest has no threads: %w", err)
		}
		for _, file := range files {
			raw, err := os.ReadFile(file)
			if err != nil {
				return 0, err
			}
			first, _, _ := strings.Cut(string(raw), " ")
			ran, err := strconv.ParseInt(first, 10, 64)
			if err != nil {
				return 0, err
			}
			total += time.Duration(ran)
		}
	}
	return total, nil
}

// shares are the guests' shares of memory, in MiB.
func shares(boxes []caisson.Sandbox) ([]float64, error) {
	var all []float64
	for _, box := range boxes {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", box.Record().Guest.PID))
		if errors.Is(err, os.ErrPermission) {
			return nil, skipped("the memory of a guest may not be looked at: " + err.Error())
		}
		if err != nil {
			return nil, err
		}
		_, rest, _ := strings.Cut(string(raw), "\nPss:")
		line, _, _ := strings.Cut(rest, "\n")
		kib, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(line), " kB"), 64)
		if err != nil {
			return nil, fmt.Errorf("read share of memory: %w", err)
		}
		all = append(all, kib/1024)
	}
	return all, nil
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// wholeRound is longer than a broker takes to look once at all that it looks at by
// time.
const wholeRound = 6 * time.Second

// controlIdle is what 100 brokers take in a process of their own while nothing
// is asked of them, in percent of one core. Must: at most 0.2, and 80 MiB. In one
// round of n seconds, or of wholeRound.
func controlIdle(ctx context.Context, b *bench, n int) (r result, err error) {
	dir, remove, err := b.disk()
	if err != nil {
		return result{}, err
	}
	defer remove()
	if err := makeChannels(ctx, dir, manyChannels, 10); err != nil {
		return result{}, err
	}
	p, _, err := startBrokers(ctx, dir)
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	// Until the first checks are over, and what came with the opening.
	if err := waitFor(ctx, min(time.Duration(n)*time.Second, wholeRound)); err != nil {
		return result{}, err
	}
	before, err := p.ran()
	begun := clock()
	if err == nil {
		err = waitFor(ctx, max(time.Duration(n)*time.Second, wholeRound))
	}
	if err != nil {
		return result{}, err
	}
	after, err := p.ran()
	took := clock() - begun
	if err != nil {
		return result{}, err
	}
	mib, err := memory(p.cmd.Process.Pid, "VmRSS")
	cpu, rss := rounded(ms(after-before)), rounded(mib)
	return result{Unit: "% of a core", Ours: 100 * float64(after-before) / float64(took), N: 1, Size: manyChannels, CPUMs: &cpu, RSSMiB: &rss}, err
}

// controlRestart is a new process that opens 100 channels with n old requests
// each, from its exec until all are healthy. Must: at most 3,000 ms. In five
// rounds. The channels are kept for the next time, as they take long to make.
func controlRestart(ctx context.Context, b *bench, n int) (result, error) {
	dir, remove, err := oldChannels(ctx, b, n)
	if err != nil {
		return result{}, err
	}
	defer remove()
	took, cpu, err := repeat(ctx, 5, measureFor, func(ctx context.Context) (took, cpu time.Duration, err error) {
		p, took, err := startBrokers(ctx, dir)
		if err == nil {
			cpu, err = p.healthy, p.Close()
		}
		return took, cpu, err
	})
	if err != nil {
		return result{}, err
	}
	used := rounded(ms(median(cpu)))
	return result{Unit: "ms", Ours: ms(median(took)), N: len(took), Size: n * manyChannels, CPUMs: &used}, nil
}

// oldRequests is how many requests the channels have that are kept.
const oldRequests = 1000

// makingFor bounds the metric where the channels have to be made first.
const makingFor = 5 * time.Minute

// oldChannels returns a directory with 100 channels of n old requests each.
func oldChannels(ctx context.Context, b *bench, n int) (dir string, remove func(), err error) {
	if dir, remove, err = b.disk(); err != nil || n != oldRequests {
		if err == nil {
			err = makeChannels(ctx, dir, manyChannels, n)
		}
		return dir, remove, err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return dir, remove, err
	}
	remove()           // it was asked for to see what disk it is
	const format = "1" // raised when what is made is to be made anew
	kept := filepath.Join(cache, "caisson", "bench", "channels-"+format)
	if _, err := os.Stat(kept); err == nil {
		return kept, func() {}, nil
	}
	if err := os.MkdirAll(filepath.Dir(kept), 0o700); err != nil {
		return "", nil, err
	}
	made, err := os.MkdirTemp(filepath.Dir(kept), ".making-")
	if err == nil {
		err = makeChannels(ctx, made, manyChannels, n)
	}
	if err == nil {
		err = os.Rename(made, kept)
	}
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(made))
	}
	return kept, func() {}, nil
}

// brokers is this program as the one that serves the channels in dir. It says
// what processor time it has used when they are healthy, and serves them until in
// ends.
func brokers(ctx context.Context, dir string, in io.Reader, out io.Writer) error {
	s, err := openChannels(ctx, dir)
	if err != nil {
		return err
	}
	runtime.GC() // what the opening left is no part of what idleness costs
	r, err := used()
	if err == nil {
		err = json.NewEncoder(out).Encode(r)
	}
	if err == nil {
		_, err = io.Copy(io.Discard, in)
	}
	return errors.Join(err, s.close())
}

// used is the processor time of this process until now.
func used() (time.Duration, error) { return ran(unix.CLOCK_PROCESS_CPUTIME_ID) }

func ran(clock int32) (time.Duration, error) {
	var t unix.Timespec
	err := unix.ClockGettime(clock, &t)
	return time.Duration(t.Nano()), err
}

// brokerProcess is another process that serves channels.
type brokerProcess struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	healthy time.Duration // what processor time it had used when all its channels were
}

// startBrokers returns when the channels are healthy, and how long that took.
func startBrokers(ctx context.Context, dir string) (*brokerProcess, time.Duration, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, 0, err
	}
	cmd := exec.CommandContext(ctx, self, "-brokers", dir) //nolint:forbidigo // it ends with its input
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, 0, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, 0, err
	}
	begun := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, 0, err
	}
	p := &brokerProcess{cmd: cmd, in: in}
	if err := json.NewDecoder(out).Decode(&p.healthy); err != nil {
		return nil, 0, errors.Join(fmt.Errorf("open channels: %w", err), p.Close())
	}
	return p, time.Since(begun), nil
}

// ran is the processor time that the process has used until now. It is not asked
// itself: that would wake it.
func (p *brokerProcess) ran() (time.Duration, error) {
	const precise = 2 // to the nanosecond, of all threads; see clock_getcpuclockid(3)
	return ran(^int32(p.cmd.Process.Pid)<<3 | precise)
}

func (p *brokerProcess) Close() error { return errors.Join(p.in.Close(), p.cmd.Wait()) }

func waitFor(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

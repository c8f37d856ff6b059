package sqlite

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// turnstile lets the processes that write one ledger in one after the other.
// SQLite's own waiting starves writers: it polls with growing pauses while the
// process that just wrote comes back at once. Here a process that has written
// must pass the gate again, where the next one already stands.
//
// The files are never unlinked: a lock on an unlinked file excludes nobody.
type turnstile struct {
	gate, writer *os.File
	bound        time.Duration
}

func openTurnstile(path string, bound time.Duration) (*turnstile, error) {
	gate, err := os.OpenFile(path+".gate", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	writer, err := os.OpenFile(path+".writer", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, errors.Join(err, gate.Close())
	}
	return &turnstile{gate: gate, writer: writer, bound: bound}, nil
}

// enter returns when this process may write, or with an error and without.
func (t *turnstile) enter(ctx context.Context) error {
	p := patience{left: t.bound, at: time.Now()}
	if err := lock(ctx, t.gate, &p); err != nil {
		return err
	}
	err := lock(ctx, t.writer, &p)
	return errors.Join(err, flock(t.gate, unix.LOCK_UN))
}

func (t *turnstile) leave() error { return flock(t.writer, unix.LOCK_UN) }

func (t *turnstile) close() error { return errors.Join(t.gate.Close(), t.writer.Close()) }

func flock(f *os.File, how int) error {
	for {
		err := unix.Flock(int(f.Fd()), how)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// patience is how long a lock is waited for yet. Where the machine stands still, who
// has the lock does too: that counts no more than a long pause between two looks.
type patience struct {
	left time.Duration
	at   time.Time // of the last look
}

// longestPause is more than a busy machine makes of the pause between two looks.
const longestPause = 100 * time.Millisecond

func (p *patience) over(now time.Time) bool {
	p.left -= min(now.Sub(p.at), longestPause)
	p.at = now
	return p.left <= 0
}

// lock polls: a blocking flock cannot be given up without a goroutine that
// outlives its caller. A batch takes about a millisecond, hence the pauses.
func lock(ctx context.Context, f *os.File, p *patience) error {
	const shortest, longest = 50 * time.Microsecond, time.Millisecond
	var timer *time.Timer
	for pause := shortest; ; pause = min(pause*5/4, longest) {
		err := flock(f, unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return err
		}
		if p.over(time.Now()) {
			return held(f)
		}
		if timer == nil {
			timer = time.NewTimer(pause)
			defer timer.Stop()
		} else {
			timer.Reset(pause)
		}
		select {
		case <-ctx.Done():
			return ended(ctx)
		case <-timer.C:
		}
	}
}

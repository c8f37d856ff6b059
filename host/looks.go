package host

import (
	"context"
	"sync"
	"time"
)

// What is asked for from inside may have this process look at work: git runs here,
// or in a box of its own, and no limit of the sandbox bounds that. So one sandbox
// has one look at a time, and beyond lookSaved one part in lookShare of the time
// that goes by.
const (
	lookShare = 4
	// lookSaved is what looks may take at once of who has not looked for a while: an
	// agent asks a few times in a stage.
	lookSaved = 10 * time.Second
)

// looks are those of one sandbox. Safe for concurrent use; its zero value is ready.
type looks struct {
	made sync.Once
	one  chan struct{} // held by who looks; what is below is theirs
	debt time.Duration // below 0: what is saved
	at   time.Time     // as of when
}

// do looks, when its turn and its time have come; an error of ctx where that is
// over before.
func (l *looks) do(ctx context.Context, look func() error) error {
	l.made.Do(func() { l.one = make(chan struct{}, 1) })
	select {
	case l.one <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-l.one }()
	if wait := l.earn(time.Now()); wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	began := time.Now()
	err := look()
	l.debt += time.Since(began)
	return err
}

// earn brings the debt up to now, and returns how long it lasts.
func (l *looks) earn(now time.Time) time.Duration {
	if l.at.IsZero() {
		l.debt -= lookSaved
	} else {
		l.debt = max(l.debt-now.Sub(l.at)/lookShare, -lookSaved)
	}
	l.at = now
	return l.debt * lookShare
}

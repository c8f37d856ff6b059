package host

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/airlock"
)

// life is one life of a foreign run at work. Its context ends, with the cause,
// when the run is paused, when its time is over, and when a cancel is asked for.
type life struct {
	s      *session
	ctx    context.Context //nolint:containedctx // one life is one call of foreign
	stop   context.CancelCauseFunc
	unhook func() bool
	timer  *time.Timer // nil without a bound; touched by the goroutine that settles
	ended  sync.WaitGroup
}

func (s *session) live(ctx context.Context) *life {
	l := &life{s: s}
	l.ctx, l.stop = context.WithCancelCause(context.WithoutCancel(ctx))
	l.unhook = context.AfterFunc(ctx, func() { l.stop(pauseOf(context.Cause(ctx))) })
	if wall := s.run.Spec.Budget.Wall; wall > 0 {
		l.timer = time.AfterFunc(max(wall-s.run.Active, 0), func() {
			l.stop(&caisson.CauseError{Cause: caisson.CauseDeadline, Text: fmt.Sprintf("the run's time of %s is over", wall)})
		})
	}
	l.ended.Go(l.watch)
	return l
}

// pauseOf makes the end of a driver's context one that leaves open what is open.
func pauseOf(why error) error {
	var named *caisson.CauseError
	if errors.As(why, &named) {
		return &airlock.PauseError{Cause: named.Cause, Text: named.Text}
	}
	return &airlock.PauseError{Cause: caisson.CauseUnknown, Text: why.Error()}
}

// watch ends the life when a cancel is asked for.
func (l *life) watch() {
	id := l.s.run.ID
	for seen := int64(0); l.ctx.Err() == nil; {
		r, err := l.s.host.Ledger.Run(l.ctx, id)
		if err == nil && r.CancelAsked != "" {
			l.stop(&caisson.CauseError{Cause: r.CancelAsked, Text: "cancel was asked"})
			return
		}
		if err == nil {
			seen, err = l.s.host.Ledger.Wait(l.ctx, id, max(seen, r.Events))
		}
		if err != nil { // without the record nothing may go on
			l.stop(err)
			return
		}
	}
}

// notice keeps the run's state true while it waits for a person. That time does
// not count, and a call begins only in a run that is running.
func (l *life) notice(n airlock.Notice) {
	move := caisson.RunMove{To: caisson.RunRunning}
	switch n.Kind {
	case airlock.NoticeWaiting:
		move = caisson.RunMove{To: caisson.RunWaiting, Stop: caisson.StopWaiting}
	case airlock.NoticeGoing:
	default:
		return
	}
	r, err := l.s.host.Ledger.MoveRun(context.WithoutCancel(l.ctx), l.s.drive, move)
	if err != nil {
		l.stop(err)
		return
	}
	if l.timer == nil {
		return
	}
	l.timer.Stop()
	if r.State == caisson.RunRunning {
		l.timer.Reset(max(r.Spec.Budget.Wall-r.Active, 0))
	}
}

// end returns why the life ended early, if it did.
func (l *life) end() error {
	why := context.Cause(l.ctx)
	l.unhook()
	if l.timer != nil {
		l.timer.Stop()
	}
	l.stop(nil)
	l.ended.Wait()
	return why
}

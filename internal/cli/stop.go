package cli

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/host"
)

// stopper turns the person's Ctrl-C into a pause, and a second one into a
// cancel. SIGTERM and SIGHUP pause: a shutdown is not the person's no. A session
// cannot go on later: there, the first of any is a cancel, and where another
// process drives it, a second one does not wait for that.
type stopper struct {
	pause   chan caisson.Cause      // receives why, once
	leave   context.CancelCauseFunc // nil where this process drives the run
	signals chan os.Signal
	done    chan struct{}
	ended   sync.WaitGroup
}

// newStopper listens until close. said is called when the first signal is taken,
// leave, where there is one, when the person does not want to wait any more.
func newStopper(h *host.Host, r caisson.Run, said func(), leave context.CancelCauseFunc) *stopper {
	s := &stopper{pause: make(chan caisson.Cause, 1), leave: leave, signals: make(chan os.Signal, 4), done: make(chan struct{})}
	signal.Notify(s.signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	s.ended.Go(func() { s.listen(h, r, said) })
	return s
}

func (s *stopper) listen(h *host.Host, r caisson.Run, said func()) {
	for count := 0; ; {
		select {
		case <-s.done:
			return
		case sig := <-s.signals:
			count++
			cause := caisson.CauseUser
			if sig != os.Interrupt {
				cause = caisson.CauseShutdown
			}
			session := r.Spec.Session != ""
			if count == 1 && !session {
				s.pause <- cause
				said()
				continue
			}
			if session || sig == os.Interrupt {
				ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
				_, _ = h.Ledger.AskCancel(ctx, r.ID, cause, host.Person()) // another signal asks again
				cancel()
			}
			if session && count > 1 && s.leave != nil {
				s.leave(caisson.Errorf(caisson.CodeInterrupted, "session %s was told to end, and its end was not waited for", r.ID).
					WithHint("See how it stands with `caisson runs show %s`.", r.ID))
			}
		}
	}
}

func (s *stopper) close() {
	signal.Stop(s.signals)
	close(s.done)
	s.ended.Wait()
}

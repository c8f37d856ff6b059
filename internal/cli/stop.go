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
// cancel. SIGTERM and SIGHUP pause: a shutdown is not the person's no; so does the
// end of the command's context, as where nobody reads any more what it prints. A
// session cannot go on later: there, the first of any is a cancel, and where
// another process drives it, a second one does not wait for that.
type stopper struct {
	pause   chan caisson.Cause      // receives why, once
	leave   context.CancelCauseFunc // nil where this process drives the run
	signals chan os.Signal
	done    chan struct{}
	ended   sync.WaitGroup
}

// newStopper listens until close. ctx is the command's; what drives the run must
// not end with it. said is called when the first signal is taken, leave, where
// there is one, when the person does not want to wait any more.
func newStopper(ctx context.Context, h *host.Host, r caisson.Run, said func(), leave context.CancelCauseFunc) *stopper {
	s := &stopper{pause: make(chan caisson.Cause, 1), leave: leave, signals: make(chan os.Signal, 4), done: make(chan struct{})}
	signal.Notify(s.signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	s.ended.Go(func() { s.listen(ctx, h, r, said) })
	return s
}

func (s *stopper) listen(given context.Context, h *host.Host, r caisson.Run, said func()) {
	over := given.Done()
	for count, paused := 0, r.Spec.Session != ""; ; { // a session is not paused
		cause, again := caisson.CauseShutdown, false
		select {
		case <-s.done:
			return
		case <-over: // it comes with Ctrl-C, too, where that ends who reads: it is no second one
			over = nil
		case sig := <-s.signals:
			if sig == os.Interrupt {
				cause = caisson.CauseUser
			}
			count++
			again = count > 1
		}
		if !paused {
			paused = true
			s.pause <- cause
			said()
			continue
		}
		if r.Spec.Session != "" || again && cause == caisson.CauseUser {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			_, _ = h.Ledger.AskCancel(ctx, r.ID, cause, host.Person()) // another signal asks again
			cancel()
		}
		if r.Spec.Session != "" && again && s.leave != nil {
			s.leave(caisson.Errorf(caisson.CodeInterrupted, "session %s was told to end, and its end was not waited for", r.ID).
				WithHint("See how it stands with `caisson runs show %s`.", r.ID))
		}
	}
}

func (s *stopper) close() {
	signal.Stop(s.signals)
	close(s.done)
	s.ended.Wait()
}

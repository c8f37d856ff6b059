//go:build linux

package container_test

import (
	"errors"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/sandbox/container"
)

// daemonStorm is a Docker that is killed while a sandbox is opened, used and closed.
type daemonStorm struct {
	t      *testing.T
	d      *daemon
	e      *container.Engine
	guests []caisson.ProcessIdentity
}

// The engine is killed at any moment while a sandbox is opened, used and closed:
// what was being done says so, whoever asks meanwhile is told what it is, all that
// ran has ended, and when the engine is back nothing is left of it.
// Origin: OpenShell 2179; moby 29700.
func TestDaemonKilled(t *testing.T) {
	d := startDaemon(t, "")
	s := &daemonStorm{t: t, d: d, e: open(t, d.options(t, smallImage))}
	s.closed(s.opened()) // of an engine that nothing was ever made on nothing is asked
	for name, strike := range map[string]func(){"open": s.atOpen, "exec": s.atExec, "close": s.atClose} {
		t.Run(name, func(t *testing.T) {
			s.t = t
			for range max(2, rounds(t)/2) {
				s.guests = nil
				strike()
				s.meanwhile()
				dead(t, s.guests)
				d.start(t, filepath.Join(d.dir, "data"))
				tidy(t, s.e)
				nothing(t, s.e)
			}
		})
	}
}

// kill kills the engine within some time.
func (s *daemonStorm) kill(within time.Duration) (over chan struct{}) {
	over = make(chan struct{})
	time.AfterFunc(rand.N(within), func() {
		defer close(over)
		s.d.end(s.t, syscall.SIGKILL)
	})
	return over
}

func (s *daemonStorm) opened() caisson.Sandbox {
	s.t.Helper()
	sb, err := s.e.Open(s.t.Context(), caisson.SandboxSpec{ID: caisson.NewSandboxID()})
	if err != nil {
		s.t.Fatal(err)
	}
	s.guests = append(s.guests, *sb.Record().Guest)
	return sb
}

func (s *daemonStorm) atOpen() {
	over := s.kill(500 * time.Millisecond)
	sb, err := s.e.Open(s.t.Context(), caisson.SandboxSpec{ID: caisson.NewSandboxID()})
	<-over
	if err != nil {
		s.clear("open", err, caisson.CodeEngineUnavailable, caisson.CodeSandboxLost)
		return
	}
	s.guests = append(s.guests, *sb.Record().Guest)
	s.closed(sb)
}

func (s *daemonStorm) atExec() {
	sb := s.opened()
	over := s.kill(300 * time.Millisecond)
	p, err := sb.Hold(s.t.Context(), caisson.Command{Line: "sleep 1000 & trap '' TERM; while :; do sleep 0.01; done"})
	if err == nil {
		s.guests = append(s.guests, p.Identity())
		err = p.Release()
	}
	if err == nil {
		_, err = p.Wait(s.t.Context())
	}
	<-over
	if err == nil {
		s.t.Error("a command that has no end ended well")
	}
	s.clear("exec", err, caisson.CodeSandboxLost)
	select {
	case <-sb.Done():
	case <-time.After(prompt):
		s.t.Error("nobody was told that the sandbox has ended")
	}
	s.closed(sb)
}

func (s *daemonStorm) atClose() {
	sb := s.opened()
	over := s.kill(300 * time.Millisecond)
	s.closed(sb)
	<-over
}

// closed closes a sandbox: an engine that went away does not keep it from its
// end. What that has on its books goes later.
func (s *daemonStorm) closed(sb caisson.Sandbox) {
	s.t.Helper()
	if err := sb.Close(); err != nil {
		s.t.Errorf("close: %v", err)
	}
}

// clear fails unless an error has one of the codes, may be tried again and says
// what to do.
func (s *daemonStorm) clear(what string, err error, codes ...caisson.Code) {
	s.t.Helper()
	if err != nil && strings.ContainsAny(err.Error(), "%\n") {
		s.t.Errorf("%s: not for people: %v", what, err)
	}
	for _, code := range codes {
		if caisson.CodeOf(err) == code && code.Info().Retryable {
			var coded *caisson.Error
			if errors.As(err, &coded) && code == caisson.CodeEngineUnavailable && coded.HintText() == "" {
				s.t.Errorf("%s: no hint: %v", what, err)
			}
			return
		}
	}
	s.t.Errorf("%s: %v (%s), want one of %v", what, err, caisson.CodeOf(err), codes)
}

// meanwhile asks the engine that is not there.
func (s *daemonStorm) meanwhile() {
	s.t.Helper()
	begun := time.Now()
	_, err := s.e.Open(s.t.Context(), caisson.SandboxSpec{ID: caisson.NewSandboxID()})
	s.clear("open meanwhile", err, caisson.CodeEngineUnavailable)
	if _, err := s.e.Remnants(s.t.Context()); caisson.CodeOf(err) != caisson.CodeEngineUnavailable {
		s.t.Errorf("what is left is told though the engine is not there: %v", err)
	}
	if err := s.e.Tidy(s.t.Context()); err != nil {
		s.clear("tidy meanwhile", err, caisson.CodeEngineUnavailable)
	}
	if took := time.Since(begun); took > prompt {
		s.t.Errorf("an engine that is not there is told of after %v", took)
	}
}

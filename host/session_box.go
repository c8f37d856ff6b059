package host

import (
	"context"
	"errors"
	"strings"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/config"
	"github.com/caisson-run/caisson/login"
	"github.com/caisson-run/caisson/sandbox"
)

// openBox opens the sandbox. Its record is written before it is made, so that
// whoever comes after a crash knows that there may be one.
func (s *session) openBox(ctx context.Context) error {
	h := s.host
	engine, err := h.engine(s.run.Spec.Engine)
	if err != nil {
		return err
	}
	dirs := []string{h.Paths.State}
	if s.ws != nil {
		dirs = append(dirs, s.ws.Path)
	}
	if err := h.admit(s.config, s.run.Spec.Limits, dirs...); err != nil {
		return err
	}
	if s.record, err = s.firstRecord(ctx); err != nil {
		return err
	}
	if err := h.claimBox(ctx, s.record); err != nil {
		return err
	}
	var box caisson.Sandbox
	if err = s.makeChannel(); err == nil {
		s.asked = s.boxSpec(s.config)
		box, err = h.openBox(ctx, engine, s.config, s.asked)
	}
	if err != nil {
		return errors.Join(err, h.restBox(context.WithoutCancel(ctx), &s.record, false))
	}
	s.people = &people{Sandbox: box}
	s.box = s.people
	opened := box.Record()
	opened.Run, opened.Workspace, opened.Instance = s.record.Run, s.record.Workspace, s.record.Instance
	opened.State, opened.At, opened.Generation = caisson.SandboxRunning, h.Ledger.Now(), s.record.Generation
	s.record = opened
	err = h.Ledger.PutSandbox(ctx, s.record)
	if err == nil && s.ws != nil { // what stood at its paths just now is what is in the box
		err = h.workspaces.Check(ctx, *s.ws)
	}
	if err == nil {
		err = h.Ledger.Append(ctx, s.drive, caisson.EventIsolation, box.Isolation())
	}
	if err == nil {
		err = s.shareLogins(ctx, login.In, loginsIn)
	}
	if err != nil {
		return errors.Join(err, s.closeBox(ctx))
	}
	return nil
}

func (s *session) closeBox(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	lost, step := false, "host.quiesce."
	select {
	case <-s.box.Done():
		lost, step = s.served != nil, "host.collect."
	default:
	}
	pass(step + "ended")
	err := s.box.Close()
	pass(step + "closed")
	err = errors.Join(err, s.host.restBox(ctx, &s.record, lost))
	pass(step + "rested")
	return err
}

// boxSpec says what boundary the run gets in this life, with a config.
func (s *session) boxSpec(c config.Config) caisson.SandboxSpec {
	spec := s.host.boxSpec(c, s.run.Spec, s.ws, s.env)
	spec.ID = s.record.ID
	s.lendChannel(&spec)
	if s.network != nil {
		s.network.give(&spec)
	}
	return spec
}

// env returns a variable of the person's.
func (s *session) env(name string) string {
	if s.served != nil {
		for _, entry := range s.served.env {
			if value, is := strings.CutPrefix(entry, name+"="); is {
				return value
			}
		}
	}
	return s.host.env(name)
}

// workDir is the directory that the agent works in, as it is called inside.
func (s *session) workDir() string {
	if s.ws == nil {
		return sandbox.PrivateWorkspace
	}
	return s.ws.Path
}

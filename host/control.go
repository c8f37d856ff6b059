package host

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"
	"sync"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/airlock"
	"github.com/caisson-run/caisson/control"
	"github.com/caisson-run/caisson/control/channel"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/container"
	"github.com/caisson-run/caisson/sandbox/landlock"
)

// pollSet is the value of ControlPollEnv that has both sides of all channels look
// for files instead of waiting for the file system's events.
const pollSet = "1"

// controls are the brokers of this process, and the boxes that they are for.
type controls struct {
	mu      sync.Mutex
	service *control.Service // nil until a channel is opened
	stop    context.CancelFunc
	ended   chan error
	boxes   map[caisson.SandboxID]caisson.Sandbox
}

// brokers returns the service of this process, which runs from the first channel
// on until close.
func (h *Host) brokers() *control.Service {
	c := &h.controls
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.service == nil {
		c.service = control.New(control.Options{
			Ledger: h.Ledger, Watcher: channel.NewWatcher(channel.WatcherOptions{Poll: h.env(caisson.ControlPollEnv) == pollSet}),
			Present: h.present, Redact: h.hideSecrets,
		})
		c.boxes, c.ended = map[caisson.SandboxID]caisson.Sandbox{}, make(chan error, 1)
		var life context.Context
		life, c.stop = context.WithCancel(context.Background())
		go func() { c.ended <- c.service.Run(life) }() // ends with close
	}
	return c.service
}

// close ends the service, with the brokers that are left.
func (c *controls) close() error {
	if c.service == nil {
		return nil
	}
	c.stop()
	return <-c.ended
}

// present tells which sandboxes an engine has. Of engines that are this program
// itself each box is a child of this process, whose end the kernel tells.
func (h *Host) present(ctx context.Context, name string) (control.Listing, error) {
	engine, err := h.engine(name)
	if err != nil {
		return control.Listing{}, err
	}
	if made, is := engine.(*container.Engine); is {
		instance, there, err := made.Present(ctx)
		return control.Listing{Instance: instance, Sandboxes: there}, err
	}
	there := map[caisson.SandboxID]bool{}
	h.controls.mu.Lock()
	defer h.controls.mu.Unlock()
	for id, box := range h.controls.boxes {
		select {
		case <-box.Done():
		default:
			there[id] = true
		}
	}
	return control.Listing{Sandboxes: there}, nil
}

// hasChannel tells whether programs in the run's sandbox can ask for something
// outside: those of agents can, and what people run in one that is kept open.
func (s *session) hasChannel() bool {
	return s.within == nil && (s.run.Spec.Session == "" || s.served != nil)
}

// makeChannel makes the directories of the sandbox's channel, where it has one,
// and has the client for it at hand.
func (s *session) makeChannel() (err error) {
	if !s.hasChannel() {
		return nil
	}
	if s.programs, err = sandbox.KeepPrograms(s.host.Paths.Programs(), s.host.guest); err != nil {
		return err
	}
	files, err := channel.Make(s.host.channelDir(s.record.ID))
	if err != nil {
		return err
	}
	if err := files.Close(); err != nil {
		return caisson.Errorf(caisson.CodeWriteFailed, "make the channel of sandbox %s: %w", s.record.ID, err)
	}
	return nil
}

// lendChannel adds the sandbox's channel, and its client, to what its box is lent.
func (s *session) lendChannel(spec *caisson.SandboxSpec) {
	if !s.hasChannel() {
		return
	}
	spec.Programs = s.programs.Dir
	dir, inside := s.host.channelDir(s.record.ID), caisson.ControlDir
	if s.record.Engine == landlock.Name { // which shows nothing in place of another
		inside = dir
	}
	for _, part := range []struct {
		name  string
		write bool
	}{{caisson.ControlRequests, true}, {caisson.ControlPublic, false}} {
		spec.Mounts = append(spec.Mounts, caisson.Mount{Source: filepath.Join(dir, part.name), Target: filepath.Join(inside, part.name), Write: part.write})
	}
	spec.Env = append(spec.Env, caisson.ControlEnv+"="+inside)
	if s.host.env(caisson.ControlPollEnv) == pollSet {
		spec.Env = append(spec.Env, caisson.ControlPollEnv+"="+pollSet)
	}
}

// openChannel opens the broker of the run's sandbox.
func (s *session) openChannel(ctx context.Context) error {
	if !s.hasChannel() {
		return nil
	}
	generation, err := s.channelGeneration(ctx)
	if err != nil {
		return err
	}
	if s.ws != nil {
		if s.remotes, err = s.host.workspaces.Remotes(ctx, *s.ws); err != nil {
			return err
		}
	}
	if s.mirror = s.newMirror(); s.mirror != nil {
		if err := s.host.keepMirror(ctx, s.mirror); err != nil {
			return err
		}
	}
	s.outer = s.host.programEnv()
	service := s.host.brokers()
	opened := make(chan struct{})
	observe := func(n airlock.Notice) {
		if <-opened; s.broker != nil {
			s.broker.Observe(n)
		}
		s.seeTasks(n)
	}
	s.host.controls.keep(s.box)
	s.broker, err = service.Open(ctx, control.Sandbox{
		Dir: s.host.channelDir(s.record.ID), Drive: s.drive, Record: s.record, Generation: generation,
		Door: s.requests(observe).Enter(s.drive, s.subject, s.binding(), s.box.ID()), Verbs: s.verbs, Bound: s.bound(),
		Lost: func(context.Context) error { return s.box.Close() }, Aborted: s.aborted, Workspace: s.workDir(), Branch: s.branch(), Guide: s.guide(),
		Empty: true,
	})
	close(opened)
	if err == nil {
		s.people.follow(s.broker.Inhabited)
	}
	if err != nil {
		s.host.controls.forget(s.box)
		s.host.dropMirror(s.mirror)
	}
	return err
}

// channelGeneration brings the channel to the generation of the sandbox, and
// returns which is to be opened: 0 for the present one.
func (s *session) channelGeneration(ctx context.Context) (int64, error) {
	for {
		ch, err := s.host.Ledger.Channel(ctx, s.run.ID)
		if err != nil && caisson.CodeOf(err) != caisson.CodeNotFound {
			return 0, err
		}
		switch {
		case ch.Generation >= s.record.Generation || ch.Generation == 0 && s.record.Generation == 1:
			return 0, nil
		case ch.Generation == s.record.Generation-1:
			return s.record.Generation, nil
		}
		next := ch.Generation + 1 // one whose sandbox did not live until its channel was open
		if ch.Generation == 0 {
			next = 0
		}
		if _, err := s.host.Ledger.OpenChannel(ctx, s.drive, next); err != nil {
			return 0, err
		}
	}
}

// requests is the airlock of what is asked for from inside: nobody waits in it
// for a person, and who asked is told of a call whose end nobody saw.
func (s *session) requests(observe func(airlock.Notice)) *airlock.Airlock {
	o := s.airlockOptions()
	o.ParkAfter, o.OnUnknown, o.Observe = -1, airlock.OnUnknownTell, observe
	return airlock.New(o)
}

func (s *session) bound() func(context.Context) error {
	if s.ws == nil {
		return nil
	}
	watched := s.host.workspaces.Watch()
	return func(ctx context.Context) error { return watched.Check(ctx, *s.ws) }
}

func (s *session) branch() string {
	if s.ws == nil {
		return ""
	}
	return s.ws.Branch
}

// aborted ends the run because a person, asked about a request, said so.
func (s *session) aborted() {
	ctx, cancel := context.WithTimeout(context.Background(), closing)
	defer cancel()
	_, _ = s.host.Ledger.AskCancel(ctx, s.run.ID, caisson.CauseUser, Person()) // it may have ended
}

// endChannel ends the broker because the run ends for good: every request has
// its answer then.
func (s *session) endChannel(ctx context.Context, cause caisson.Cause) error {
	if s.broker == nil {
		return nil
	}
	return s.broker.End(context.WithoutCancel(ctx), cmp.Or(cause, caisson.CauseParent), "the run ends")
}

// closeChannel ends the broker. Where the run goes on later, what waits for a
// person stays open; where it is cancelled, nothing does.
func (s *session) closeChannel(ctx context.Context) error {
	if s.broker == nil {
		return nil
	}
	defer s.host.controls.forget(s.box)
	defer s.host.dropMirror(s.mirror)
	r, err := s.host.Ledger.Run(ctx, s.run.ID)
	if err == nil && r.CancelAsked != "" {
		return s.broker.End(ctx, r.CancelAsked, "the run is being cancelled")
	}
	return errors.Join(err, s.broker.Close(ctx))
}

func (c *controls) keep(box caisson.Sandbox) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.boxes[box.ID()] = box
}

func (c *controls) forget(box caisson.Sandbox) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.boxes, box.ID())
}

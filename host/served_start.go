package host

import (
	"context"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/sandbox/container"
)

// StartOptions say how a sandbox is started.
type StartOptions struct {
	// Recreate makes the boundary anew, also of one that is open: sessions in it
	// are ended. The workspace is looked at before and after; where it is not
	// provably the same, the sandbox is stopped.
	Recreate bool
}

// Started is a sandbox that was started.
type Started struct {
	Run      caisson.Run `json:"run"`
	Findings []Finding   `json:"findings"`
}

// Sound tells whether all is as it should be.
func (s Started) Sound() bool {
	for _, f := range s.Findings {
		if !f.OK {
			return false
		}
	}
	return true
}

// StartServed has a served run's sandbox opened where it is not, looks at it, and
// mends what can be mended. It returns when it is open.
func (h *Host) StartServed(ctx context.Context, id caisson.RunID, opts StartOptions) (Started, error) {
	r, err := h.Ledger.Run(ctx, id)
	if err != nil {
		return Started{Run: r}, err
	}
	if err := h.removedAlready(ctx, r); err != nil {
		return Started{Run: r}, err
	}
	if err := servedOnly(r); err != nil {
		return Started{Run: r}, err
	}
	if err := h.unheld(ctx, r.Spec.Workspace); err != nil {
		return Started{Run: r}, err
	}
	before := h.foundBefore(ctx, r)
	reply, _, err := h.ask(ctx, servingRequest{Op: opOpen, Run: id, Env: h.servedEnv(r.Spec), Recreate: opts.Recreate}, nil, nil)
	if err != nil {
		return Started{Run: r}, servingError(err)
	}
	return Started{Run: *reply.Run, Findings: append(before, reply.Live.Findings...)}, nil
}

// foundBefore says how a sandbox stood before it is started.
func (h *Host) foundBefore(ctx context.Context, r caisson.Run) []Finding {
	f := Finding{What: "state", OK: true, Repaired: true}
	switch {
	case r.State == caisson.RunPending && r.Lease.Fence == 0:
		return nil // it is made just now
	case r.State == caisson.RunPaused:
		f.Says = "it was stopped: " + r.Text
	case r.Lease.Instance == "":
		f.Says = "nobody kept it open"
	default:
		now, driver, err := h.driver(ctx, r)
		switch {
		case err != nil || driver.Liveness != caisson.Dead:
			return []Finding{{What: "state", OK: true, Says: "it was open already"}}
		case now.Lease.Instance == "":
			return h.foundBefore(ctx, now) // it was let go of in order since it was read
		}
		f.Says = "the process that kept it open was killed; what that left was ended"
	}
	return []Finding{f}
}

// doOpen opens a sandbox, or makes the boundary of an open one anew, and checks it.
func (s *Serving) doOpen(ctx context.Context, r caisson.Run, request servingRequest) (servingReply, error) {
	if err := servedOnly(r); err != nil {
		return servingReply{}, err
	}
	v, err := s.opened(ctx, r.ID, request)
	if err != nil {
		return servingReply{}, err
	}
	box, back, err := v.borrow()
	if err != nil {
		return servingReply{}, err
	}
	defer back()
	checking, cancel := context.WithTimeout(ctx, checkBound)
	defer cancel()
	findings := box.check(checking)
	if request.Recreate {
		findings = append([]Finding{{What: "boundary", OK: true, Repaired: true, Says: box.replaced()}}, findings...)
	}
	reply, err := s.reply(r.ID)
	reply.Live = &LiveView{Findings: findings}
	return reply, err
}

// opened returns the open sandbox of a run, if it is open within the time of ctx.
func (s *Serving) opened(ctx context.Context, run caisson.RunID, request servingRequest) (*served, error) {
	v := s.take(run, request.Env)
	err := v.await(ctx)
	if err == nil && request.Recreate {
		if err := s.replaceable(ctx, v); err != nil {
			return v, err
		}
		v.mu.Lock()
		v.replace, v.nextEnv = true, request.Env
		v.mu.Unlock()
		v.halt(&caisson.CauseError{Cause: caisson.CauseUser, Text: "its boundary is made anew"})
	}
	if err != nil || !v.leaves() {
		return v, err
	}
	if err := v.over(ctx); err != nil { // it was about to be stopped: begun anew
		return v, err
	}
	next := v.next
	if next == nil {
		next = s.takeAfter(run, request.Env, v)
	}
	return next, next.await(ctx)
}

// replaceable refuses to replace a boundary that cannot be made anew, or whose
// workspace could not be compared, before anything is ended.
func (s *Serving) replaceable(ctx context.Context, v *served) error {
	box, back, err := v.borrow()
	if err != nil {
		return err
	}
	defer back()
	if err := box.openable(ctx); err != nil {
		return err
	}
	_, _, err = box.treeNow(ctx, "before the sandbox is made anew")
	return err
}

// openable finds what would keep a boundary from being made today: settings that
// cannot be read, a full disk, an engine that does not answer, an image that cannot
// be had. Not promised: that nothing else does.
func (s *session) openable(ctx context.Context) error {
	c, err := s.host.configWith(s.repo)
	if err != nil {
		return err
	}
	if _, err := s.host.policyWith(s.run.Spec.Preset, s.repo, c.Verbs); err != nil {
		return err
	}
	engine, err := s.host.engine(s.run.Spec.Engine)
	if err != nil {
		return err
	}
	if err := s.host.admitDisk(c, s.host.Paths.State); err != nil { // memory comes with the end of the old one
		return err
	}
	made, is := engine.(*container.Engine)
	if !is {
		return nil
	}
	made.Use(imagesOf(c))
	return made.Prepare(ctx)
}

// treeNow keeps the workspace's tree and returns its commit, empty where there is
// no workspace, and whether tree or HEAD changed since it was kept last.
func (s *session) treeNow(ctx context.Context, why string) (commit string, changed bool, err error) {
	if s.ws == nil {
		return "", false, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, treeBound, caisson.Errorf(caisson.CodeDeadline, "the workspace was not looked at as a whole within %s", treeBound))
	defer cancel()
	snap, err := s.host.workspaces.SnapshotNow(ctx, *s.ws, s.box, why)
	if err == nil && snap.Missing() != "" {
		err = caisson.Errorf(caisson.CodeWorkspaceDirty, "not all of the workspace can be compared: %s", snap.Missing())
	}
	return snap.Commit, snap.Changed, err
}

// keepTree notes how the workspace is, for whoever opens the next boundary.
func (s *session) keepTree(ctx context.Context) error {
	s.served.mu.Lock()
	wanted := s.served.replace
	s.served.mu.Unlock()
	if !wanted {
		return nil
	}
	var err error
	s.served.tree, _, err = s.treeNow(ctx, "before the sandbox was made anew")
	if err != nil {
		return err
	}
	return s.noteReplace(ctx, s.served.tree)
}

// sameTree proves that the workspace is as it was when the last boundary ended.
func (s *session) sameTree(ctx context.Context) error {
	if s.served.expect == "" {
		return nil
	}
	_, changed, err := s.treeNow(ctx, "after the sandbox was made anew")
	switch {
	case err != nil:
		return err
	case changed: // nobody else has kept it meanwhile: the workspace is this run's
		return caisson.Errorf(caisson.CodeWorkspaceDirty, "the workspace changed while its sandbox was made anew").
			WithHint("See `caisson workspace log %s`: it was kept before and after. What was hidden and is not any more counts as changed. Then `caisson sandbox start %s` again.", s.run.ID, s.run.ID)
	}
	return nil
}

// replaced says what stands in whose place.
func (s *session) replaced() string {
	text := "it was made anew"
	if s.served.expect != "" {
		text += "; the workspace is the same, to the last byte that git would keep"
	}
	return text
}

// ready makes sure that an open box is what it is to be, before anybody works in it.
func (s *session) ready(ctx context.Context) error {
	var err error
	s.measured, err = s.measure(ctx)
	if err != nil {
		return err
	}
	return s.replacedWell(ctx)
}

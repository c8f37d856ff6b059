package host

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/airlock"
	"github.com/caisson-run/caisson/config"
	"github.com/caisson-run/caisson/control"
	"github.com/caisson-run/caisson/gate"
	"github.com/caisson-run/caisson/internal/lockfile"
	"github.com/caisson-run/caisson/login"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/tool"
	"github.com/caisson-run/caisson/workspace"
)

// session is one life of a run in this process: what is open while it is driven.
type session struct {
	host  *Host
	drive caisson.Drive
	run   caisson.Run

	ws      *caisson.Workspace
	config  config.Config
	repo    repoFiles
	policy  *gate.Policy
	network *network // nil: there is no way out
	box     caisson.Sandbox
	record  caisson.SandboxRecord
	tools   *tool.Registry
	door    *airlock.Door
	broker  *control.Broker // of its channel; nil: there is none
	people  *people         // the box, where this session has opened it
	mirror  *mirror         // of its task, in the channel; nil: it has no workspace
	looks   looks           // that are asked for from inside

	asked    caisson.SandboxSpec // of its box
	measured baseline            // of a run that is kept open

	served *served          // of a run that is kept open
	within *session         // in whose box it is; nil: it has its own
	rest   *caisson.RunMove // of a served run, once it is closed

	use        *lockfile.Lock // of the workspace
	parkAtOnce bool
	telling    sync.Mutex           // of told: requests from inside import too
	remotes    []workspace.Remote   // that can be pushed to, as they were when the channel was opened
	outer      []string             // environment of programs that verbs run outside
	programs   *sandbox.Programs    // for those inside; nil without a channel
	told       string               // of the last import, so that it is told once
	missing    string               // told of the last snapshot, likewise
	notice     func(airlock.Notice) // keeps the run's state true; called while it settles
}

// open prepares everything and leaves nothing open where it returns an error.
func (s *session) open(ctx context.Context) error {
	if s.within != nil {
		return s.openWithin(ctx)
	}
	if err := s.bind(ctx); err != nil {
		return err
	}
	if err := s.loadSettings(ctx); err != nil {
		return err
	}
	var err error
	if s.network, err = s.newNetwork(ctx); err != nil {
		return err
	}
	if err := s.openBox(ctx); err != nil {
		return errors.Join(err, s.network.close(ctx))
	}
	if err := s.openTools(ctx); err != nil {
		return errors.Join(err, s.closeBox(ctx), s.network.close(ctx))
	}
	s.door = s.airlock().Enter(s.drive, s.subject, s.binding(), s.box.ID())
	if s.network != nil {
		s.network.run(s.door)
	}
	if err := s.openChannel(ctx); err != nil {
		return errors.Join(err, s.closeBox(ctx), s.network.close(ctx))
	}
	return nil
}

// bind finds the run's workspace and compares it with what it is bound to.
func (s *session) bind(ctx context.Context) error {
	if s.run.Spec.Workspace == "" {
		return nil
	}
	ws, err := s.host.Ledger.Workspace(ctx, s.run.Spec.Workspace)
	if err != nil {
		return err
	}
	s.ws = &ws
	if ws.Removed {
		return caisson.Errorf(caisson.CodeWorkspaceBindingLost, "workspace %s was removed", ws.Name).WithHint("Bring it back, if it is in the trash still: `caisson workspace trash restore %s`.", ws.ID)
	}
	if err := s.host.unheld(ctx, ws.ID); err != nil {
		return err
	}
	if s.use, err = s.host.occupy(ctx, ws, s.run.ID); err != nil {
		return err
	}
	if err := s.host.workspaces.Check(ctx, ws); err != nil {
		return err
	}
	return s.host.workspaces.Unlock(ws) // earlier boxes of the run have been ended
}

// vacate lets others work in the workspace. What the box was lent is no longer used.
func (s *session) vacate() error {
	err := s.programs.Close()
	if s.use != nil {
		err = errors.Join(err, s.use.Close())
	}
	return err
}

func (s *session) binding() caisson.Digest {
	if s.ws == nil {
		return ""
	}
	return s.ws.Binding.Digest()
}

// loadSettings reads the settings and the policy that hold today: the user's as
// they are now, the repository's as they were at the base commit.
func (s *session) loadSettings(ctx context.Context) error {
	var repo repoFiles
	if s.ws != nil {
		var err error
		if repo, err = s.host.settingsOf(ctx, *s.ws); err != nil {
			return err
		}
	}
	if repo.digest() != s.run.Spec.RepoPolicy {
		return caisson.Errorf(caisson.CodeWorkspaceBindingLost, "the repository's settings at the base commit are not those that run %s was made under", s.run.ID)
	}
	s.repo = repo
	var err error
	if s.config, err = s.host.configWith(repo); err != nil {
		return err
	}
	if s.policy, err = s.host.policyWith(s.run.Spec.Preset, repo, s.config.Verbs); err != nil {
		return err
	}
	return s.host.Ledger.Append(ctx, s.drive, caisson.EventPolicyLoaded, map[string]any{
		"digest": s.policy.PolicyDigest(), "preset": s.policy.Preset(), "files": s.policy.Files(),
	})
}

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

func (s *session) openTools(ctx context.Context) error {
	calls, err := s.host.Ledger.Calls(ctx, s.run.ID)
	if err != nil {
		return err
	}
	seen := tool.NewSeen()
	seen.Restore(calls)
	s.tools, err = tool.NewRegistry(tool.Builtin(tool.Options{
		Sandbox: s.box, Workspace: s.workDir(), Seen: seen, SpillDir: s.spillDir(), SpillFloor: s.config.Floors.Disk, Hide: redact(s.config),
	})...)
	return err
}

func (s *session) spillDir() string { return filepath.Join(s.host.Paths.Spill(), string(s.run.ID)) }

// workDir is the directory that the agent works in, as it is called inside.
func (s *session) workDir() string {
	if s.ws == nil {
		return sandbox.PrivateWorkspace
	}
	return s.ws.Path
}

func (s *session) subject() caisson.Subject {
	return caisson.Subject{Run: s.run.ID, Workspace: s.workDir(), Isolation: s.box.Isolation()}
}

func (s *session) airlock() *airlock.Airlock { return airlock.New(s.airlockOptions()) }

func (s *session) airlockOptions() airlock.Options {
	c := s.config
	park := c.Review.ParkAfter
	if s.parkAtOnce {
		park = -1
	}
	return airlock.Options{
		Ledger: s.host.Ledger, Judge: s.policy, Redact: redact(s.config),
		ReviewExpiry: c.Review.Expire, ApprovalTTL: c.Review.UseFor, ParkAfter: park,
		OnUnknown: s.run.Spec.OnUnknown, Unattended: s.policy.Preset() == gate.Unattended,
		Observe: func(n airlock.Notice) {
			if s.notice != nil {
				s.notice(n)
			}
		},
	}
}

// close brings home what the agent committed last and ends the boundary.
func (s *session) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closing)
	defer cancel()
	if s.within != nil {
		return errors.Join(s.importWork(ctx), s.shareLogins(ctx, login.Out, loginsOut))
	}
	return errors.Join(s.closeChannel(ctx), s.importWork(ctx), s.shareLogins(ctx, login.Out, loginsOut), s.closeBox(ctx), s.network.close(ctx))
}

// fail records that a run could not be taken up. It is paused with the reason:
// when that is mended it can go on.
func (s *session) fail(given context.Context, why error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(given), closing)
	defer cancel()
	r, err := s.host.Ledger.Run(ctx, s.run.ID)
	if err != nil {
		return err
	}
	text := caisson.AsError(why).Error()
	rest := caisson.RunMove{To: caisson.RunPaused, Stop: caisson.StopPaused, Text: text}
	var named *caisson.CauseError
	if errors.As(context.Cause(given), &named) {
		rest.Cause = named.Cause
	}
	if cutShort(given, why) {
		rest.Text = named.Text // not where it was just then
	}
	switch r.State {
	case caisson.RunPending:
		if err := s.move(ctx, caisson.RunMove{To: caisson.RunRunning}); err != nil {
			return err
		}
	case caisson.RunRunning, caisson.RunWaiting:
	default:
		return s.note(ctx, text)
	}
	return s.move(ctx, rest)
}

// ofAgent is how the commits of an agent are taken: it amends and rebases its
// own branch, and what that leaves behind is pinned.
var ofAgent = workspace.ImportOptions{AllowRewrite: true}

// importWork brings the agent's commits into the repository. What is held
// back or diverged is told in the record and is no error of the run.
func (s *session) importWork(ctx context.Context) error {
	if s.ws == nil {
		return nil
	}
	imported, err := s.host.workspaces.Import(ctx, *s.ws, s.box, ofAgent)
	if ofInside(ctx, err) {
		return s.note(ctx, err.Error())
	}
	if err != nil {
		return err
	}
	told := ""
	if imported.Diverged != "" {
		told = fmt.Sprintf("the branch could not take the agent's commits (%s); they are kept on %s", imported.Why, imported.Diverged)
	}
	if imported.Unkept != "" {
		told = strings.TrimPrefix(told+"; not everything made inside could be kept: "+imported.Unkept, "; ")
	}
	s.telling.Lock()
	news := told != s.told
	s.told = told
	s.telling.Unlock()
	if news && told != "" {
		if err := s.note(ctx, told); err != nil {
			return err
		}
	}
	if imported.Moved || imported.Diverged != "" && news || len(imported.Pinned) > 0 {
		return s.host.Ledger.Append(ctx, s.drive, caisson.EventImported, imported)
	}
	return nil
}

// ofInside tells whether an error may be the work of what runs inside, or of its
// taking longer than a run may take to end. It is noted, and is no reason for
// the run not to end: an agent could keep its run from ending otherwise. What
// was committed is still in the shadow.
func ofInside(ctx context.Context, err error) bool {
	switch caisson.CodeOf(err) {
	case caisson.CodeImportHeld, caisson.CodeGitFailed, caisson.CodeDeadline, caisson.CodePathInvalid, caisson.CodeNotFound, caisson.CodeHostFull:
		return true
	default:
		return err != nil && errors.Is(context.Cause(ctx), context.DeadlineExceeded)
	}
}

func (s *session) note(ctx context.Context, text string) error {
	if hide := redact(s.config); hide != nil {
		text = hide(text)
	}
	return s.host.Ledger.Append(context.WithoutCancel(ctx), s.drive, caisson.EventNote, map[string]any{"text": text})
}

// turnEnd brings the turn's work home: commits always, a snapshot of the tree
// if the turn did more than read.
func (s *session) turnEnd(ctx context.Context, turn caisson.Turn, settled airlock.Settled) error {
	way := s.network
	if s.within != nil {
		way = s.within.network
	}
	if err := way.flush(ctx); err != nil {
		return err
	}
	if s.ws == nil {
		return nil
	}
	if err := s.importWork(ctx); err != nil {
		return err
	}
	began := func(c caisson.CallRecord) bool { return c.Attempts > 0 && c.Call.Effect != caisson.EffectRead }
	if !slices.ContainsFunc(settled.Records, began) {
		return nil
	}
	snapshot, err := s.host.workspaces.Snapshot(ctx, *s.ws, s.box, s.run.ID, turn.N)
	if ofInside(ctx, err) {
		return s.note(ctx, fmt.Sprintf("the tree after turn %d was not kept: %v", turn.N, err))
	}
	if err != nil {
		return err
	}
	missing := snapshot.Missing()
	if missing != "" && missing != s.missing {
		if err := s.note(ctx, fmt.Sprintf("not all of the tree after turn %d was kept: %s", turn.N, missing)); err != nil {
			return err
		}
	}
	s.missing = missing
	return s.host.Ledger.Append(ctx, s.drive, caisson.EventSnapshot, map[string]any{"turn": turn.N, "commit": snapshot.Commit})
}

// pausable returns a context that ends, with its cause, when a pause is asked for.
func pausable(ctx context.Context, pause <-chan caisson.Cause) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	ended := make(chan struct{})
	stop := func(cause caisson.Cause) { cancel(&caisson.CauseError{Cause: cause, Text: "paused"}) }
	select {
	case cause := <-pause: // it was asked for before
		stop(cause)
	default:
	}
	go func() {
		defer close(ended)
		select {
		case cause := <-pause:
			stop(cause)
		case <-done:
		}
	}()
	return ctx, func() {
		close(done)
		<-ended
		cancel(nil)
	}
}

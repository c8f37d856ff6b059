package host

import (
	"context"
	"errors"
	"path/filepath"
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

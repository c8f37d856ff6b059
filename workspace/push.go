package workspace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/caisson-run/caisson"
)

// PushOptions say what goes where.
type PushOptions struct {
	Address string // of a remote that the repository has, as [Workspaces.Remotes] tells it
	Commit  string // that the branch must be at
}

// Pushed is what a push did, or would do.
type Pushed struct {
	Remote  string   `json:"remote"`
	URL     string   `json:"url"` // without what could be a secret in it
	Branch  string   `json:"branch"`
	Commit  string   `json:"commit"`
	Commits []Commit `json:"-"` // since the base
}

// Remote is a remote of a repository that can be pushed to.
type Remote struct {
	Name    string
	Address string // without what could be a secret in it
}

// Remotes returns the remotes of the workspace's repository that Push can send
// to, the one called origin first.
func (w *Workspaces) Remotes(ctx context.Context, ws caisson.Workspace) ([]Remote, error) {
	repo, err := w.repository(ctx, ws.Binding.CommonDir, true)
	if err != nil {
		return nil, err
	}
	var out []Remote
	for _, r := range remotes(repo) {
		if speakable(r.address) == nil {
			out = append(out, r.Remote)
		}
	}
	return out, nil
}

// remote is one with the address as git has it.
type remote struct {
	Remote
	address string
}

func remotes(repo *repository) []remote {
	addresses := map[string]string{}
	for _, kind := range []string{".url", ".pushurl"} { // where there are both, the second is pushed to
		for _, s := range repo.settings {
			name, is := strings.CutSuffix(strings.TrimPrefix(s.key, "remote."), kind)
			if is && strings.HasPrefix(s.key, "remote.") && s.value != "" {
				addresses[name] = s.value
			}
		}
	}
	var out []remote
	for _, name := range slices.Sorted(maps.Keys(addresses)) {
		r := remote{Remote{name, withoutSecret(addresses[name])}, addresses[name]}
		if name == "origin" {
			out = slices.Insert(out, 0, r)
			continue
		}
		out = append(out, r)
	}
	return out
}

// lookAfter bounds how long the remote is asked what became of a push.
const lookAfter = 30 * time.Second

// Push sends the workspace's branch to a remote, to a branch of the same name
// that must not hold anything else: nothing is forced, no tag goes along, and
// no hook runs here. Only https and ssh are spoken (http with this machine),
// with the credentials and the ssh command of the person's own configuration;
// that of the repository names the address and nothing more. CodeNotFound where
// no remote has that address now, CodeStateInvalid where the branch is at
// another commit, CodeOutcomeUnknown where the push was begun and the remote
// does not say what became of it. Files that LFS keeps beside the repository
// are not sent.
func (w *Workspaces) Push(ctx context.Context, ws caisson.Workspace, opts PushOptions) (Pushed, error) {
	p, err := w.pushing(ctx, ws, opts)
	if err != nil {
		return Pushed{}, err
	}
	if at, err := p.tip(ctx, w); err != nil || at == p.Commit { // nothing was begun
		return p.Pushed, err
	}
	_, err = w.git.run(ctx, p.command("push", "--quiet", "--no-verify", "--no-signed", "--no-follow-tags", "--recurse-submodules=no",
		"--", p.address, p.Commit+":refs/heads/"+ws.Branch))
	if err == nil {
		return p.Pushed, nil
	}
	looking, done := context.WithTimeout(context.WithoutCancel(ctx), lookAfter)
	defer done()
	switch at, unseen := p.tip(looking, w); {
	case unseen != nil:
		return p.Pushed, caisson.Errorf(caisson.CodeOutcomeUnknown, "%w", p.failed("push "+ws.Branch+" to "+p.Remote, err))
	case at == p.Commit:
		return p.Pushed, nil
	}
	return p.Pushed, p.failed("push "+ws.Branch+" to "+p.Remote, err)
}

// PlanPush says what Push would do, and changes nothing.
func (w *Workspaces) PlanPush(ctx context.Context, ws caisson.Workspace, opts PushOptions) (Pushed, error) {
	p, err := w.pushing(ctx, ws, opts)
	if err != nil {
		return Pushed{}, err
	}
	p.Commits, err = w.Log(ctx, ws, 0)
	return p.Pushed, err
}

// IsPushed tells whether the remote's branch is at the commit.
func (w *Workspaces) IsPushed(ctx context.Context, ws caisson.Workspace, opts PushOptions) (bool, error) {
	p, err := w.pushing(ctx, ws, opts)
	if err != nil {
		return false, err
	}
	at, err := p.tip(ctx, w)
	return err == nil && at == p.Commit, err
}

// pushing is a push that was looked at.
type pushing struct {
	Pushed
	repo    *repository
	address string
}

func (w *Workspaces) pushing(ctx context.Context, ws caisson.Workspace, opts PushOptions) (*pushing, error) {
	if err := w.checkRepository(ctx, ws); err != nil {
		return nil, err
	}
	repo, err := w.repository(ctx, ws.Binding.CommonDir, true)
	if err != nil {
		return nil, err
	}
	p := &pushing{repo: repo, Pushed: Pushed{Branch: ws.Branch, Commit: opts.Commit, URL: opts.Address}}
	for _, r := range remotes(repo) {
		if r.Address == opts.Address && p.address == "" && speakable(r.address) == nil {
			p.Remote, p.address = r.Name, r.address
		}
	}
	if p.address == "" {
		return nil, caisson.Errorf(caisson.CodeNotFound, "no remote of the repository has the address %s now", printable(opts.Address))
	}
	tip, err := w.branchTip(ctx, repo, ws.Branch)
	switch {
	case err != nil:
		return nil, failed("look at branch "+ws.Branch, err)
	case tip != opts.Commit:
		return nil, caisson.Errorf(caisson.CodeStateInvalid, "branch %s is at %s, not at %s", ws.Branch, cmp.Or(tip, "nothing"), printable(opts.Commit)).
			WithHint("Name the commit that HEAD is at, and ask again.")
	}
	return p, nil
}

// scpLike is an address of ssh in git's short form.
var scpLike = regexp.MustCompile(`^([A-Za-z0-9._-]+@)?[A-Za-z0-9][A-Za-z0-9.-]*:[^:]`)

// speakable refuses addresses that would run a program of the repository's
// choice, or another repository's hooks on this machine.
func speakable(address string) error {
	u, err := url.Parse(address)
	switch {
	case err == nil && u.Host != "" && !strings.HasPrefix(u.Host, "-") && slices.Contains([]string{"https", "ssh"}, u.Scheme), scpLike.MatchString(address) && !strings.Contains(address, "://"):
		return nil
	case err == nil && u.Scheme == "http" && onThisMachine(u.Hostname()):
		return nil
	}
	return errors.New("only addresses of https and ssh are pushed to")
}

func onThisMachine(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// withoutSecret takes user and password, and what follows a question mark, out
// of an address. Of one that cannot be read nothing is told.
func withoutSecret(address string) string {
	if scpLike.MatchString(address) && !strings.Contains(address, "://") {
		return address
	}
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return ""
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}

// command is git with what the person's own configuration says of how a remote
// is reached.
func (p *pushing) command(args ...string) invocation {
	inv := p.repo.in(args...)
	inv.person = true
	for _, s := range p.repo.settings {
		if s.own && (s.key == "core.sshcommand" || s.key == "credential.helper" || strings.HasPrefix(s.key, "credential.") && strings.HasSuffix(s.key, ".helper")) {
			inv.config = append(inv.config, s.key+"="+s.value)
		}
	}
	allowed := "https:ssh"
	if strings.HasPrefix(p.address, "http://") {
		allowed += ":http"
	}
	inv.env = append(inv.env, "GIT_ALLOW_PROTOCOL="+allowed)
	return inv
}

func (p *pushing) tip(ctx context.Context, w *Workspaces) (string, error) {
	ref := "refs/heads/" + p.Branch
	out, err := w.git.line(ctx, p.command("ls-remote", "--quiet", "--", p.address, ref))
	if err != nil {
		return "", p.failed("look at "+p.Remote, err)
	}
	for line := range strings.Lines(out) {
		if id, name, is := strings.Cut(strings.TrimSpace(line), "\t"); is && name == ref {
			return id, nil
		}
	}
	return "", nil
}

// failed is what git said, without the secrets of the address.
func (p *pushing) failed(doing string, err error) error {
	var exit *exitError
	if errors.As(err, &exit) {
		hide := []string{p.address, p.URL}
		if u, bad := url.Parse(p.address); bad == nil && u.User != nil {
			if password, has := u.User.Password(); has && password != "" {
				hide = append(hide, password, "…")
			}
		}
		exit.complaint = strings.NewReplacer(hide...).Replace(exit.complaint)
	}
	return failed(doing, err)
}

// Text tells people of a push.
func (p Pushed) Text() string {
	return fmt.Sprintf("branch %s at %.12s to %s (%s)", p.Branch, p.Commit, p.Remote, p.URL)
}

package workspace

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/caisson-run/caisson"
)

// PushOptions say what goes where.
type PushOptions struct {
	Remote string // one that the repository has; default: origin
	Commit string // that the branch must be at
}

// Pushed is what a push did, or would do.
type Pushed struct {
	Remote  string   `json:"remote"`
	URL     string   `json:"url"` // without what could be a secret in it
	Branch  string   `json:"branch"`
	Commit  string   `json:"commit"`
	Commits []Commit `json:"-"` // since the base
}

// Push sends the workspace's branch to a remote, to a branch of the same name
// that must not hold anything else: nothing is forced, no tag goes along, and
// no hook runs here. Only https and ssh are spoken (http with this machine),
// with the credentials and the ssh command of the person's own configuration;
// that of the repository names the address and nothing more. CodeNotFound where
// there is no such remote, CodeStateInvalid where the branch is at another
// commit. Files that LFS keeps beside the repository are not sent.
func (w *Workspaces) Push(ctx context.Context, ws caisson.Workspace, opts PushOptions) (Pushed, error) {
	p, err := w.pushing(ctx, ws, opts)
	if err != nil {
		return Pushed{}, err
	}
	if at, err := p.tip(ctx, w); err == nil && at == p.Commit {
		return p.Pushed, nil
	}
	_, err = w.git.run(ctx, p.command("push", "--quiet", "--no-verify", "--no-signed", "--no-follow-tags", "--recurse-submodules=no",
		"--", p.address, p.Commit+":refs/heads/"+ws.Branch))
	if err != nil {
		return p.Pushed, failed("push "+ws.Branch+" to "+p.Remote, err)
	}
	return p.Pushed, nil
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
	p := &pushing{repo: repo, Pushed: Pushed{Remote: cmp.Or(opts.Remote, "origin"), Branch: ws.Branch, Commit: opts.Commit}}
	if p.address = last(repo.settings, "remote."+p.Remote+".pushurl"); p.address == "" {
		p.address = last(repo.settings, "remote."+p.Remote+".url")
	}
	if p.address == "" {
		return nil, caisson.Errorf(caisson.CodeNotFound, "the repository has no remote %q", printable(p.Remote))
	}
	if err := speakable(p.address); err != nil {
		return nil, err
	}
	p.URL = withoutSecret(p.address)
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
	return caisson.Errorf(caisson.CodeUnsupported, "%s is no address that is pushed to: only those of https and ssh are", printable(withoutSecret(address))).
		WithHint("Push it yourself, or change the remote's address.")
}

func onThisMachine(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// withoutSecret takes user and password, and what follows a question mark, out
// of an address.
func withoutSecret(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return address
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
		return "", failed("look at "+p.Remote, err)
	}
	for line := range strings.Lines(out) {
		if id, name, is := strings.Cut(strings.TrimSpace(line), "\t"); is && name == ref {
			return id, nil
		}
	}
	return "", nil
}

// Text tells people of a push.
func (p Pushed) Text() string {
	return fmt.Sprintf("branch %s at %.12s to %s (%s)", p.Branch, p.Commit, p.Remote, p.URL)
}

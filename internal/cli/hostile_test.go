package cli_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/cli"
	"github.com/spf13/cobra"
)

// hostileWorld is a person with a repository in which traps are set. No box sees
// where their marks are left.
type hostileWorld struct {
	t     *testing.T
	home  string // of all directories
	repo  string
	marks string
	path  string // PATH without traps
	env   []string
}

func newHostileWorld(t *testing.T) *hostileWorld {
	t.Helper()
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	p := &hostileWorld{t: t, home: home, repo: filepath.Join(home, "repo"), marks: filepath.Join(home, "marks"), path: os.Getenv("PATH")}
	t.Cleanup(func() { endDriven(t, filepath.Join(home, "state/caisson/ledger.db")) })
	for _, dir := range []string{"home", "run", "marks", "programs", "bystander"} {
		p.must(os.MkdirAll(filepath.Join(home, dir), 0o700))
	}
	p.env = []string{
		"GIT_CONFIG_NOSYSTEM=1", // what the machine says of filters and helpers
		"LANG=C.UTF-8", "CAISSON_GUEST=" + os.Getenv("CAISSON_GUEST"), testsPID + "=" + os.Getenv(testsPID),
		"HOME=" + home + "/home", "XDG_CONFIG_HOME=" + home + "/config", "XDG_STATE_HOME=" + home + "/state", "XDG_RUNTIME_DIR=" + home + "/run",
	}
	for name, text := range map[string]string{
		"home/.gitconfig": gitConfig, "home/.bashrc": "# mine\n", "bystander/private": "private\n",
		"config/caisson/policy.yaml": "rules: [{name: all, verdict: allow}]\n",
		"repo/a.txt":                 "one\ntwo\nthree\nfour\nfive\nsix\n", "repo/c.bin": "bin\n", "repo/d.sec": "sec\n", "repo/e.atf": "atf\n",
		"repo/agent/attributes": "*.atf filter=atf\n",
	} {
		p.write(filepath.Join(home, name), text)
	}
	p.git(filepath.Join(home, "bystander"), "init -q; git add -A; git commit -qm theirs")
	return p
}

func (p *hostileWorld) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *hostileWorld) mark(t trap) string { return filepath.Join(p.marks, t.name) }

// program is a program that leaves the mark of a trap.
func (p *hostileWorld) program(t trap) string { return filepath.Join(p.home, "programs", t.name) }

// write writes a file: a program where it begins as one, a link where it says so.
func (p *hostileWorld) write(path, text string) {
	p.t.Helper()
	p.must(os.MkdirAll(filepath.Dir(path), 0o700))
	if to, is := strings.CutPrefix(text, "->"); is {
		_ = os.Remove(path) // where git has made one
		p.must(os.Symlink(to, path))
		return
	}
	mode := fs.FileMode(0o600)
	if strings.HasPrefix(text, "#!") {
		mode = 0o700
	}
	p.must(os.WriteFile(path, []byte(text), mode))
}

// git runs the person's own git: "git" and a shell line.
func (p *hostileWorld) git(dir, line string, env ...string) {
	p.t.Helper()
	if out, err := p.sh(dir, "git "+line, env...); err != nil {
		p.t.Fatalf("git %s: %v\n%s", line, err, out)
	}
}

func (p *hostileWorld) sh(dir, line string, env ...string) (string, error) {
	cmd := exec.CommandContext(p.t.Context(), "/bin/sh", "-c", line)
	cmd.Dir, cmd.Env = dir, append(append([]string{"PATH=" + p.path}, p.env...), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// set makes the repository and sets traps in it. What is committed are the
// attributes, and for the agent to use inside all that the traps consist of.
func (p *hostileWorld) set(traps []trap) []string {
	p.t.Helper()
	var config, attributes strings.Builder
	var env []string
	later := map[string]string{}
	for _, t := range traps {
		p.write(p.program(t), "#!/bin/sh\n/usr/bin/touch '"+p.mark(t)+"'\nexit 1\n")
		config.WriteString(t.fill(t.config, p) + "\n")
		attributes.WriteString(t.attributes + "\n")
		for _, kv := range t.env {
			env = append(env, t.fill(kv, p))
		}
		for name, text := range t.files {
			text = t.fill(text, p)
			if strings.HasPrefix(name, ".git/") {
				later[name] = text
				continue
			}
			p.write(filepath.Join(p.repo, name), text)
		}
		for name, text := range later {
			if hook, is := strings.CutPrefix(name, ".git/hooks/"); is {
				p.write(filepath.Join(p.repo, "agent/hooks", hook), text)
			}
		}
	}
	p.write(filepath.Join(p.repo, ".gitattributes"), attributes.String())
	p.write(filepath.Join(p.repo, "agent/config"), config.String())
	p.git(p.repo, "init -q; git add -A; git commit -qm first; sed -i 's/^one$/ONE/' a.txt; git commit -qam second; git branch m1; git branch m2; git branch m3")
	now, err := os.ReadFile(filepath.Join(p.repo, ".git/config"))
	p.must(err)
	p.write(filepath.Join(p.repo, ".git/config"), string(now)+config.String())
	for name, text := range later {
		p.write(filepath.Join(p.repo, name), text)
	}
	return env
}

// sprung lists the traps that ran.
func (p *hostileWorld) sprung() []string {
	p.t.Helper()
	entries, err := os.ReadDir(p.marks)
	p.must(err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// bystanders is the digest of all that is the person's and not the repository's.
func (p *hostileWorld) bystanders() string {
	p.t.Helper()
	sum := sha256.New()
	for _, dir := range []string{"home", "bystander"} {
		p.must(filepath.WalkDir(filepath.Join(p.home, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			fmt.Fprintf(sum, "%s %s\n", path, d.Type())
			if d.Type().IsRegular() {
				raw, err := os.ReadFile(path)
				fmt.Fprintf(sum, "%x\n", raw)
				return err
			}
			return nil
		}))
	}
	return fmt.Sprintf("%x", sum.Sum(nil))
}

// TestTrapsWork shows that the traps are real: the person's own git, in a
// repository with one of them, falls into it.
func TestTrapsWork(t *testing.T) {
	t.Parallel()
	proven := 0
	for _, it := range allTraps() {
		if (it.prove == "") == (it.why == "") {
			t.Errorf("%s: either it is proved, or why not is said", it.name)
		}
		if it.prove == "" {
			continue
		}
		proven++
		t.Run(it.name, func(t *testing.T) {
			t.Parallel()
			p := newHostileWorld(t)
			env := p.set([]trap{it})
			out, _ := p.sh(p.repo, it.fill(it.prove, p), append(env, "GIT_TERMINAL_PROMPT=0")...)
			if got := p.sprung(); !slices.Contains(got, it.name) {
				t.Errorf("git did not fall into it, so that it shows nothing: %q\n%s", got, out)
			}
		})
	}
	if all := len(allTraps()); proven*2 < all {
		t.Errorf("only %d of %d traps are proved", proven, all)
	}
}

// agentLines are what the agent does: work; then it writes all traps into what
// it can write, so that the next look at its tree is one at a hostile one.
var agentLines = []string{
	`set -e
echo end >>a.txt; echo end >>c.bin; git add -A; git commit -qm inside
echo more >>d.sec; echo more >>e.atf; git add -A; git commit -qm again; git tag v1; git branch side`,
	`G=$(git rev-parse --absolute-git-dir)
echo ignored >>"$G/info/exclude"; mkdir ignored; git init -q ignored/nested
(cd ignored/nested; echo x >x.txt; git add -A; git -c user.name=a -c user.email=b commit -qm nested; cat ../../agent/config >>.git/config; cp ../../agent/hooks/* .git/hooks/)
cat agent/config >>"$G/config"; printf '[commit]\n\tgpgSign = false\n' >>"$G/config"
cp agent/hooks/* "$G/hooks/"
echo '* filter=evil diff=evil merge=evil' >"$G/info/attributes"
echo /home >>"$G/objects/info/alternates"
mkdir -p sub; printf '*.txt filter=evil\n*.sec filter=lfs\n' >sub/.gitattributes; echo x >sub/x.txt
printf '#!/bin/sh\ntouch /tmp/x\n' >git; chmod +x git
echo untracked >u.txt`,
}

// Origin: audits of sandboxes that mounted a repository's git directory.
func TestCase_W05(t *testing.T) {
	worlds := map[string][]trap{}
	for _, it := range allTraps() {
		worlds[it.world] = append(worlds[it.world], it)
	}
	for name, traps := range worlds {
		modes := []caisson.WorkspaceMode{caisson.WorkspaceWorktree}
		whole := name == ""
		if whole {
			modes = append(modes, caisson.WorkspaceClone)
		}
		for _, mode := range modes {
			t.Run(cmp.Or(name, "all at once")+", "+string(mode), func(t *testing.T) {
				t.Parallel()
				p := newHostileWorld(t)
				p.tryEverything(p.set(traps), mode, whole)
			})
		}
	}
}

// tryEverything runs every command in the hostile world. With whole, the run has
// to come to its end; else it may be refused, but nothing may run.
func (p *hostileWorld) tryEverything(env []string, mode caisson.WorkspaceMode, whole bool) {
	p.t.Helper()
	before := p.bystanders()
	harmless := func(after string) {
		p.t.Helper()
		if got := p.sprung(); len(got) > 0 {
			p.t.Fatalf("after caisson %s: on the host ran %q", after, got)
		}
		if p.bystanders() != before {
			p.t.Fatalf("after caisson %s: something of the person's that is not the repository's was changed", after)
		}
	}
	ref := "none"
	for _, line := range agentLines {
		args := []string{"run", "--base", "HEAD~1", "--branch", "agent", "--workspace-mode", string(mode), "--", "/bin/sh", "-c", line}
		if ref != "none" {
			args = []string{"sandbox", "exec", ref, "--", "/bin/sh", "-c", line}
		}
		status, said := p.caisson(env, args...)
		harmless(strings.Join(args[:3], " "))
		if status != 0 && whole {
			p.t.Fatalf("caisson %s: status %d\n%s", args[0], status, said)
		}
		if _, after, found := strings.Cut(said, "run r"); found && ref == "none" {
			ref = "r" + strings.Fields(after)[0]
		}
	}
	if whole && ref == "none" {
		p.t.Fatal("there was no run")
	}
	for _, k := range commandsToTry(p.t) {
		usage := len(k.args) > 0
		for _, args := range k.args {
			all := strings.Fields(k.command)
			for _, arg := range args {
				all = append(all, strings.ReplaceAll(arg, "REF", ref))
			}
			status, said := p.caisson(env, all...)
			harmless(strings.Join(all, " "))
			usage = usage && status == caisson.ExitUsage
			if k.command == "workspace merge" && whole && status != 0 {
				p.t.Errorf("caisson %s: status %d\n%s", strings.Join(all, " "), status, said)
			}
		}
		if usage {
			p.t.Errorf("caisson %s was only told how it is used: give it arguments in the list", k.command)
		}
	}
	if whole {
		p.standIn(env, ref, harmless)
	}
}

// standIn has the person stand in what an agent wrote.
func (p *hostileWorld) standIn(env []string, ref string, harmless func(after string)) {
	p.t.Helper()
	stood := 0
	for _, pattern := range []string{"workspaces/*/*", "workspaces/*/*/ignored/nested", "shadows/*/git", "shadows/*/home"} {
		dirs, _ := filepath.Glob(filepath.Join(p.home, "state/caisson", pattern))
		for _, dir := range dirs {
			stood++
			for _, line := range []string{"workspace ls", "workspace log " + ref, "doctor", "run -- true"} {
				p.caissonIn(dir, env, strings.Fields(line)...)
				harmless(line + " in " + dir)
			}
		}
	}
	if stood == 0 && !slices.ContainsFunc(commandsToTry(p.t), func(k known) bool { return k.command == "workspace rm" }) {
		p.t.Error("there is no such place")
	}
}

// commandsToTry returns the commands to be tried: those of the list that there are, and
// the rest, which is tried without arguments.
func commandsToTry(t *testing.T) []known {
	t.Helper()
	there := map[string]bool{}
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
		path := strings.TrimPrefix(cmd.CommandPath(), "caisson ")
		if !cmd.HasSubCommands() && cmd.Runnable() && !cmd.Hidden && !strings.HasPrefix(path, "completion") && path != "help" {
			there[path] = true
		}
	}
	walk(cli.Root())
	var list []known
	for _, k := range knownCommands {
		if !there[k.command] {
			t.Errorf("there is no caisson %s, which is in the list", k.command)
		}
		list = append(list, k)
		delete(there, k.command)
	}
	for path := range there {
		if strings.HasPrefix(path, "workspace ") {
			t.Errorf("caisson %s is not in the list of commands that are tried on hostile repositories", path)
		}
		list = append(list, known{command: path})
	}
	return list
}

func (p *hostileWorld) caisson(env []string, args ...string) (int, string) {
	p.t.Helper()
	return p.caissonIn(p.repo, env, args...)
}

func (p *hostileWorld) caissonIn(dir string, env []string, args ...string) (int, string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "caisson", args...)
	var out bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, append(append([]string{"PATH=" + p.path}, p.env...), env...), &out, &out
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		p.t.Fatalf("caisson %s: %v\n%s", strings.Join(args, " "), errors.Join(err, ctx.Err()), out.String())
	}
	return cmd.ProcessState.ExitCode(), out.String()
}

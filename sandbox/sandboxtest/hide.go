package sandboxtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-run/caisson"
)

const hiddenText = "caisson-suite-hidden-4713"

// hiding opens a sandbox that hides, or ends the case where the engine says that
// it cannot.
func hiding(t *testing.T, h Harness, patterns []string, with ...func(*caisson.SandboxSpec)) (*opened, bool) {
	t.Helper()
	spec := caisson.SandboxSpec{Require: h.Require, ID: caisson.NewSandboxID(), Workspace: tempDir(t), Hide: patterns}
	sb, err := h.Engine(t).Open(t.Context(), spec)
	if caisson.CodeOf(err) == caisson.CodeUnsupported {
		h.table.note(t, "refused: it hides no files")
		return nil, false
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := sb.Close(); err != nil {
		t.Fatal(err)
	}
	return open(t, h, append([]func(*caisson.SandboxSpec){func(s *caisson.SandboxSpec) { s.Hide = patterns }}, with...)...), true
}

// unseen fails where anything inside gives the hidden text.
func (o *opened) unseen(names ...string) {
	o.t.Helper()
	r := o.do(caisson.Command{Line: "find . -exec cat {} + 2>/dev/null; grep -r . . 2>/dev/null; cp -r . /tmp/copy 2>/dev/null; grep -r " + hiddenText + " /tmp/copy"})
	if strings.Contains(r.out, hiddenText) {
		o.t.Errorf("a command sees it:\n%.300s", r.out)
	}
	found, err := o.Files().Grep(o.t.Context(), caisson.GrepQuery{Dir: ".", Pattern: hiddenText})
	if err != nil || found.Total != 0 {
		o.t.Errorf("grep finds it in %+v (%v)", found, err)
	}
	for _, name := range names {
		if content, err := o.Files().Read(o.t.Context(), name, 0, 0); err == nil && len(content.Data) > 0 {
			o.t.Errorf("%s can be read: %q", name, content.Data)
		}
		if _, err := o.Files().Write(o.t.Context(), name, []byte("x"), caisson.WriteOptions{}); err == nil {
			o.t.Errorf("%s can be written", name)
		}
		for _, line := range []string{"echo x > ", "rm -rf ", "chmod 777 ", "ln "} {
			if line == "ln " {
				o.do(caisson.Command{Argv: []string{"ln", name, "hard"}})
				o.do(caisson.Command{Argv: []string{"mv", name, "moved"}})
				continue
			}
			o.fails(line + "'" + name + "'")
		}
	}
}

func filesAreHidden(t *testing.T, h Harness) {
	outside := filepath.Join(tempDir(t), "outside")
	write(t, outside, hiddenText, 0o644)
	put := func(ws, name string) {
		makeDir(t, filepath.Dir(filepath.Join(ws, name)))
		write(t, filepath.Join(ws, name), hiddenText, 0o644)
	}
	names := []string{".env", "sub/deep/.env", "secrets/a", "key.pem", "a, b:c\nd/.env"}
	o, ok := hiding(t, h, []string{"**/.env", "secrets", "*.pem", "none/**/*.key"}, func(s *caisson.SandboxSpec) {
		for _, name := range names {
			put(s.Workspace, name)
		}
		put(s.Workspace, "stored/real")
		for link, to := range map[string]string{"linked/.env": "../stored/real", "out/.env": outside, "gone/.env": "nowhere", "self/.env": ".env"} {
			makeDir(t, filepath.Dir(filepath.Join(s.Workspace, link)))
			if err := os.Symlink(to, filepath.Join(s.Workspace, link)); err != nil {
				t.Fatal(err)
			}
		}
		write(t, filepath.Join(s.Workspace, "shown"), "shown", 0o644)
	})
	if !ok {
		return
	}
	before := list(t, o.ws)
	if got := o.sh("cat shown"); got != "shown" {
		t.Errorf("got %q", got)
	}
	o.unseen(append(names, "stored/real")...)
	o.fails("cat linked/.env")
	if diff := cmp.Diff(before, list(t, o.ws)); diff != "" {
		t.Errorf("the host was changed:\n%s", diff)
	}
	for _, name := range append(names, "stored/real") {
		if raw, err := os.ReadFile(filepath.Join(o.ws, name)); err != nil || string(raw) != hiddenText {
			t.Errorf("%s on the host is %q, %v", name, raw, err)
		}
	}
}

// Files that the person adds, replaces, moves in and renames meanwhile.
func filesAddedLaterAreHidden(t *testing.T, h Harness) {
	o, ok := hiding(t, h, []string{"**/.env", "**/secrets"}, func(s *caisson.SandboxSpec) {
		write(t, filepath.Join(s.Workspace, ".env"), hiddenText, 0o644)
	})
	if !ok {
		return
	}
	at := func(name string) string { return filepath.Join(o.ws, name) }
	o.sh("mkdir made && echo own > made/file")
	for name, change := range map[string]func(){
		"added":    func() { write(t, at("made/.env"), hiddenText, 0o644) },
		"replaced": func() { write(t, at("new"), hiddenText, 0o644); rename(t, at("new"), at(".env")) },
		"deep": func() {
			makeDir(t, at("x/y/z/secrets"))
			write(t, at("x/y/z/secrets/key"), hiddenText, 0o644)
		},
		"moved in": func() {
			dir := filepath.Join(filepath.Dir(o.ws), filepath.Base(o.ws)+"-aside")
			makeDir(t, dir)
			write(t, filepath.Join(dir, ".env"), hiddenText, 0o644)
			rename(t, dir, at("aside"))
		},
		"linked": func() {
			write(t, at("plain"), hiddenText, 0o644)
			makeDir(t, at("l"))
			if err := os.Symlink("../plain", at("l/.env")); err != nil {
				t.Fatal(err)
			}
		},
	} {
		change()
		t.Run(name, func(t *testing.T) { o.in(t).unseen() })
	}
	p, err := o.Hold(t.Context(), caisson.Command{Line: "cat late/.env"})
	if err != nil {
		t.Fatal(err)
	}
	makeDir(t, at("late"))
	write(t, at("late/.env"), hiddenText, 0o644)
	if err := p.Release(); err != nil {
		t.Fatal(err)
	}
	if exit, err := p.Wait(t.Context()); err != nil || exit.Code == 0 {
		t.Errorf("what came while a command was held can be read: exit %d, %v", exit.Code, err)
	}
}

// A hidden file that is committed, and one that is not: git inside must work,
// and must never take either for empty or deleted.
func hiddenFilesStayCommitted(t *testing.T, h Harness) {
	lend := repository(t)
	o, ok := hiding(t, h, []string{"**/.env", "**/*.pem", "**/*.key"}, lend, func(s *caisson.SandboxSpec) {
		write(t, filepath.Join(s.Workspace, ".env"), hiddenText, 0o644)
		write(t, filepath.Join(s.Workspace, "a [b] *.pem"), hiddenText, 0o644)
		host(t, s.Workspace, "git", "add", ":(literal)a [b] *.pem")
		host(t, s.Workspace, "git", "-c", "user.name=T", "-c", "user.email=t@example.org", "commit", "-qm", "hidden")
		host(t, s.GitDir, "git", "fetch", "-qu", filepath.Join(filepath.Dir(s.Workspace), "repo"), "work:work")
		host(t, s.Workspace, "git", "--git-dir="+s.GitDir, "--work-tree="+s.Workspace, "reset", "-q")
	})
	if !ok {
		return
	}
	o.need("git")
	if got := o.sh(identity + `git status --porcelain`); got != "" {
		t.Errorf("git inside sees %q", got)
	}
	o.sh(identity + `set -e; echo x > x; git add -A; git commit -qam x; echo y > y; git add y; git stash -q; git stash pop -q
git checkout -q .; git reset -q --hard; git checkout -q -b other HEAD~1; git checkout -q work`)
	if got := o.sh("git show --name-status --format= HEAD; git status --porcelain"); got != "A\tx" {
		t.Errorf("git inside committed and sees %q", got)
	}
	write(t, filepath.Join(o.ws, "late.key"), hiddenText, 0o644)
	if got := o.sh(identity + "git add -A; git status --porcelain"); got != "" {
		t.Errorf("with a file that came later, git inside sees %q", got)
	}
}

func rename(t testing.TB, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

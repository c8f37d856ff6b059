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
	if h.MasksAtOpen {
		o.refusesLate(at)
		return
	}
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

// refusesLate is for an engine that can hide nothing in an open sandbox: while
// there is something more to hide, nothing runs, and no file is looked at.
func (o *opened) refusesLate(at func(string) string) {
	o.sh("mkdir made && echo own > made/file")
	for name, change := range map[string]func() (undo func()){
		"made/.env": func() func() {
			write(o.t, at("made/.env"), hiddenText, 0o644)
			return func() { remove(o.t, at("made/.env")) }
		},
		"x/y/secrets": func() func() {
			makeDir(o.t, at("x/y/secrets"))
			write(o.t, at("x/y/secrets/key"), hiddenText, 0o644)
			return func() { remove(o.t, at("x")) }
		},
		"plain": func() func() { // a link that matches leads to it
			write(o.t, at("plain"), hiddenText, 0o644)
			makeDir(o.t, at("l"))
			if err := os.Symlink("../plain", at("l/.env")); err != nil {
				o.t.Fatal(err)
			}
			return func() { remove(o.t, at("l")); remove(o.t, at("plain")) }
		},
	} {
		undo := change()
		_, err := o.Hold(o.t.Context(), caisson.Command{Argv: []string{"true"}})
		if caisson.CodeOf(err) != caisson.CodeIsolationUnavailable || !strings.Contains(err.Error(), name) || !strings.Contains(caisson.AsError(err).Hint, "anew") {
			o.t.Errorf("with %s there, a command: %v; want it refused by that name", name, err)
		}
		if _, err := o.Files().Read(o.t.Context(), "made/file", 0, 0); caisson.CodeOf(err) != caisson.CodeIsolationUnavailable {
			o.t.Errorf("with %s there, a file: %v", name, err)
		}
		undo()
		if got := o.sh("cat made/file"); got != "own" {
			o.t.Errorf("with %s gone again: %q", name, got)
		}
	}
	held, err := o.Hold(o.t.Context(), caisson.Command{Line: "cat late/.env"})
	if err != nil {
		o.t.Fatal(err)
	}
	makeDir(o.t, at("late"))
	write(o.t, at("late/.env"), hiddenText, 0o644)
	if err := held.Release(); caisson.CodeOf(err) != caisson.CodeIsolationUnavailable {
		o.t.Errorf("what was held before it came: %v", err)
	}
	held.Drop()
	remove(o.t, at("late"))
	// One that was hidden is replaced: another file is there now.
	write(o.t, at("new"), hiddenText, 0o644)
	rename(o.t, at("new"), at(".env"))
	if _, err := o.Hold(o.t.Context(), caisson.Command{Argv: []string{"true"}}); caisson.CodeOf(err) != caisson.CodeIsolationUnavailable {
		o.t.Errorf("with another file in the place of a hidden one: %v", err)
	}
}

func remove(t testing.TB, path string) {
	t.Helper()
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
}

// A job inside moves the directory about in which the hidden file is. What runs
// then must not read it, or must not run.
func hiddenFilesCannotBeMovedAway(t *testing.T, h Harness) {
	o, ok := hiding(t, h, []string{"**/.env"})
	if !ok {
		return
	}
	o.sh("mkdir a")
	job, err := o.Hold(t.Context(), caisson.Command{Line: "while :; do mv a b; mkdir a; mv a c; mv b a; rmdir c; ln -s a b; rm b; done 2>/dev/null"})
	if err != nil {
		t.Fatal(err)
	}
	if err := job.Release(); err != nil {
		t.Fatal(err)
	}
	for range 30 {
		dir, err := os.OpenRoot(o.ws)
		if err != nil {
			t.Fatal(err)
		}
		_ = dir.WriteFile("a/.env", []byte(hiddenText), 0o644) // it may not be there just now
		dir.Close()
		var out strings.Builder
		p, err := o.Hold(t.Context(), caisson.Command{Line: "cat a/.env b/.env */.env", Stdout: &out})
		if err == nil {
			if err = p.Release(); err == nil {
				_, err = p.Wait(t.Context())
			} else {
				p.Drop()
			}
		}
		if err != nil && caisson.CodeOf(err) != caisson.CodeIsolationUnavailable {
			t.Fatal(err)
		}
		if strings.Contains(out.String(), hiddenText) {
			t.Fatal("it was read")
		}
	}
	job.Stop(caisson.CauseUser)
	if _, err := job.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if h.MasksAtOpen {
		return // what the job has left is refused, not hidden
	}
	o.unseen()
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
	if h.MasksAtOpen {
		return
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

package cli_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/ledger/sqlite"
)

// person sits at a terminal on which caisson runs.
type person struct {
	t    *testing.T
	home string // of all directories
	repo string
	env  []string
}

func newPerson(t *testing.T, files map[string]string) *person {
	t.Helper()
	p := &person{t: t, home: t.TempDir()}
	t.Cleanup(func() { endDriven(t, filepath.Join(p.home, "state/caisson/ledger.db")) }) // when all who sit there have gone
	p.repo = filepath.Join(p.home, "repo")
	files["home/.gitconfig"] = gitConfig
	files["repo/f"] = "one\n"
	for name, text := range files {
		path := filepath.Join(p.home, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(p.home, "run"), 0o700); err != nil {
		t.Fatal(err)
	}
	p.env = append(os.Environ(), "TERM=xterm", "EDITOR="+filepath.Join(p.home, "editor"), "VISUAL=")
	for name, dir := range map[string]string{"HOME": "home", "XDG_CONFIG_HOME": "config", "XDG_STATE_HOME": "state", "XDG_RUNTIME_DIR": "run"} {
		p.env = append(p.env, name+"="+filepath.Join(p.home, dir))
	}
	for _, line := range []string{"init -q", "add -A", "commit -q -m first"} {
		cmd := exec.CommandContext(t.Context(), "git", strings.Fields(line)...)
		cmd.Dir, cmd.Env = p.repo, p.env
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v\n%s", line, err, out)
		}
	}
	return p
}

func (p *person) ledgerPath() string { return filepath.Join(p.home, "state/caisson/ledger.db") }

func (p *person) ledger() caisson.Ledger {
	p.t.Helper()
	l, err := sqlite.Open(p.t.Context(), sqlite.Options{Path: p.ledgerPath()})
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		if err := errors.Join(l.Check(context.Background()), l.Close()); err != nil {
			p.t.Error(err)
		}
	})
	return l
}

// run returns the only run there is.
func (p *person) run() caisson.Run {
	p.t.Helper()
	runs, err := p.ledger().Runs(p.t.Context(), caisson.RunFilter{})
	if err != nil || len(runs) != 1 {
		p.t.Fatalf("%d runs, %v", len(runs), err)
	}
	return runs[0]
}

// seat is a program on a terminal.
type seat struct {
	t    *testing.T
	tty  *os.File
	cmd  *exec.Cmd
	mu   sync.Mutex
	seen bytes.Buffer
	more chan struct{}
	end  chan struct{}
}

func (p *person) start(size pty.Winsize, args ...string) *seat {
	p.t.Helper()
	s := &seat{t: p.t, more: make(chan struct{}, 1), end: make(chan struct{}), cmd: exec.Command("caisson", args...)}
	s.cmd.Dir, s.cmd.Env = p.repo, p.env
	var err error
	if s.tty, err = pty.StartWithSize(s.cmd, &size); err != nil {
		p.t.Fatal(err)
	}
	go func() {
		defer close(s.end)
		_, _ = io.Copy(s, s.tty) // ends with EIO when the program has ended
	}()
	p.t.Cleanup(func() {
		_ = s.cmd.Process.Kill() // has ended, where all went well
		s.tty.Close()
		<-s.end
	})
	return s
}

// startOn is start on a terminal that is the test's.
func (p *person) startOn(master, tty *os.File, size pty.Winsize, args ...string) *seat {
	p.t.Helper()
	s := &seat{t: p.t, tty: master, more: make(chan struct{}, 1), end: make(chan struct{}), cmd: exec.Command("caisson", args...)}
	s.cmd.Dir, s.cmd.Env = p.repo, p.env
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = tty, tty, tty
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := pty.Setsize(master, &size); err != nil {
		p.t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	go func() {
		defer close(s.end)
		_, _ = io.Copy(s, master) // ends with EIO when nobody has the terminal
	}()
	p.t.Cleanup(func() { _ = s.cmd.Process.Kill() }) // has ended, where all went well
	return s
}

func (s *seat) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen.Write(p)
	select {
	case s.more <- struct{}{}:
	default:
	}
	return len(p), nil
}

func (s *seat) screen() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.ReplaceAll(s.seen.String(), "\r\n", "\n")
}

// never is how long a test waits for what comes at once where nothing is wrong: no
// machine is so busy.
const never = 2 * time.Minute

// see waits until the text has been on the screen n times.
func (s *seat) see(text string, n int) {
	s.t.Helper()
	late := time.After(never)
	for strings.Count(s.screen(), text) < n {
		select {
		case <-s.more:
		case <-late:
			screen := s.screen()
			s.t.Fatalf("%q is not on the screen %d times:\n%s", text, n, screen[max(0, len(screen)-4000):])
		}
	}
}

func (s *seat) write(text string) {
	s.t.Helper()
	if _, err := s.tty.WriteString(text); err != nil {
		s.t.Fatal(err)
	}
}

// ends waits for the end and wants that status.
func (s *seat) ends(status int) {
	s.t.Helper()
	<-s.end
	_ = s.cmd.Wait()
	if got := s.cmd.ProcessState.ExitCode(); got != status {
		s.t.Fatalf("status %d, want %d:\n%s", got, status, s.screen())
	}
}

// exits is ends for a terminal that the test has too.
func (s *seat) exits(status int) {
	s.t.Helper()
	_ = s.cmd.Wait()
	if got := s.cmd.ProcessState.ExitCode(); got != status {
		s.t.Fatalf("status %d, want %d:\n%s", got, status, s.screen())
	}
}

// tolerate waits for the end and wants one of the statuses.
func (s *seat) tolerate(statuses ...int) {
	s.t.Helper()
	<-s.end
	_ = s.cmd.Wait()
	if got := s.cmd.ProcessState.ExitCode(); !slices.Contains(statuses, got) {
		s.t.Fatalf("status %d, want one of %v:\n%s", got, statuses, s.screen())
	}
}

var window = pty.Winsize{Rows: 31, Cols: 117}

const (
	reviewPushes = "version: 1\nrules: [{name: pushes, command: \"echo push **\", verdict: review, reason: it leaves the machine}]\n"
	// editor puts another input in place of the first.
	editor = "#!/bin/sh\nsed -i s/three/four/ \"$1\"\n"
)

func TestReviewsOnATerminal(t *testing.T) {
	t.Parallel()
	p := newPerson(t, map[string]string{
		"config/caisson/policy.yaml": reviewPushes,
		"editor":                     editor,
		"m.yaml": `
turns:
  - text: "I push.\n"
    calls:
      - {tool: shell, input: {command: echo push one}}
      - {tool: shell, input: {command: echo push two}}
      - {tool: shell, input: {command: echo push three}}
  - expect: [{contains: push one}, {contains: not two, failed: true}, {contains: push four}]
    calls: [{tool: ask, input: {question: "Which colour?", options: [red, blue]}}]
  - expect: [{contains: blue}]
    text: all is said
`,
	})
	s := p.start(window, "run", "--model", "script:"+filepath.Join(p.home, "m.yaml"), "push")
	s.see("q1: [a]pprove", 1)
	s.write("d\n")
	s.see("it leaves the machine", 1)
	s.see("q1: [a]pprove", 2)
	s.write("nonsense\n")
	s.see("q1: [a]pprove", 3)
	s.write("a\n")
	s.see("q2: [a]pprove", 1)
	s.write("r not two\n")
	s.see("q3: [a]pprove", 1)
	s.write("e\n")
	s.see("answer, or /later", 1)
	s.write("2\n")
	s.ends(0)
	screen := s.screen()
	for text, n := range map[string]int{"I push.\n": 1, "all is said\n": 1, "echo push four": 1, "modify by": 1, "succeeded": 1} {
		if strings.Count(screen, text) != n {
			t.Errorf("%q is not there %d times:\n%s", text, n, screen)
		}
	}
}

// An answer from elsewhere ends the question on the screen.
func TestAnsweredElsewhere(t *testing.T) {
	t.Parallel()
	p := newPerson(t, map[string]string{
		"config/caisson/policy.yaml": reviewPushes,
		"m.yaml":                     "turns: [{calls: [{tool: shell, input: {command: echo push one}}]}, {text: done}]",
	})
	s := p.start(window, "run", "--model", "script:"+filepath.Join(p.home, "m.yaml"), "push")
	s.see("q1: [a]pprove", 1)
	p.start(window, "review", "approve", "q1").ends(0)
	s.ends(0)
	if !strings.Contains(s.screen(), "\n  ! review q1  approve by") {
		t.Error(s.screen())
	}
}

// Who attaches sees what is asked, can answer it, and sees how it goes on.
func TestAttach(t *testing.T) {
	t.Parallel()
	p := newPerson(t, map[string]string{
		"config/caisson/policy.yaml": reviewPushes,
		"m.yaml":                     "turns: [{calls: [{tool: shell, input: {command: echo push one}}]}, {text: all is said}]",
	})
	driver := p.start(window, "run", "--model", "script:"+filepath.Join(p.home, "m.yaml"), "push")
	driver.see("q1: [a]pprove", 1)
	other := p.start(window, "runs", "attach", string(p.run().ID))
	other.see("q1: [a]pprove", 1)
	other.write("a\n")
	for _, s := range []*seat{driver, other} {
		s.ends(0)
		if strings.Count(s.screen(), "all is said") != 1 || !strings.Contains(s.screen(), "· shell  echo push one") {
			t.Error(s.screen())
		}
	}
}

// The model's text is on the screen before its answer is complete, and once.
func TestTextComesLive(t *testing.T) {
	t.Parallel()
	p := newPerson(t, map[string]string{"m.yaml": "turns: [{text: \"a first line\\nand not the second\", stall: true}]"})
	s := p.start(window, "run", "--model", "script:"+filepath.Join(p.home, "m.yaml"), "speak")
	s.see("a first line", 1)
	s.write("\x03")
	s.ends(130)
	if n := strings.Count(s.screen(), "a first line"); n != 1 {
		t.Errorf("%d times:\n%s", n, s.screen())
	}
	if r := p.run(); r.State != caisson.RunPaused || r.Cause != caisson.CauseUser {
		t.Errorf("run %s, cause %q", r.State, r.Cause)
	}
}

// Ctrl-C once parks, and what was asked stays open; twice cancels.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		presses int
		want    caisson.RunState
	}{{"once", 1, caisson.RunPaused}, {"twice", 2, caisson.RunCancelled}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			// A busy machine may be done with the first before the second comes.
			for n := 0; !interrupted(t, c.presses, c.want, n == 5); n++ {
				t.Log("the second came late")
			}
		})
	}
}

// interrupted presses Ctrl-C, and tells whether what it was to stop was still at work
// then, at the last try in any case.
func interrupted(t *testing.T, presses int, want caisson.RunState, last bool) bool {
	t.Helper()
	p := newPerson(t, map[string]string{
		"config/caisson/policy.yaml": reviewPushes,
		"m.yaml":                     "turns: [{calls: [{tool: shell, input: {command: echo push one}}, {tool: shell, input: {command: \"trap '' TERM; echo up >up; sleep 60\"}}]}]",
	})
	s := p.start(window, "run", "--model", "script:"+filepath.Join(p.home, "m.yaml"), "push")
	s.see("q1: [a]pprove", 1)
	p.await(caisson.EventCallStarted)
	p.appears("state/caisson/workspaces/*/*/up") // till then a signal ends it at once
	began, took := time.Now(), time.Duration(0)
	for n := range presses {
		if err := s.cmd.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		took = time.Since(began)
		if n == 0 {
			s.see("Ctrl-C again", 1)
		}
	}
	s.ends(130)
	r := p.run()
	if presses > 1 && r.State == caisson.RunPaused && took > time.Second && !last {
		return false
	}
	if r.State != want {
		t.Errorf("run %s, %s\n%s", r.State, r.Text, s.screen())
	}
	reviews, err := p.ledger().Reviews(t.Context(), caisson.ReviewFilter{States: []caisson.ReviewState{caisson.ReviewOpen}})
	if open := want == caisson.RunPaused; err != nil || open != (len(reviews) == 1) {
		t.Errorf("%d open reviews, %v", len(reviews), err)
	}
	return true
}

// appears waits for a file, which nothing tells of.
func (p *person) appears(pattern string) {
	p.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for late := time.After(never); ; {
		if found, _ := filepath.Glob(filepath.Join(p.home, pattern)); len(found) > 0 {
			return
		}
		select {
		case <-tick.C:
		case <-late:
			p.t.Fatalf("there is no %s", pattern)
		}
	}
}

// await waits for an event of the only run.
func (p *person) await(kind caisson.EventKind) {
	p.t.Helper()
	l, id := p.ledger(), p.run().ID
	ctx, cancel := context.WithTimeout(p.t.Context(), never)
	defer cancel()
	for seen := int64(0); ; {
		events, err := l.Events(ctx, id, 0, 0)
		if err != nil {
			p.t.Fatal(err)
		}
		for _, e := range events {
			if e.Kind == kind {
				return
			}
		}
		if seen, err = l.Wait(ctx, id, max(seen, int64(len(events)))); err != nil {
			p.t.Fatal(err)
		}
	}
}

// A command has a terminal of the person's size, which follows it, and what is
// typed; it is approved on the screen first.
func TestCommandOnATerminal(t *testing.T) {
	t.Parallel()
	p := newPerson(t, map[string]string{})
	s := p.start(window, "run", "--preset", "supervised", "--", "sh", "-c", `trap 'stty size' WINCH; test -t 0 && test -t 1 && stty size; while :; do read -r line || continue; echo "got $line"; test "$line" = end && exit 9; done`)
	s.see("q1: [a]pprove", 1)
	s.write("a\n")
	s.see("31 117", 1)
	s.write("hello\r")
	s.see("got hello", 1)
	if err := pty.Setsize(s.tty, &pty.Winsize{Rows: 40, Cols: 99}); err != nil {
		t.Fatal(err)
	}
	s.write("again\r")
	s.see("40 99", 1)
	s.write("end\r")
	s.ends(9)
	if r := p.run(); r.State != caisson.RunFailed || r.Exit != 9 {
		t.Errorf("run %s, exit %d", r.State, r.Exit)
	}
}

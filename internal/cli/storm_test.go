package cli_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/host"
	"github.com/caisson-run/caisson/internal/proctree"
	"golang.org/x/sys/unix"
)

// storm is a person's machine on which programs are killed.
type storm struct {
	t      *testing.T
	dir    string
	repo   string
	engine string
	marker string // stands in the arguments of every program that is run inside
	killed int
	seen   int  // rounds in which the command inside had begun
	soon   bool // the blow comes soon, as those before came too late
}

func newStorm(t *testing.T, engine string) *storm {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s := &storm{t: t, dir: dir, engine: engine, repo: filepath.Join(dir, "repo"), marker: fmt.Sprintf("7%d%09d", os.Getpid(), rand.IntN(1e9))}
	for _, name := range []string{"home", "config", "config/caisson", "state", "run", "tmp", "repo"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	config := "review: {park_after: 10ms}\n"
	if engine == "landlock" {
		config += "require: [network]\n"
	}
	if image := os.Getenv("CAISSON_TEST_IMAGE"); image != "" {
		config += "containers: {image: '" + image + "'}\n"
	}
	for name, text := range map[string]string{"home/.gitconfig": gitConfig, "repo/file": "mine\n", "config/caisson/config.yaml": config, "config/caisson/policy.yaml": "rules: [{name: all, verdict: allow}]\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, line := range []string{"init -q", "add -A", "commit -q -m first"} {
		s.git(strings.Fields(line)...)
	}
	return s
}

func (s *storm) command(name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(s.t.Context(), name, args...)
	cmd.Dir = s.repo
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8", "CAISSON_GUEST=" + os.Getenv("CAISSON_GUEST"),
		"HOME=" + s.dir + "/home", "XDG_CONFIG_HOME=" + s.dir + "/config", "XDG_STATE_HOME=" + s.dir + "/state",
		"XDG_RUNTIME_DIR=" + s.dir + "/run", "TMPDIR=" + s.dir + "/tmp",
		"DOCKER_HOST=" + os.Getenv("CAISSON_TEST_DOCKER"), "CONTAINER_HOST=" + os.Getenv("CAISSON_TEST_PODMAN"),
	}
	return cmd
}

func (s *storm) git(args ...string) string {
	s.t.Helper()
	out, err := s.command("git", args...).CombinedOutput()
	if err != nil {
		s.t.Fatalf("git %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// caisson runs a command to its end; into gets its JSON.
func (s *storm) caisson(into any, args ...string) {
	s.t.Helper()
	var out, complaint bytes.Buffer
	cmd := s.command("caisson", append(args, "--json")...)
	cmd.Stdout, cmd.Stderr = &out, &complaint
	err := cmd.Run()
	if into == nil {
		if err != nil {
			s.t.Fatalf("caisson %s: %v: %s", strings.Join(args, " "), err, complaint.String())
		}
		return
	}
	if e := json.Unmarshal(out.Bytes(), into); e != nil {
		s.t.Fatalf("caisson %s: %v, %v: %s%s", strings.Join(args, " "), err, e, out.String(), complaint.String())
	}
}

// kill starts a run, kills the victim at some moment, and waits for the end of
// the program. The moment is counted from the start of the program or, with
// late, from the first output of the command inside.
func (s *storm) kill(victim string, late bool) {
	s.t.Helper()
	within, rest := 400, rand.IntN(4)
	if victim != "host" {
		within, rest = 20, 5 // it may be there for a moment only
	}
	line := fmt.Sprintf("setsid sleep %[1]s & setsid sh -c 'trap \"\" TERM; sleep %[1]s' & echo up; echo more >> file; sleep 0.%[2]d", s.marker, rest)
	out := &watched{up: make(chan struct{})}
	args := []string{"run", "--engine", s.engine, "--", "sh", "-c", line}
	if s.soon {
		within = min(within, 40)
	}
	if victim == "server" {
		args = []string{"sandbox", "exec", "--detach", "--no-workspace", "--engine", s.engine, "--", "sh", "-c", line}
		if !s.soon {
			within = 400
		}
	}
	cmd := s.command("caisson", args...)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // it is killed, or what it needs is
	}()
	if late {
		select {
		case <-ended:
		case <-out.up:
		}
	}
	target := s.find(cmd.Process.Pid, victim, ended)
	early := ended
	if victim == "server" {
		early = nil // its end is that of who started the server
	}
	select {
	case <-early:
	case <-time.After(time.Duration(rand.IntN(within)) * time.Millisecond):
		if target.PID > 0 && target.Signal(unix.SIGKILL) {
			s.killed++
		}
	}
	select {
	case <-ended:
	case <-time.After(time.Minute):
		s.t.Errorf("killed %s (%d), and caisson goes on: %s", victim, target.PID, out.text())
		_ = cmd.Process.Kill()
		<-ended
	}
	s.background(victim, target)
	select {
	case <-out.up:
		s.seen++
	default:
	}
}

// background waits for the end of a server, which is nobody's child.
func (s *storm) background(victim string, target proctree.Process) {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := time.After(time.Minute); victim == "server"; {
		if now, there := proctree.Of(target.PID); !there || now.Start != target.Start {
			s.seen++ // it has no output here
			return
		}
		select {
		case <-tick.C:
		case <-end:
			s.t.Fatalf("server %d goes on", target.PID)
		}
	}
}

// watched is output of which it is known when the command inside began.
type watched struct {
	mu  sync.Mutex
	all []byte
	up  chan struct{}
}

func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := bytes.Contains(w.all, []byte("up\n"))
	w.all = append(w.all, p...)
	if !before && bytes.Contains(w.all, []byte("up\n")) {
		close(w.up)
	}
	return len(p), nil
}

func (w *watched) text() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(w.all)
}

// find waits for the victim among what a program of ours has started.
func (s *storm) find(pid int, victim string, ended <-chan struct{}) proctree.Process {
	self, _ := proctree.Of(pid) // not reaped while it is waited for; else the signal finds nobody
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	var over <-chan time.Time
	for victim != "host" {
		all, err := proctree.All()
		if err != nil {
			s.t.Fatal(err)
		}
		for _, p := range all {
			if s.roleOf(all, p, pid) == victim {
				return p
			}
		}
		select {
		case <-ended:
			if victim != "server" {
				return proctree.Process{}
			}
			ended, over = nil, time.After(time.Second) // it goes on in the background
		case <-over:
			return proctree.Process{}
		case <-tick.C:
		}
	}
	return self
}

// age makes what was being written when its writer was killed as old as it
// would be had nobody come for two minutes.
func (s *storm) age() {
	long := time.Now().Add(-2 * time.Minute)
	for _, pattern := range s.halfDone() {
		found, _ := filepath.Glob(pattern) // the patterns are right
		for _, path := range found {
			if err := os.Chtimes(path, long, long); err != nil {
				s.t.Error(err)
			}
		}
	}
}

func (s *storm) halfDone() []string {
	state, run := s.dir+"/state/caisson/", s.dir+"/run/caisson/"
	return []string{
		state + ".*.tmp", state + "making/*", state + "views/*/.*.tmp", state + "views/*/info/.*.tmp", state + "shadows/*/.*.tmp",
		run + ".*.tmp", run + "instances/*", s.dir + "/tmp/caisson-*",
	}
}

// clean runs one command and then proves that nothing is left.
func (s *storm) clean() {
	s.t.Helper()
	s.age()
	s.caisson(nil, "runs", "ls")
	for _, pattern := range s.halfDone() {
		if strings.HasSuffix(pattern, "/instances/*") {
			continue // a run that can go on names the lock of who drove it
		}
		if left, _ := filepath.Glob(pattern); len(left) > 0 {
			s.t.Errorf("left: %q", left)
		}
	}
	found := s.residue()
	if !found.Zero {
		for _, r := range found.Remnants {
			if !r.Live {
				s.t.Errorf("residue: %+v", r)
			}
		}
		for _, place := range found.Places {
			other := strings.HasPrefix(place.Place, "engine ") && place.Place != "engine "+s.engine
			if place.Residue > 0 || place.Unseen != "" && !other { // another's may be too busy to answer
				s.t.Errorf("not zero: %+v", place)
			}
		}
	}
	for _, r := range found.Remnants {
		ours := r.Place == "ledger" || r.Place == "workspaces"
		if ours { // nobody of this machine's lives
			s.t.Errorf("held by nobody: %+v", r)
		}
	}
	if pids := s.marked(); len(pids) > 0 {
		s.t.Errorf("processes %v of the box are alive", pids)
	}
	s.alone()
	s.untouched()
}

// residue looks at what is left. A busy engine may not answer each look in time.
func (s *storm) residue() (found host.Residue) {
	s.t.Helper()
	for end := time.Now().Add(never); ; {
		found = host.Residue{}
		s.caisson(&found, "doctor", "--residue")
		busy := slices.ContainsFunc(found.Places, func(p host.Place) bool {
			return p.Place == "engine "+s.engine && strings.Contains(p.Unseen, "does not answer in time")
		})
		if !busy || time.Now().After(end) {
			return found
		}
	}
}

// untouched verifies that the person's checkout is as it was, that every
// workspace is whole, and that nothing else was made in the repository.
func (s *storm) untouched() {
	s.t.Helper()
	if raw, err := os.ReadFile(filepath.Join(s.repo, "file")); err != nil || string(raw) != "mine\n" {
		s.t.Errorf("the person's file holds %q (%v)", raw, err)
	}
	if out := s.git("status", "--porcelain"); out != "" {
		s.t.Errorf("the checkout has changes: %s", out)
	}
	s.git("fsck", "--no-dangling")
	trees, _ := filepath.Glob(s.dir + "/state/caisson/workspaces/*/*")
	for _, tree := range trees {
		raw, err := os.ReadFile(filepath.Join(tree, "file"))
		rest := strings.TrimPrefix(string(raw), "mine\n")
		if err != nil || len(rest) == len(raw) || strings.Trim(rest, "more\n") != "" {
			s.t.Errorf("workspace %s holds %q (%v)", tree, raw, err)
		}
	}
	if branches := strings.Fields(s.git("for-each-ref", "--format=%(refname)", "refs/heads/caisson")); len(branches) != len(trees) {
		s.t.Errorf("%d branches, %d workspaces", len(branches), len(trees))
	}
	err := filepath.WalkDir(filepath.Join(s.repo, ".git"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(d.Name(), ".lock") {
			s.t.Errorf("%s is left", path)
		}
		return err
	})
	if err != nil {
		s.t.Error(err)
	}
}

func stormRounds(t *testing.T) int {
	t.Helper()
	text := os.Getenv("CAISSON_STORM")
	if text == "" {
		return 6
	}
	rounds, err := strconv.Atoi(text)
	if err != nil || rounds < 1 {
		t.Fatalf("CAISSON_STORM=%q is no number of rounds", text)
	}
	return rounds
}

// Any of our processes is killed at any moment while a sandbox is opened, used
// and closed, many times; then one command, and nothing is left.
// Origin: codex 21994, 31599; srt 139.
func TestCase_S04(t *testing.T) {
	for _, engine := range caisson.EngineNames("linux") {
		t.Run(engine, func(t *testing.T) {
			var report host.Report
			newStorm(t, engine).caisson(&report, "doctor")
			i := slices.IndexFunc(report.Engines, func(e host.EngineReport) bool { return e.Engine == engine })
			if i < 0 || !report.Engines[i].Satisfies {
				t.Skipf("this engine is not usable here: %+v", report.Engines[max(i, 0)].Why)
			}
			for _, victim := range []string{"host", "guest", "holder", "spawner", "server"} {
				t.Run(victim, func(t *testing.T) { runStorm(t, engine, victim) })
			}
		})
	}
}

func runStorm(t *testing.T, engine, victim string) {
	rounds := stormRounds(t)
	if victim != "host" {
		rounds = max(rounds/4, 3)
	}
	if !slices.Contains([]string{"namespace", "bubblewrap", "landlock"}, engine) {
		rounds = max(rounds/8, 2) // an engine takes its time
	}
	s := newStorm(t, engine)
	// A few rounds may all be over before their blow: there is one that hits.
	for n := 0; n < rounds || (s.killed == 0 || s.seen == 0) && n < 8*rounds; n++ {
		s.soon = n >= rounds
		s.kill(victim, n%2 == 1)
	}
	s.clean()
	t.Logf("%d rounds, %d kills; in %d rounds the command inside had begun", rounds, s.killed, s.seen)
	switch {
	case s.killed == 0 && victim == "spawner" && engine != "bubblewrap":
		t.Skip("this engine has no spawner")
	case s.killed == 0 && os.Geteuid() != 0 && (victim == "guest" || victim == "holder") && engine != "namespace" && engine != "bubblewrap":
		t.Skip("an ordinary user cannot look at this process to find it")
	case s.killed == 0 || s.seen == 0:
		t.Error("nothing was killed at work")
	}
}

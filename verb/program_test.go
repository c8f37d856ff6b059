//go:build linux

package verb

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/process"
	"github.com/caisson-run/caisson/sandbox/sandboxtest"
	"github.com/caisson-run/caisson/verb/declared"
)

func TestMain(m *testing.M) { sandboxtest.Main(m) }

// stage is a host with one repository and one verb.
type stage struct {
	t     *testing.T
	dir   string
	scene Scene
	verb  declared.Verb
}

func newStage(t *testing.T, input []declared.Field, run ...string) *stage {
	t.Helper()
	out := NewOutside(sandboxtest.Guest)
	t.Cleanup(func() {
		if err := out.Close(); err != nil {
			t.Error(err)
		}
		goleak.VerifyNone(t)
	})
	s := &stage{t: t, dir: t.TempDir()}
	s.scene = Scene{Outside: out, Repo: s.dir, Branch: "caisson/x", Env: []string{"PATH=/usr/bin:/bin"}, Lookup: func(string) string { return "" }}
	s.verb = declared.Verb{Name: "a.b", Input: input, Dir: declared.DirHostRepo, Timeout: time.Minute, Output: declared.DefaultOutput, Memory: declared.DefaultMemory}
	var names []string
	for _, f := range input {
		names = append(names, f.Name)
	}
	for i, arg := range run {
		tm, err := declared.ParseTemplate(arg, names, i == 0)
		if err != nil {
			t.Fatal(err)
		}
		s.verb.Run = append(s.verb.Run, tm)
	}
	return s
}

func (s *stage) hold(input string) (caisson.Executor, error) {
	return NewDeclared(s.verb, s.scene).Hold(s.t.Context(), caisson.Call{ID: "r1.c1.0123456789abcdef", Input: json.RawMessage(input)}, "e-1")
}

func (s *stage) run(input string) caisson.Result {
	s.t.Helper()
	x, err := s.hold(input)
	if err != nil {
		s.t.Fatal(err)
	}
	result, err := x.Open(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	return result
}

// once calls do when there is a file of that name in the repository; it ends with
// that, or with ctx.
func (s *stage) once(ctx context.Context, name string, do func()) {
	for ctx.Err() == nil {
		if _, err := os.Stat(filepath.Join(s.dir, name)); err == nil {
			do()
			return
		}
		<-time.After(5 * time.Millisecond)
	}
}

func TestProgramOfTheHost(t *testing.T) {
	s := newStage(t, []declared.Field{{Name: "title", Type: declared.String, Max: 100}}, "sh", "-c", `pwd; echo "$1|$2|$TOKEN|$HOME|$CAISSON_EFFECT_ID"; exit 3`, "sh", "{title}", "{branch}")
	s.verb.Env = []string{"TOKEN", "NOTHING"}
	s.scene.Lookup = func(name string) string {
		if name == "TOKEN" {
			return "secret"
		}
		return ""
	}
	result := s.run(`{"title":"$(id); a 'b'"}`)
	if want := s.dir + "\n$(id); a 'b'|caisson/x|secret||e-1\n"; !strings.HasPrefix(result.Text, want) {
		t.Errorf("%q", result.Text)
	}
	var exit caisson.Exit
	if err := json.Unmarshal(result.Data, &exit); err != nil || exit.Code != 3 || result.Outcome != caisson.OutcomeFailed {
		t.Errorf("%+v, %s, %v", exit, result.Outcome, err)
	}
	facets, err := NewDeclared(s.verb, s.scene).Facets(json.RawMessage(`{"title":"x"}`))
	if err != nil || facets.Dir != s.dir || len(facets.Argv) != 1 || facets.Argv[0][4] != "x" {
		t.Errorf("%+v, %v", facets, err)
	}
}

func TestNothingBeginsBeforeTheGate(t *testing.T) {
	s := newStage(t, nil, "sh", "-c", "echo begun >began")
	x, err := s.hold(`{}`)
	if err != nil {
		t.Fatal(err)
	}
	id := x.Identity()
	if id == nil || process.Alive(*id) != caisson.Alive {
		t.Fatalf("the held program is not there: %+v", id)
	}
	x.Drop()
	if process.Alive(*id) != caisson.Dead {
		t.Error("a dropped program is there still")
	}
	if _, err := os.Stat(filepath.Join(s.dir, "began")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it began: %v", err)
	}
}

func TestProgramThatIsMissing(t *testing.T) {
	s := newStage(t, nil, "no-such-program")
	if _, err := s.hold(`{}`); caisson.CodeOf(err) != caisson.CodeProgramMissing || !strings.Contains(err.Error(), `"no-such-program" of the verb a.b is not there`) {
		t.Errorf("%v", err)
	}
	if err := os.WriteFile(filepath.Join(s.dir, "text"), []byte("no program"), 0o600); err != nil {
		t.Fatal(err)
	}
	text := newStage(t, nil, filepath.Join(s.dir, "text"))
	if err := NewDeclared(text.verb, text.scene).Look(t.Context()); caisson.CodeOf(err) != caisson.CodeProgramMissing || !strings.Contains(err.Error(), "cannot be executed") {
		t.Errorf("%v", err)
	}
	s.scene.Repo = filepath.Join(s.dir, "gone")
	if _, err := s.hold(`{}`); caisson.CodeOf(err) != caisson.CodeNoRepository {
		t.Errorf("%v", err)
	}
	s.scene.Repo = ""
	if _, err := s.hold(`{}`); caisson.CodeOf(err) != caisson.CodeNoRepository {
		t.Errorf("%v", err)
	}
}

// To look for a program begins nothing of it.
func TestLook(t *testing.T) {
	s := newStage(t, nil, "touch", "began")
	if err := NewDeclared(s.verb, s.scene).Look(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(s.dir, "began")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it began: %v", err)
	}
}

// What is not given is left out, and {task} is the task's where there is one.
func TestArgumentsThatAreLeftOut(t *testing.T) {
	s := newStage(t, []declared.Field{{Name: "n", Type: declared.Integer, Optional: true}}, "echo", "--n={n}", "--task={task}", "end")
	if got := s.run(`{}`).Text; !strings.HasPrefix(got, "end\n") {
		t.Errorf("%q", got)
	}
	s.scene.Task = "chore/x"
	if got := s.run(`{"n":0}`).Text; !strings.HasPrefix(got, "--n=0 --task=chore/x end\n") {
		t.Errorf("%q", got)
	}
}

// A program that hangs, whatever signals it takes, ends when its time is over, and
// says until then what it said.
func TestProgramThatHangs(t *testing.T) {
	for name, line := range map[string]string{
		"takes no signal": `trap "" TERM INT HUP; echo begun; : >up; while :; do sleep 1; done`,
		"is stopped":      `echo begun; : >up; kill -STOP $$`,
		"hangs in a pipe": `echo begun; : >up; sleep 600 | sleep 600`,
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, nil, "sh", "-c", line)
			x, err := s.hold(`{}`)
			if err != nil {
				t.Fatal(err)
			}
			id := x.Identity()
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			go s.once(ctx, "up", func() { cancel(&caisson.CauseError{Cause: caisson.CauseDeadline}) })
			result, err := x.Open(ctx)
			if err != nil || !strings.HasPrefix(result.Text, "begun\n") {
				t.Errorf("%+v, %v", result, err)
			}
			if result.Cause != caisson.CauseDeadline {
				t.Errorf("cause %q, outcome %s", result.Cause, result.Outcome)
			}
			if process.Alive(*id) != caisson.Dead {
				t.Errorf("process %d is there still", id.PID)
			}
		})
	}
}

// A program that forks away, in a session of its own and with its parent gone,
// ends with the verb: when that ends, and when it is stopped.
func TestProgramThatForksAway(t *testing.T) {
	away := `(setsid sh -c 'trap "" TERM HUP; echo $$ >pid.tmp; mv pid.tmp pid; while :; do sleep 1; done' >/dev/null 2>&1 &) & while ! test -e pid; do sleep 0.01; done`
	for name, rest := range map[string]string{"and ends": "", "and hangs": "; trap '' TERM; while :; do sleep 1; done"} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, nil, "sh", "-c", away+rest)
			x, err := s.hold(`{}`)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			if rest != "" {
				go s.once(ctx, "pid", func() { cancel(&caisson.CauseError{Cause: caisson.CauseUser}) })
			}
			result, err := x.Open(ctx)
			raw, readErr := os.ReadFile(filepath.Join(s.dir, "pid"))
			if readErr != nil {
				t.Fatalf("%v; %+v, %v", readErr, result, err)
			}
			pid, _ := strconv.Atoi(strings.TrimSpace(string(raw)))
			if _, err := process.Of(pid); err == nil {
				t.Errorf("process %d is there still; %+v", pid, result)
			}
			if rest != "" && result.Outcome != caisson.OutcomeCancelled {
				t.Errorf("%+v, %v", result, err)
			}
		})
	}
}

func TestProgramThatFloods(t *testing.T) {
	s := newStage(t, nil, "sh", "-c", "yes x | head -c 50000000")
	s.verb.Output = 4096
	result := s.run(`{}`)
	if len(result.Text) > 4096+200 || result.Bytes != 50000000 {
		t.Errorf("%d bytes of %d", len(result.Text), result.Bytes)
	}
	s.scene.SpillDir = filepath.Join(s.dir, "not", "there", "yet")
	result = s.run(`{}`)
	if result.Spill == nil || result.Spill.Bytes != 50000000 || filepath.Dir(result.Spill.Path) != s.scene.SpillDir {
		t.Fatalf("it is not kept: %+v, %.200q", result.Spill, result.Text)
	}
	if st, err := os.Stat(s.scene.SpillDir); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", st, err)
	}
}

func TestProgramThatTakesMemory(t *testing.T) {
	s := newStage(t, nil, "python3", "-c", "x = bytearray(200 << 20); print(len(x))")
	if result := s.run(`{}`); result.Outcome == caisson.OutcomeFailed {
		t.Fatalf("it is not the bound that ends it: %+v", result)
	}
	s.verb.Memory = declared.LeastMemory
	if result := s.run(`{}`); result.Outcome != caisson.OutcomeFailed {
		t.Errorf("%+v", result)
	}
}

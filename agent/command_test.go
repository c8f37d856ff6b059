package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/schema"
)

func prepare(t *testing.T, input CommandInput) caisson.Call {
	t.Helper()
	raw, err := json.Marshal(input)
	if err != nil {
		t.Fatal(err)
	}
	compiled, err := schema.Compile((&Command{}).Spec().Schema)
	if err != nil {
		t.Fatal(err)
	}
	prepared, err := compiled.Prepare(raw)
	if err != nil {
		t.Fatal(err)
	}
	return caisson.Call{ID: "rtest.1.1", Tool: caisson.ToolRef{Name: CommandName}, Input: prepared.Input}
}

func argv(args ...string) []caisson.Bytes {
	list := make([]caisson.Bytes, len(args))
	for i, arg := range args {
		list[i] = caisson.Bytes(arg)
	}
	return list
}

func do(t *testing.T, opts Options, input CommandInput) (caisson.Result, caisson.Exit) {
	t.Helper()
	executor, err := NewCommand(opts).Hold(t.Context(), prepare(t, input), "e-1")
	if err != nil {
		t.Fatal(err)
	}
	result, err := executor.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var exit caisson.Exit
	if err := json.Unmarshal(result.Data, &exit); err != nil {
		t.Fatal(err)
	}
	return result, exit
}

func TestFacets(t *testing.T) {
	odd := "a\nb\xff" + strings.Repeat("x", 100_000)
	call := prepare(t, CommandInput{Argv: argv("claude", "-p", odd)})
	facets, err := NewCommand(Options{}).Facets(call.Input)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(caisson.Facets{Argv: [][]string{{"claude", "-p", odd}}}, facets); diff != "" {
		t.Error(diff)
	}
	for _, input := range []string{`{"argv":[]}`, `{"argv":[""]}`, `{"argv":["a\u0000b"]}`, `{"argv":[{"$base64":"!"}]}`} {
		if _, err := NewCommand(Options{}).Facets(json.RawMessage(input)); caisson.CodeOf(err) != caisson.CodeCallInvalid {
			t.Errorf("%s: %v", input, err)
		}
	}
}

func TestStreamsAndStatus(t *testing.T) {
	sandbox, _ := openSandbox(t)
	var stdout, stderr bytes.Buffer
	result, exit := do(t, Options{
		Sandbox: sandbox, Stdin: strings.NewReader("typed"), Stdout: &stdout, Stderr: &stderr, Env: []string{"FROM=me"},
	}, CommandInput{Argv: argv("sh", "-c", `cat; echo " $FROM $CAISSON_EFFECT_ID $1"; echo err >&2; exit 7`, "sh", "\xff\n")})
	if got := stdout.String(); got != "typed me e-1 \xff\n\n" {
		t.Errorf("stdout %q", got)
	}
	if got := stderr.String(); got != "err\n" {
		t.Errorf("stderr %q", got)
	}
	if exit.Code != 7 || result.Outcome != caisson.OutcomeFailed || !strings.HasPrefix(result.Summary, "exit 7 in ") {
		t.Errorf("exit %+v, %+v", exit, result)
	}
	// Of two streams the order is not known; the record has every byte of both.
	for _, part := range []string{"typed", "me e-1 \uFFFD", "err\n"} {
		if !strings.Contains(result.Text, part) {
			t.Errorf("recorded %q, without %q", result.Text, part)
		}
	}
	if want := int64(stdout.Len() + stderr.Len()); result.Bytes != want {
		t.Errorf("recorded %d bytes of %d", result.Bytes, want)
	}
}

// broken is a terminal that was closed.
type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("closed") }

func TestWatcherGoesAway(t *testing.T) {
	sandbox, _ := openSandbox(t)
	result, exit := do(t, Options{Sandbox: sandbox, Stdout: broken{}, Stderr: broken{}},
		CommandInput{Argv: argv("sh", "-c", "echo one; echo two")})
	if exit.Code != 0 || !strings.HasPrefix(result.Text, "one\ntwo\n") {
		t.Errorf("exit %+v, recorded %q", exit, result.Text)
	}
}

// screen is a terminal's output; it says when a text has come.
type screen struct {
	mu   sync.Mutex
	text strings.Builder
	more chan struct{}
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text.Write(p)
	select {
	case s.more <- struct{}{}:
	default:
	}
	return len(p), nil
}

func (s *screen) await(t *testing.T, text string) {
	for {
		s.mu.Lock()
		there := strings.Contains(s.text.String(), text)
		s.mu.Unlock()
		if there {
			return
		}
		select {
		case <-s.more:
		case <-t.Context().Done():
			return
		}
	}
}

func TestTerminal(t *testing.T) {
	sandbox, _ := openSandbox(t)
	in, typed := io.Pipe()
	out := &screen{more: make(chan struct{}, 1)}
	resize := make(chan caisson.Winsize)
	var typing sync.WaitGroup
	typing.Go(func() {
		out.await(t, "10 40")
		resize <- caisson.Winsize{Rows: 50, Cols: 132}
		out.await(t, "50 132")
		_, _ = io.WriteString(typed, "hello\n")
		out.await(t, "got hello")
		_ = typed.Close()
	})
	result, exit := do(t, Options{
		Sandbox: sandbox, Stdin: in, Stdout: out, Size: caisson.Winsize{Rows: 10, Cols: 40}, Resize: resize,
	}, CommandInput{PTY: true, Argv: argv("sh", "-c",
		`test -t 0 && test -t 1 || exit 9; trap 'stty size' WINCH; stty size; while test "$(stty size)" = "10 40"; do sleep 0.02; done; read line; echo "got $line"; exit 5`)})
	typing.Wait()
	if exit.Code != 5 || !strings.Contains(result.Text, "got hello") {
		t.Errorf("exit %+v, recorded %q", exit, result.Text)
	}
}

func TestResizeEnds(t *testing.T) {
	sandbox, _ := openSandbox(t)
	resize := make(chan caisson.Winsize)
	close(resize)
	if _, exit := do(t, Options{Sandbox: sandbox, Resize: resize}, CommandInput{PTY: true, Argv: argv("true")}); exit.Code != 0 {
		t.Errorf("exit %+v", exit)
	}
}

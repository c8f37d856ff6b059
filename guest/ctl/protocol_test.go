package ctl_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/control/channel"
	"github.com/caisson-run/caisson/guest/ctl"
)

// answered are the codes that the document says an answer may have beside those
// of the verbs themselves.
var answered = []caisson.Code{
	caisson.CodeBusy, caisson.CodeHandoffActive, caisson.CodeRequestExpired, caisson.CodeWorkspaceBindingLost, caisson.CodeEngineUnknown,
	caisson.CodeNotExecuted, caisson.CodeBrokerUnavailable, caisson.CodeDiskFull, caisson.CodeRequestInvalid, caisson.CodeGenerationStale,
	caisson.CodeVerbDenied, caisson.CodeRefused, caisson.CodeChannelFull, caisson.CodeEngineAbsentGCFailed, caisson.CodeRequestReplayed,
	caisson.CodeResultUnknown, caisson.CodeNotFound, caisson.CodeInternal,
}

func document(t *testing.T) string {
	t.Helper()
	raw, err := os.ReadFile("../../docs/control-protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func TestDocumentedCodes(t *testing.T) {
	var rows []string
	for _, code := range answered {
		info, again := code.Info(), "no"
		if info.Retryable {
			again = "yes"
		}
		a := caisson.ControlAnswer{State: caisson.AnswerRejected, Error: caisson.Errorf(code, "x")}
		rows = append(rows, fmt.Sprintf("| `%s` | %s | %d | %s |", code, again, ctl.Exit(a), info.Meaning))
	}
	if table := strings.Join(rows, "\n"); !strings.Contains(document(t), table+"\n\n") {
		t.Errorf("the table of errors is not that of the program, which is\n%s", table)
	}
	for _, reason := range caisson.ParkReasons() {
		if !slices.Contains(answered, reason) {
			t.Errorf("%s is not documented", reason)
		}
	}
}

func TestDocumentedBounds(t *testing.T) {
	text := document(t)
	for _, bound := range []string{
		fmt.Sprintf("%d bytes", caisson.ControlBody), fmt.Sprintf("0 to %d", caisson.ControlWait.Milliseconds()),
		fmt.Sprintf("newest %d,%03d", caisson.ControlKept/1000, caisson.ControlKept%1000), fmt.Sprintf("%d run at once", caisson.ControlRunning),
		fmt.Sprintf("%d wait", caisson.ControlQueued), fmt.Sprintf("%d may wait for a person", caisson.ControlReviews),
		caisson.ControlEnv, caisson.ControlDir, caisson.ProgramsDir,
	} {
		if !strings.Contains(text, bound) {
			t.Errorf("%q is not in the document", bound)
		}
	}
}

// TestDocumentedExamples reads every example as the program would.
func TestDocumentedExamples(t *testing.T) {
	kinds := map[string]int{}
	effectFailed := false
	for _, m := range regexp.MustCompile("(?s)```json (\\w+)\n(.*?)\n```").FindAllStringSubmatch(document(t), -1) {
		kinds[m[1]]++
		var as any
		switch m[1] {
		case "request":
			var named struct{ ID caisson.RequestID }
			if err := json.Unmarshal([]byte(m[2]), &named); err != nil {
				t.Fatal(err)
			}
			if _, err := channel.Decode([]byte(m[2]), named.ID); err != nil {
				t.Errorf("%s: %v", m[2], err)
			}
			continue
		case "answer":
			as = &caisson.ControlAnswer{}
		case "identity":
			as = &caisson.ControlIdentityFile{}
		case "status":
			as = &caisson.ControlStatusFile{}
		}
		dec := json.NewDecoder(strings.NewReader(m[2]))
		dec.DisallowUnknownFields()
		if err := dec.Decode(as); err != nil {
			t.Errorf("%s: %v", m[2], err)
			continue
		}
		// What the program writes is the same, key by key.
		var again bytes.Buffer
		enc := json.NewEncoder(&again)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(as); err != nil || strings.TrimSpace(again.String()) != m[2] {
			t.Errorf("%s\nis written as\n%s%v", m[2], &again, err)
		}
		if a, is := as.(*caisson.ControlAnswer); is && a.State == caisson.AnswerCompleted && a.Error != nil {
			effectFailed = true
			if status := ctl.Exit(*a); status != caisson.ExitFailed {
				t.Errorf("%s: a client exits %d", m[2], status)
			}
		}
	}
	if !effectFailed {
		t.Error("no example shows that an effect that failed, as a look for a request of which there is no record, is completed, with an error")
	}
	if kinds["request"] < 1 || kinds["answer"] < 4 || kinds["identity"] != 1 || kinds["status"] < 2 {
		t.Errorf("there are examples of %v", kinds)
	}
}

// TestShellClient runs the example client against real files and a script in the
// place of a broker, which gives every kind of answer; package control has it ask
// a real one.
func TestShellClient(t *testing.T) {
	script, err := filepath.Abs("../../examples/control-client.sh")
	if err != nil {
		t.Fatal(err)
	}
	o := start(t, func(o *other, r caisson.ControlRequest) {
		switch r.Verb {
		case "done":
			o.accept(r, caisson.AnswerAccepted)
			o.complete(r, 0, `a "state":"rejected" in a text`, nil)
		case "failed":
			o.complete(r, 75, "", nil)
		case "later":
			o.accept(r, caisson.AnswerWaiting)
		case "recover":
			if strings.Contains(string(r.Input), "00000000000000bb") { // of an earlier generation
				a := of(r, caisson.AnswerCompleted)
				a.Exit, a.Error = 1, caisson.Errorf(caisson.CodeGenerationStale, "it was completed")
				if err := o.Answer(a, nil); err != nil {
					t.Error(err)
				}
				return
			}
			o.reject(r, caisson.CodeNotFound)
		default:
			o.reject(r, caisson.Code(r.Verb))
		}
	})
	run := func(o *other, env string, args ...string) (string, int) {
		cmd := exec.CommandContext(t.Context(), "sh", append([]string{script}, args...)...)
		cmd.Env = append(os.Environ(), caisson.ControlEnv+"="+o.dir, env)
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return string(out), cmd.ProcessState.ExitCode()
	}
	for verb, want := range map[string]int{
		"done": 0, "failed": 1, "busy": 75, "refused": 77, "request-invalid": 2, "result-unknown": 76, "generation-stale": 1,
	} {
		out, status := run(o, "X=", verb, `{"text": "a \"quoted\" one"}`)
		got := o.last()
		if status != want || !json.Valid([]byte(out)) || string(got.Input) != `{"text": "a \"quoted\" one"}` || got.Wait != 10000 {
			t.Errorf("%s: exit %d, %s, %+v", verb, status, out, got)
		}
	}
	if _, status := run(o, "X=", "done"); status != 0 || string(o.last().Input) != "{}" {
		t.Errorf("without input: %d, %s", status, o.last().Input)
	}
	for _, args := range [][]string{{}, {"a\"b"}, {"a", "b", "c"}} {
		if out, status := run(o, "X=", args...); status != 2 {
			t.Errorf("%q: %d, %s", args, status, out)
		}
	}
	// One that waits for a person is left, and come back to.
	out, status := run(o, "CAISSON_TIMEOUT=1", "later")
	later := o.last()
	if status != 76 || !strings.Contains(out, "a person is asked") || !strings.Contains(out, "wait "+string(later.ID)+" goes on waiting") {
		t.Errorf("left: %d, %s", status, out)
	}
	if out, status := run(o, "CAISSON_TIMEOUT=1", "wait", string(later.ID)); status != 76 {
		t.Errorf("come back too early: %d, %s", status, out)
	}
	if out, status := run(o, "CAISSON_TIMEOUT=3", "wait", "00000000000000bb"); status != 1 || !strings.Contains(out, "it was completed") {
		t.Errorf("of an earlier generation: %d, %s", status, out)
	}
	o.complete(later, 0, "the answer", nil)
	if out, status := run(o, "X=", "wait", string(later.ID)); status != 0 || !strings.Contains(out, "the answer") {
		t.Errorf("come back: %d, %s", status, out)
	}
	if out, status := run(o, "X=", "wait", "00000000-0000-0000"); status != 1 || !strings.Contains(out, `"not-found"`) {
		t.Errorf("one that nobody knows: %d, %s", status, out)
	}
	for _, id := range []string{"", "../../x", "A"} {
		if _, status := run(o, "X=", "wait", id); status != 2 {
			t.Errorf("%q: %d", id, status)
		}
	}
	o.left()
	nobody := start(t, nil)
	gone := start(t, func(o *other, r caisson.ControlRequest) {
		if r.Verb == "recover" {
			o.reject(r, caisson.CodeNotFound)
			return
		}
		o.says(caisson.BrokerHealthy, 99) // another broker, which has no record of it
	})
	if out, status := run(gone, "X=", "done"); status != 75 || !strings.Contains(out, "before it was recorded") {
		t.Errorf("who took it ended: %d, %s", status, out)
	}
	gone.left()
	if out, status := run(nobody, "CAISSON_WAIT=1", "ask"); status != 75 || !strings.Contains(out, "taken back") {
		t.Errorf("nobody takes it: %d, %s", status, out)
	}
	nobody.left()
}

package tool

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson"
)

func TestShell(t *testing.T) {
	k := newKit(t)
	for _, c := range []struct {
		name    string
		input   in
		outcome caisson.Outcome
		cause   caisson.Cause
		text    string
		code    int
	}{
		{"done", in{"command": "echo out; echo err >&2; echo more"}, "", "", "out\nerr\nmore\n[exit 0 in ", 0},
		{"no newline", in{"command": "printf x"}, "", "", "x\n[exit 0 in ", 0},
		{"silent", in{"command": "true"}, "", "", "[exit 0 in ", 0},
		{"failed", in{"command": "echo bad; exit 3"}, caisson.OutcomeFailed, "", "bad\n[exit 3 in ", 3},
		{"signal", in{"command": "kill -9 $$"}, caisson.OutcomeFailed, "", "[ended by signal 9 after ", 137},
		{"deadline", in{"command": "echo begun; sleep 1000", "timeout": 3}, caisson.OutcomeFailed, caisson.CauseDeadline, "begun\n[out of time after ", 124},
		{"left running", in{"command": "sleep 1000 & echo x"}, "", "", "1 process left running was ended", 0},
		{"no input", in{"command": "cat"}, "", "", "[exit 0 in ", 0},
		{"effect id", in{"command": `echo "$CAISSON_EFFECT_ID"`}, "", "", "e-", 0},
		{"workspace", in{"command": "pwd"}, "", "", k.workspace + "\n", 0},
		{"not UTF-8", in{"command": `printf 'a\377b'`}, "", "", "a\uFFFDb\n", 0},
	} {
		result, err := k.do("shell", c.input)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		var exit caisson.Exit
		if err := json.Unmarshal(result.Data, &exit); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if result.Outcome != c.outcome || result.Cause != c.cause || !strings.Contains(result.Text, c.text) || exit.Code != c.code {
			t.Errorf("%s: got %+v, exit %+v", c.name, result, exit)
		}
		if (result.Outcome == "" || c.cause == "") != (result.Error == nil) {
			t.Errorf("%s: error %v", c.name, result.Error)
		}
	}
}

func TestShellCancel(t *testing.T) {
	k := newKit(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	call := k.call("shell", in{"command": "echo begun; echo > begun; while :; do sleep 1000; done"})
	executor, err := k.tools.Get("shell").Hold(ctx, call, "e-1")
	if err != nil {
		t.Fatal(err)
	}
	if id := executor.Identity(); id == nil || id.PID == 0 || id.Start == 0 {
		t.Errorf("identity %+v", id)
	}
	if _, err := os.Stat(filepath.Join(k.workspace, "begun")); err == nil {
		t.Fatal("it began while it was held")
	}
	waiter := k.call("shell", in{"command": "while ! test -e begun; do sleep 0.01; done"})
	other, err := k.tools.Get("shell").Hold(t.Context(), waiter, "e-2")
	if err != nil {
		t.Fatal(err)
	}
	begun := make(chan error, 1)
	go func() {
		_, err := other.Open(t.Context())
		cancel(&caisson.CauseError{Cause: caisson.CauseUser})
		begun <- err
	}()
	result, err := executor.Open(ctx)
	if err != nil || result.Outcome != caisson.OutcomeCancelled || result.Cause != caisson.CauseUser || !strings.HasPrefix(result.Text, "begun\n[stopped after ") {
		t.Errorf("got %+v, %v", result, err)
	}
	if err := <-begun; err != nil {
		t.Error(err)
	}
}

func TestShellDrop(t *testing.T) {
	k := newKit(t)
	executor, err := k.tools.Get("shell").Hold(t.Context(), k.call("shell", in{"command": "echo > begun"}), "e-1")
	if err != nil {
		t.Fatal(err)
	}
	executor.Drop()
	k.must("shell", in{"command": "test ! -e begun"})
}

func TestShellSandboxLost(t *testing.T) {
	k := newKit(t)
	executor, err := k.tools.Get("shell").Hold(t.Context(), k.call("shell", in{"command": "echo begun; while :; do sleep 1000; done"}), "e-1")
	if err != nil {
		t.Fatal(err)
	}
	if err := k.opts.Sandbox.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := executor.Open(t.Context()); caisson.CodeOf(err) != caisson.CodeOutcomeUnknown {
		t.Errorf("got %v, want %s", err, caisson.CodeOutcomeUnknown)
	}
}

func TestShellSpill(t *testing.T) {
	k := newKit(t)
	result := k.must("shell", in{"command": "i=0; while [ $i -lt 20000 ]; do echo $i; i=$((i+1)); done"})
	if result.Spill == nil || result.Bytes != 108_890 || result.Spill.Total != result.Bytes {
		t.Fatalf("got %+v, %d bytes", result.Spill, result.Bytes)
	}
	raw, err := os.ReadFile(result.Spill.Path)
	if err != nil || caisson.DigestOf(raw) != result.Spill.SHA256 || int64(len(raw)) != result.Bytes {
		t.Errorf("%d bytes, %v", len(raw), err)
	}
	if !strings.HasPrefix(result.Text, "0\n1\n") || !strings.Contains(result.Text, "19999\n[exit 0") || len(result.Text) > 40_000 {
		t.Errorf("%d bytes of text", len(result.Text))
	}
	if name := spillName("r/../../x.1"); strings.ContainsAny(name, "/.") {
		t.Errorf("a call id leads to %q", name)
	}
}

package workspace

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Half of what git says is not taken for all of it, though git ended well: its
// output was kept from coming to an end, here by a process that it left. Of a
// command that says nothing the status is enough.
func TestHalfAnAnswerIsNone(t *testing.T) {
	dir := t.TempDir()
	at := filepath.Join(dir, "git")
	if err := os.WriteFile(at, []byte("#!/bin/sh\nsleep 1000 &\necho $! >"+dir+"/pid\necho half\n"), 0o755); err != nil { //nolint:gosec // it is to be run
		t.Fatal(err)
	}
	p := &program{path: at, empty: dir, env: []string{"PATH=" + os.Getenv("PATH")}, drain: 50 * time.Millisecond}
	run := func(args ...string) error {
		_, err := p.run(t.Context(), invocation{args: args})
		raw, readErr := os.ReadFile(filepath.Join(dir, "pid"))
		if readErr != nil {
			t.Fatal(readErr)
		}
		left, _ := strconv.Atoi(strings.TrimSpace(string(raw)))
		if err := syscall.Kill(left, syscall.SIGKILL); err != nil {
			t.Error(err)
		}
		return err
	}
	if err := run("rev-parse", "HEAD"); err == nil || !strings.Contains(err.Error(), "its output did not end") {
		t.Errorf("%v", err)
	}
	if err := run("read-tree", "-m", "-u", "x"); err != nil {
		t.Errorf("of a command that says nothing: %v", err)
	}
}

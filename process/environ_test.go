package process

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
)

// endless is an environment as a process may show it that has changed where its own
// is (PR_SET_MM_MAP): all of its memory.
type endless struct{ read int }

func (e *endless) Read(p []byte) (int, error) {
	clear(p)
	if e.read += len(p); e.read > 2*maxEnviron {
		return 0, errors.New("it has no end")
	}
	return len(p), nil
}

// Of an environment no more is read than a program can be given.
func TestEnvironWithoutEnd(t *testing.T) {
	by := caisson.NewInstanceID()
	env := &endless{}
	if _, is := markIn(env, by); is {
		t.Error("a mark in nothing")
	}
	if env.read > maxEnviron+1<<20 {
		t.Errorf("%d bytes of it are read", env.read)
	}
	entry := Mark(nil, by)[0]
	for given, want := range map[string]bool{
		"A=1\x00" + entry + "\x00B=2\x00": true, entry: true,
		strings.Repeat("A=1\x00", 1<<17) + entry + "\x00": true,
		"A=" + entry + "\x00":                             false, "A=1\x00" + entry + "x\x00": false, "": false,
	} {
		if _, got := markIn(io.MultiReader(strings.NewReader(given)), by); got != want {
			t.Errorf("of %d bytes: %t", len(given), got)
		}
	}
}

// A process that is becoming another program shows no environment for a moment. It
// bears its mark then, too.
func TestMarkWhileItBegins(t *testing.T) {
	t.Parallel()
	by := caisson.NewInstanceID()
	again := filepath.Join(t.TempDir(), "again")
	if err := os.WriteFile(again, []byte("#!/bin/sh\nexec \"$0\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), again)
	cmd.Env = Mark(os.Environ(), by)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed
	}()
	for n := range 5000 {
		l := marks{by: by, late: time.Now().Add(time.Minute)}
		if !l.bears(t.Context(), cmd.Process.Pid) {
			t.Fatalf("at look %d it bears no mark", n)
		}
	}
}

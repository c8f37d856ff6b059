package control_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/airlock"
	"github.com/caisson-run/caisson/control"
	"github.com/caisson-run/caisson/control/channel"
	"github.com/caisson-run/caisson/internal/fault"
	"github.com/caisson-run/caisson/ledger/sqlite"
)

const childEnv = "CAISSON_CONTROL_TEST_CHILD"

// child is a process that serves the channel of a world until its standard input
// ends, or its broker does.
type child struct {
	Dir string
	Run caisson.RunID
}

// childMain is what the test program does where it is started as a child.
func childMain() {
	text := os.Getenv(childEnv)
	if text == "" {
		return
	}
	var c child
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		panic(err)
	}
	code, err := c.serve(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("ended", code)
	os.Exit(0)
}

// serve returns the code with which its broker ended.
func (c child) serve(ctx context.Context) (caisson.Code, error) {
	l, err := sqlite.Open(ctx, sqlite.Options{Path: filepath.Join(c.Dir, "ledger.db")})
	if err != nil {
		return "", err
	}
	defer l.Close()
	drive, err := takeLease(ctx, l, c.Run)
	if err != nil {
		return "", err
	}
	service := control.New(control.Options{Ledger: l, Watcher: channel.NewWatcher(channel.WatcherOptions{})})
	running, stop := context.WithCancel(ctx)
	defer stop()
	go func() { _ = service.Run(running) }()
	var b *control.Broker
	opened := make(chan struct{})
	b, err = service.Open(ctx, control.Sandbox{
		Dir: filepath.Join(c.Dir, "sandbox"), Drive: drive, Record: caisson.SandboxRecord{ID: "s0123456789", Run: c.Run, Engine: "none"},
		Door: doorOf(l, drive, policy{"gated": caisson.ReviewIt}, func(n airlock.Notice) { <-opened; b.Observe(n) }),
		Verbs: func() []caisson.Tool {
			return []caisson.Tool{verb{name: "count", effects: filepath.Join(c.Dir, "effects")}, verb{name: "gated", effects: filepath.Join(c.Dir, "effects")}}
		},
	})
	if err != nil {
		return "", err
	}
	close(opened)
	fmt.Println("ready")
	left := make(chan struct{})
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); close(left) }()
	select {
	case <-left:
		err = b.Close(ctx)
	case <-b.Done():
	}
	return caisson.CodeOf(b.Err()), err
}

// process is a child at work.
type process struct {
	t     testing.TB
	cmd   *exec.Cmd
	stdin io.Closer
	lines *bufio.Scanner
}

// spawn starts a child, with faults armed there, that has opened the channel
// when spawn returns.
func (w *world) spawn(faults string) *process {
	w.t.Helper()
	text, err := json.Marshal(child{w.dir, w.run})
	if err != nil {
		w.t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), childEnv+"="+string(text), fault.Env+"="+faults)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	p := &process{w.t, cmd, stdin, bufio.NewScanner(stdout)}
	w.t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	if !p.lines.Scan() || p.lines.Text() != "ready" {
		w.t.Fatalf("the child says %q", p.lines.Text())
	}
	return p
}

// died waits for the child's end, and tells whether it was killed.
func (p *process) died() bool {
	p.t.Helper()
	for p.lines.Scan() {
	}
	_ = p.cmd.Wait()
	status, is := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return is && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// ended has the child end, where it does not by itself, and returns its last word.
func (p *process) ended(byItself bool) string {
	p.t.Helper()
	if !byItself {
		p.stdin.Close()
	}
	if !p.lines.Scan() {
		p.t.Fatal("the child says nothing at its end")
	}
	last := p.lines.Text()
	if err := p.cmd.Wait(); err != nil {
		p.t.Errorf("the child: %v", err)
	}
	return last
}

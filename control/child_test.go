package control_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
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
	Box bool // it has the verb of a program inside
	// Others are runs of the same ledger whose channels it serves too, each in a
	// directory by the run's name.
	Others []caisson.RunID
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

// serve returns the code with which its broker, or that of another, ended.
func (c child) serve(ctx context.Context) (caisson.Code, error) {
	l, err := sqlite.Open(ctx, sqlite.Options{Path: filepath.Join(c.Dir, "ledger.db")})
	if err != nil {
		return "", err
	}
	defer l.Close()
	more, closed, err := programs(ctx, c.Dir, c.Box)
	defer closed()
	if err != nil {
		return "", err
	}
	service := control.New(control.Options{Ledger: l, Watcher: channel.NewWatcher(channel.WatcherOptions{})})
	running, stop := context.WithCancel(ctx)
	defer stop()
	go func() { _ = service.Run(running) }()
	all := map[caisson.RunID]string{c.Run: "sandbox"}
	for _, run := range c.Others {
		all[run] = string(run)
	}
	ended := make(chan *control.Broker, len(all))
	var brokers []*control.Broker
	for run, name := range all {
		b, err := c.open(ctx, l, service, run, name, more)
		if err != nil {
			return "", err
		}
		brokers = append(brokers, b)
		go func() { <-b.Done(); ended <- b }() // ends with this process at the latest
	}
	fmt.Println("ready")
	left := make(chan struct{})
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); close(left) }()
	select {
	case <-left:
		for _, b := range brokers {
			err = errors.Join(err, b.Close(ctx))
		}
		return "", err
	case b := <-ended:
		return caisson.CodeOf(b.Err()), nil
	}
}

func (c child) open(ctx context.Context, l caisson.Ledger, service *control.Service, run caisson.RunID, name string, more []caisson.Tool) (*control.Broker, error) {
	drive, err := takeLease(ctx, l, run)
	if err != nil {
		return nil, err
	}
	effects := filepath.Join(c.Dir, "effects")
	var b *control.Broker
	opened := make(chan struct{})
	b, err = service.Open(ctx, control.Sandbox{
		Dir: filepath.Join(c.Dir, name), Drive: drive, Record: caisson.SandboxRecord{ID: caisson.SandboxID("s0123456789" + name), Run: run, Engine: "none"},
		Door: doorOf(l, drive, policy{"gated": caisson.ReviewIt, "denied": caisson.Deny}, func(n airlock.Notice) { <-opened; b.Observe(n) }),
		Verbs: func() []caisson.Tool {
			own := []caisson.Tool{verb{name: "count", effects: effects}, verb{name: "gated", effects: effects}, verb{name: "denied", effects: effects}}
			return append(own, more...)
		},
	})
	if err == nil {
		close(opened)
	}
	return b, err
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
	p := w.launch(faults)
	if !p.lines.Scan() || p.lines.Text() != "ready" {
		w.t.Fatalf("the child says %q", p.lines.Text())
	}
	return p
}

// launch starts a child, which may die before it has opened the channel.
func (w *world) launch(faults string) *process {
	w.t.Helper()
	text, err := json.Marshal(child{Dir: w.dir, Run: w.run, Box: w.boxed, Others: w.others})
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
	w.t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	return &process{w.t, cmd, stdin, bufio.NewScanner(stdout)}
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

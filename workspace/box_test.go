package workspace_test

import (
	"context"
	"errors"
	"os/exec"
	"sync"
	"testing"

	"github.com/caisson-run/caisson"
)

// bwrapBox is a boundary made by bubblewrap: the host read-only, the
// workspace, its shadow and its home read-write, the cover in place of .git.
type bwrapBox struct {
	ws   caisson.Workspace
	mu   sync.Mutex
	runs int
}

func newBox(t *testing.T, ws caisson.Workspace) *bwrapBox {
	t.Helper()
	if err := exec.Command("bwrap", "--ro-bind", "/", "/", "--unshare-pid", "--proc", "/proc", "true").Run(); err != nil {
		t.Skipf("needs bubblewrap that can make namespaces: %v", err)
	}
	return &bwrapBox{ws: ws}
}

func (b *bwrapBox) used() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.runs
}

func (b *bwrapBox) Close() error { return nil }

func (b *bwrapBox) Hold(_ context.Context, cmd caisson.Command) (caisson.Process, error) {
	args := []string{
		"--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-pid", "--unshare-net", "--die-with-parent",
		"--bind", b.ws.Path, b.ws.Path, "--bind", b.ws.Shadow, b.ws.Shadow, "--bind", b.ws.Home, b.ws.Home,
		"--ro-bind", b.ws.Cover, b.ws.Path + "/.git",
		"--chdir", b.ws.Path, "--clearenv", "--setenv", "PATH", "/usr/bin:/bin", "--setenv", "HOME", b.ws.Home,
	}
	for _, kv := range cmd.Env {
		for i := range len(kv) {
			if kv[i] == '=' {
				args = append(args, "--setenv", kv[:i], kv[i+1:])
				break
			}
		}
	}
	argv := cmd.Argv
	if cmd.Line != "" {
		argv = []string{"/bin/sh", "-c", cmd.Line}
	}
	c := exec.Command("bwrap", append(append(args, "--"), argv...)...)
	c.Stdin, c.Stdout, c.Stderr = cmd.Stdin, cmd.Stdout, cmd.Stderr
	b.mu.Lock()
	b.runs++
	b.mu.Unlock()
	return &bwrapProcess{cmd: c}, nil
}

type bwrapProcess struct{ cmd *exec.Cmd }

func (p *bwrapProcess) Identity() caisson.ProcessIdentity {
	return caisson.ProcessIdentity{PID: p.cmd.Process.Pid}
}
func (p *bwrapProcess) Release() error { return p.cmd.Start() }
func (p *bwrapProcess) Wait(ctx context.Context) (caisson.Exit, error) {
	stop := context.AfterFunc(ctx, func() { _ = p.cmd.Process.Kill() })
	defer stop()
	err := p.cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return caisson.Exit{Code: exit.ExitCode()}, nil
	}
	return caisson.Exit{}, err
}
func (p *bwrapProcess) Stop(caisson.Cause)           { _ = p.cmd.Process.Kill() }
func (p *bwrapProcess) Resize(caisson.Winsize) error { return nil }
func (p *bwrapProcess) Signal(int) error             { return nil }
func (p *bwrapProcess) Drop()                        {}

package process

import (
	"errors"
	"os"
	"os/exec"
	"syscall"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/proctree"
)

// Detach starts a program that outlives this process: in a session of its own,
// with no streams, and without the mark that this one may bear. Nobody waits for it
// here; its identity is how it is found.
func Detach(c Command) (caisson.ProcessIdentity, error) {
	cmd := &exec.Cmd{
		Path: c.Path, Args: append([]string{c.Path}, c.Args...), Env: append([]string{}, unmarked(c.Env)...), Dir: c.Dir,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if err := cmd.Start(); err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return caisson.ProcessIdentity{}, caisson.Errorf(caisson.CodeNotFound, "the program %s is not there: %w", c.Path, err)
		}
		return caisson.ProcessIdentity{}, caisson.Errorf(caisson.CodeInternal, "start %s: %w", c.Path, err)
	}
	id, err := here()
	if err != nil {
		return caisson.ProcessIdentity{}, errors.Join(err, cmd.Process.Kill(), cmd.Wait())
	}
	p, _ := proctree.Of(cmd.Process.Pid) // not reaped yet, so it is there
	id.PID, id.Start = cmd.Process.Pid, p.Start
	return id, cmd.Process.Release()
}

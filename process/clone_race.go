//go:build race

package process

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Start is os.StartProcess: the race detector keeps its own books of every
// thread, which a child in the same memory would spoil. TimerSlack and Turn,
// which change nothing that is promised, are left as they are.
func (c *Cloner) Start(p Program) (*os.Process, error) {
	if len(p.Files) > FirstFreeFD {
		return nil, fmt.Errorf("start program: %w", unix.EMFILE)
	}
	attr := *p.Attr
	return os.StartProcess(p.Path, p.Argv, &os.ProcAttr{Dir: p.Dir, Env: append([]string{}, p.Env...), Files: p.Files, Sys: &attr})
}

//go:build !linux

package container

import (
	"context"
	"errors"
	"os"

	"github.com/caisson-run/caisson"
)

// platform is what lends files on this system, whose engines' kernel is another.
type platform struct{}

func (*platform) close() error { return nil }

func (*Engine) lend(*staging, []string, user) error {
	return errors.New("files cannot be shown as another user's on this system")
}

func inode(string) uint64 { return 0 }

func (*staging) unmount() error { return nil }

func sharesKernel(string) bool { return false }

func identity(int, string) (caisson.ProcessIdentity, error) {
	return caisson.ProcessIdentity{}, errors.ErrUnsupported
}

func within(caisson.ProcessIdentity) func(holder, pid int) (caisson.ProcessIdentity, error) {
	return nil
}

func ended(context.Context, caisson.ProcessIdentity) error { return nil }

func kill(context.Context, caisson.ProcessIdentity) error { return errors.ErrUnsupported }

func oomCount(int) func() (int64, error) { return nil }

func mostProcesses() int64 { return 0 }

func mayHoldCores() bool { return true }

const carries = false

const outletName = "outlet"

// door is none: no engine is on this system's kernel.
type door struct{}

func (*staging) openDoor() (*door, error) { return nil, errors.ErrUnsupported }

func (*door) take(caisson.ProcessIdentity) (*os.File, error) { return nil, errors.ErrUnsupported }

func (*door) close() error { return nil }

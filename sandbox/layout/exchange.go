//go:build linux

package layout

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/guest/pack"
	"github.com/caisson-run/caisson/guest/plan"
)

const (
	// openBound is how long a set-up may take that needs a few milliseconds.
	openBound = 5 * time.Second
	// reportLimit bounds what a guest may answer.
	reportLimit = 256 << 10
)

// pair makes a connected pair; ours can be waited for with deadlines.
func pair(name string) (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.SetNonblock(fds[0], true)
	}
	if err != nil {
		return nil, nil, caisson.Errorf(caisson.CodeInternal, "make %s: %w", name, err)
	}
	return os.NewFile(uintptr(fds[0]), name), os.NewFile(uintptr(fds[1]), name), nil
}

// exchange sends the plan and returns the report, over our end of a pair, which
// it closes. An error also where the set-up failed.
func exchange(ctx context.Context, control *os.File, p plan.Plan) (plan.Report, error) {
	defer control.Close()
	var report plan.Report
	stop := context.AfterFunc(ctx, func() { _ = control.SetDeadline(time.Now()) })
	defer stop()
	_ = control.SetDeadline(time.Now().Add(openBound)) // a socket has deadlines
	_, err := control.Write(pack.Bytes(&p))
	if err == nil {
		err = shutdownWrite(control)
	}
	var raw []byte
	if err == nil {
		raw, err = io.ReadAll(io.LimitReader(control, reportLimit))
	}
	if err == nil {
		err = pack.Read(raw, &report)
	}
	switch {
	case ctx.Err() != nil:
		return report, Cancelled(ctx)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return report, caisson.Errorf(caisson.CodeIsolationUnavailable, "the sandbox was not set up within %v", openBound)
	case err != nil:
		return report, caisson.Errorf(caisson.CodeSandboxLost, "set up the sandbox: %w", err)
	case report.Failed != "":
		return report, RefusedSetUp(report)
	}
	return report, nil
}

func shutdownWrite(f *os.File) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := conn.Control(func(fd uintptr) { failed = unix.Shutdown(int(fd), unix.SHUT_WR) }); err != nil {
		return err
	}
	if failed != nil {
		return fmt.Errorf("end plan: %w", failed)
	}
	return nil
}

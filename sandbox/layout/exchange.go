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
	// thawed is how long this process looks for what it was told while it may have
	// been stopped itself.
	thawed = time.Second
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
	answer := Within(ctx, control, openBound)
	_, err := control.Write(pack.Bytes(&p))
	if err == nil {
		err = shutdownWrite(control)
	}
	var raw []byte
	if err == nil {
		raw, err = io.ReadAll(io.LimitReader(answer, reportLimit))
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

// Within returns what is read of a pipe or a socket within a bound, from now on. When
// that is over it is looked once more: this process may have been stopped, and what was
// said meanwhile waits to be read.
func Within(ctx context.Context, f *os.File, bound time.Duration) io.Reader {
	_ = f.SetDeadline(time.Now().Add(bound)) // both have deadlines
	return &bounded{ctx: ctx, file: f}
}

type bounded struct {
	ctx  context.Context //nolint:containedctx // of one exchange
	file *os.File
	late bool
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.file.Read(p)
	if !errors.Is(err, os.ErrDeadlineExceeded) || b.late || b.ctx.Err() != nil {
		return n, err
	}
	b.late = true
	_ = b.file.SetReadDeadline(time.Now().Add(thawed))
	return b.file.Read(p)
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

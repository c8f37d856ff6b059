package cli

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/caisson-run/caisson"
)

// exitUnread is how a shell tells that the kernel ended who wrote to a pipe that
// nobody reads.
const exitUnread = 128 + int(syscall.SIGPIPE)

// errUnread is why a command ends whose output nobody reads any more.
var errUnread = &caisson.CauseError{Cause: caisson.CauseShutdown, Text: "nobody reads what it prints any more"}

// isUnread tells whether that is why ctx has ended.
func isUnread(ctx context.Context) bool { return errors.Is(context.Cause(ctx), errUnread) }

// endUnread returns a context that ends, with errUnread, when unread is called:
// as the kernel would end this process, but in order. The kernel's signal is taken
// and not looked at, for it comes of any socket too; what this process starts has
// it as it is by default. Call stop when nothing is written any more.
func endUnread(ctx context.Context) (_ context.Context, unread, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	taken := make(chan os.Signal, 1)
	signal.Notify(taken, syscall.SIGPIPE)
	return ctx, func() { cancel(errUnread) }, func() {
		signal.Stop(taken)
		cancel(nil)
	}
}

// output is what a command prints. It remembers that something could not be
// written, so that who reads a file of it is not told that all went well: most
// of what prints has nowhere to say an error.
type output struct {
	file   *os.File // nil: nobody wants it
	unread func()   // is called when nobody reads it any more

	mu   sync.Mutex
	lost error // why the first write did not succeed
}

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) {
	if o.file == nil {
		return len(p), nil
	}
	n, err := o.file.Write(p)
	if errors.Is(err, syscall.EPIPE) {
		o.unread()
	}
	if err != nil {
		o.mu.Lock()
		if o.lost == nil {
			o.lost = err
		}
		o.mu.Unlock()
	}
	return n, err
}

// whole returns the error that something could not be written, if that is so, and
// its cause. Of a reader that went away nothing is told: see endUnread.
func (o *output) whole() (told, cause error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.lost == nil {
		return nil, nil
	}
	code := caisson.CodeWriteFailed
	if errors.Is(o.lost, syscall.ENOSPC) || errors.Is(o.lost, syscall.EDQUOT) {
		code = caisson.CodeDiskFull
	}
	why := o.lost
	var path *os.PathError
	if errors.As(why, &path) {
		why = path.Err
	}
	return caisson.Errorf(code, "what this command prints could not be written, and is not whole: %w", why).
		WithHint("Let it print to where there is room; what was done is on record."), o.lost
}

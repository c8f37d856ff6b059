package cli

import (
	"errors"
	"os"
	"sync"
	"syscall"

	"github.com/caisson-run/caisson"
)

// output is what a command prints. It remembers that something could not be
// written, so that who reads a file of it is not told that all went well: most
// of what prints has nowhere to say an error.
type output struct {
	file *os.File // nil: nobody wants it

	mu   sync.Mutex
	lost error // why the first write did not succeed
}

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) {
	if o.file == nil {
		return len(p), nil
	}
	n, err := o.file.Write(p)
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
// its cause. Of a reader that went away nothing is told: the kernel ends this process.
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

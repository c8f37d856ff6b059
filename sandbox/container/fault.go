package container

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"strings"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/caisson-run/caisson"
)

// Bounds on the engine's answers. It does the work of a container's start in
// well under a second, and a loaded machine needs several.
const (
	callBound  = 20 * time.Second
	lookBound  = 5 * time.Second  // a question that needs no work
	infoBound  = 10 * time.Second // one for which it looks at its storage
	pullBound  = 15 * time.Minute // a large image over a slow line
	buildBound = 30 * time.Minute
)

// errSlow is the cause of a bound's end.
var errSlow = errors.New("no answer in time")

// bound limits a call to the engine.
func bound(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d, errSlow)
}

// fault gives a code to what the engine, or the way to it, said.
func (e *Engine) fault(ctx context.Context, what string, err error) error {
	var coded *caisson.Error
	switch {
	case err == nil || errors.As(err, &coded):
		return err
	case errors.Is(context.Cause(ctx), errSlow):
		return e.unavailable("%s: the engine does not answer in time", what)
	case ctx.Err() != nil:
		return caisson.Errorf(caisson.CodeCancelled, "%s: cancelled: %w", what, context.Cause(ctx))
	case strings.Contains(err.Error(), "no space left on device"):
		return caisson.Errorf(caisson.CodeDiskFull, "%s: %s's disk is full: %w", what, e.opts.Name, err).
			WithHint("Free some space where the engine keeps its data, for example with `docker system prune`.")
	case unreached(err) && e.socketMissing():
		return e.unavailable("nothing is at its socket")
	case unreached(err), closedEarly(err):
		// What the client says of it is the request, with the socket's path in an address.
		gone := e.unavailable("%s: it does not answer, or went away meanwhile", what)
		gone.Err = err
		return gone
	case cerrdefs.IsUnavailable(err):
		return e.unavailable("%s: %w", what, err)
	case cerrdefs.IsPermissionDenied(err):
		return e.unavailable("%s: %w", what, err).WithHint("Your user may not use the engine; join its group, or use another engine.")
	}
	return caisson.Errorf(caisson.CodeIsolationUnavailable, "%s: %w", what, err).
		WithHint("The engine %s refused it; see its log, or use another engine.", e.opts.Name)
}

// unreached tells whether there was no way to the engine. What takes over a
// connection says so in another way than other requests.
func unreached(err error) bool {
	var op *net.OpError
	return client.IsErrConnectionFailed(err) || errors.As(err, &op) && op.Op == "dial"
}

// socketMissing tells whether the engine has a socket that is not there, which is
// how it is where it is not installed, or was not started.
func (e *Engine) socketMissing() bool {
	path, isSocket := strings.CutPrefix(e.endpoint(), "unix://")
	if !isSocket {
		return false
	}
	_, err := os.Stat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// closedEarly tells whether the engine went away in the middle of an answer.
func closedEarly(err error) bool {
	for _, text := range []string{"EOF", "connection reset", "broken pipe", "use of closed network connection", "connection refused"} {
		if strings.Contains(err.Error(), text) {
			return true
		}
	}
	return false
}

func (e *Engine) unavailable(format string, args ...any) *caisson.Error {
	return caisson.Errorf(caisson.CodeEngineUnavailable, "engine "+e.opts.Name+": "+format, args...).
		WithHint("Is it running? It was looked for at %s.", e.endpoint())
}

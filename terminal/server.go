package terminal

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/localsocket"
)

// Options say what a server serves.
type Options struct {
	Path   string          // of the socket; its directory is made if it is missing
	Size   caisson.Winsize // until a viewer has another
	Record *Recording      // nil: nothing is recorded
	// Attached is told of each viewer before it is let in; an error refuses it.
	// Detached is told when it has gone, unless it went because the program
	// ended. Both may be nil.
	Attached func(Viewer) error
	Detached func(v Viewer, why string)
	// Stall is how long a viewer may take nothing of what there is for it; 0: 10 s.
	Stall time.Duration
}

// Viewer is one who looks.
type Viewer struct {
	N        int             `json:"viewer"` // from 1, in the order of coming
	PID      int             `json:"pid"`
	ReadOnly bool            `json:"read_only,omitempty"`
	Size     caisson.Winsize `json:"size"` // 0 by 0: it has no terminal
}

// Server stands in for the person's terminal beside a program. It is that
// program's output (Write) and input (Read). Safe for concurrent use.
type Server struct {
	opts   Options
	listen *net.UnixListener
	in     *inbox
	sizes  chan caisson.Winsize

	mu      sync.Mutex
	viewers map[*viewer]bool
	count   int
	recent  ring
	modes   modes
	size    caisson.Winsize
	sizer   *viewer // whose size it is
	over    *end
	seen    chan struct{} // closed when the first viewer was let in
}

// New returns a server. Nobody can reach it before Open.
func New(opts Options) *Server {
	if opts.Stall <= 0 {
		opts.Stall = stall
	}
	return &Server{
		opts: opts, in: newInbox(), sizes: make(chan caisson.Winsize, 8), viewers: map[*viewer]bool{}, size: opts.Size, seen: make(chan struct{}),
	}
}

// Open makes the socket.
func (s *Server) Open() (err error) {
	s.listen, err = localsocket.Listen(localsocket.Stream, s.opts.Path)
	return err
}

// Run serves viewers until ctx ends, then tells those that are there, and
// returns when they have gone.
func (s *Server) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = s.listen.Close() })
	defer stop()
	var viewers sync.WaitGroup
	places := make(chan struct{}, 2*maxViewers) // also of those that do not say who they are
	var err error
	for {
		var conn *net.UnixConn
		if conn, err = s.listen.AcceptUnix(); err != nil {
			break
		}
		select {
		case places <- struct{}{}:
			viewers.Go(func() { // ends with its connection, which finish closes
				defer func() { <-places }()
				s.serve(conn)
			})
		default:
			_ = conn.Close() // nothing was promised to it
		}
	}
	if ctx.Err() != nil {
		err = nil
	}
	s.finish(end{})
	viewers.Wait()
	return err
}

// Seen is closed when the first viewer was let in.
func (s *Server) Seen() <-chan struct{} { return s.seen }

// Ended says that the program has ended: what it wrote is all there is, and
// viewers go when they have been sent it.
func (s *Server) Ended() { s.finish(end{Ended: true}) }

func (s *Server) finish(why end) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over == nil {
		s.over = &why
		close(s.sizes)
	}
	for v := range s.viewers {
		v.finish(*s.over)
	}
	s.in.end()
}

// Close removes the socket. To be called after Run, or without it.
func (s *Server) Close() error {
	s.finish(end{})
	if s.listen == nil {
		return nil
	}
	err := s.listen.Close()
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	return errors.Join(err, os.Remove(s.opts.Path))
}

// Write shows p. It never fails and never waits for a viewer.
func (s *Server) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opts.Record != nil {
		s.opts.Record.Output(p)
	}
	s.recent.add(p)
	s.modes.scan(p)
	for v := range s.viewers {
		v.queue.output(p, s.screenLocked)
	}
	return len(p), nil
}

// screenLocked is what is sent to one who has not seen what came before. A
// full-screen program draws itself anew; of others the recent output is told.
func (s *Server) screenLocked() []byte {
	const clear = "\x1b[2J\x1b[H"
	switch {
	case s.modes.otherScreen():
		return []byte(s.modes.enter() + clear)
	case s.recent.wrapped:
		return append([]byte(s.modes.leave()+clear), append(s.recent.bytes(), s.modes.enter()...)...)
	default:
		return s.recent.bytes()
	}
}

// Read returns what was typed. It ends when the program has.
func (s *Server) Read(p []byte) (int, error) {
	s.in.mu.Lock()
	defer s.in.mu.Unlock()
	for len(s.in.buf) == 0 && !s.in.ended {
		s.in.more.Wait()
	}
	if len(s.in.buf) == 0 {
		return 0, io.EOF
	}
	n := copy(p, s.in.buf)
	s.in.buf = s.in.buf[:copy(s.in.buf, s.in.buf[n:])]
	if len(s.in.buf) == 0 && cap(s.in.buf) > maxBody {
		s.in.buf = nil
	}
	return n, nil
}

func (b *inbox) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
	b.more.Broadcast()
}

// Sizes brings the sizes that the terminal shall have, until the program ends.
func (s *Server) Sizes() <-chan caisson.Winsize { return s.sizes }

// follow makes v's size the terminal's.
func (s *Server) follow(v *viewer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.followLocked(v)
}

func (s *Server) followLocked(v *viewer) {
	if s.over != nil || v.ReadOnly || v.Size.Rows == 0 || v.Size.Cols == 0 {
		return
	}
	s.sizer = v
	if v.Size != s.size {
		s.size = v.Size
		s.resizeLocked(v.Size)
		if s.opts.Record != nil {
			s.opts.Record.Resize(v.Size)
		}
	}
}

// resizeLocked hands on a size. Where earlier ones were not taken yet, the
// oldest is left out: only the last one matters in the end.
func (s *Server) resizeLocked(size caisson.Winsize) {
	for {
		select {
		case s.sizes <- size:
			return
		default:
		}
		select {
		case <-s.sizes:
		default:
		}
	}
}

// redrawLocked has a full-screen program draw anew, which it does when its size changes.
func (s *Server) redrawLocked() {
	if s.over != nil || !s.modes.otherScreen() || s.size.Rows < 2 {
		return
	}
	s.resizeLocked(caisson.Winsize{Rows: s.size.Rows - 1, Cols: s.size.Cols})
	s.resizeLocked(s.size)
}

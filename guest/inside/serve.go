package inside

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/guest/outlet"
	"github.com/caisson-run/caisson/guest/pack"
	"github.com/caisson-run/caisson/guest/wire"
	"github.com/caisson-run/caisson/internal/proctree"
)

// Options say what to serve.
type Options struct {
	// Stream leads to the host. Serve owns it. A descriptor should not block, so
	// that waiting for it holds no thread.
	Stream io.ReadWriteCloser
	// Rules is a descriptor of Landlock rules that each command is put under
	// before it begins, beside what this process is under already; 0: none.
	Rules int
	// Score is a descriptor of this process's own score, where what it is under
	// keeps it from opening that; 0: Serve opens it.
	Score int
	// Outlet is the way out, if the set-up has opened it already. Else Serve opens
	// the one that the host's hello asks for, with the capabilities that this
	// process was given for it, and drops them.
	Outlet *outlet.Outlet
}

// server is the guest.
type server struct {
	stream io.ReadWriteCloser
	in     *wire.Reader
	out    *wire.Writer
	hello  wire.Hello
	rules  int
	root   *os.Root // of the workspace; nil without one
	null   *os.File
	lane   *lane
	outlet *outlet.Outlet

	ready   sync.Once // threads are made, with the first command
	mu      sync.Mutex
	open    map[uint32]stream
	score   score
	scoreFD int            // given, or 0
	holders map[int]*spawn // of holders that were not reaped yet
	stacks  [][]byte       // of holders that were
}

// stream is one open stream at the guest.
type stream interface {
	frame(h wire.Header, in *wire.Reader) error
}

// Serve answers the host until the stream ends, then ends every process that
// it started, and, as the first process of a pid namespace, every process in
// it. It returns nil where the stream was closed between two frames. The caller
// must exit then: goroutines that wait for the host are not waited for.
//
// It changes this process: it makes it a subreaper that cannot be traced. Nothing
// else may start processes in it: they would be taken for strays and ended.
func Serve(o Options) error {
	// A guest mostly waits. With one processor, what it waits for and what it
	// then does are on one thread: a command passes through many small steps, and
	// waking another thread for each costs more than all of them.
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(25)
	// Commands are forked here, all of them from one thread: where each thread
	// has a Landlock domain of its own, they would be in several else, and could
	// not look at each other as programs of one box do.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	s := &server{
		stream: o.Stream, in: wire.NewReader(o.Stream, wire.MaxControl), out: wire.NewWriter(o.Stream, nil),
		open: map[uint32]stream{}, holders: map[int]*spawn{}, outlet: o.Outlet, rules: o.Rules, scoreFD: o.Score,
	}
	if err := s.prepare(); err != nil {
		refusal := caisson.Errorf(caisson.CodeSandboxLost, "the guest cannot serve: %w", err)
		_ = s.out.Control(wire.TypeFailed, 0, wire.FailedOf(refusal)) // the stream may be what is broken
		_ = o.Stream.Close()
		return err
	}
	if s.outlet != nil {
		go s.runOutlet() // ends with the host's socket
	}
	err := s.take()
	_ = s.stream.Close()
	s.endAll()
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return err
}

// prepare greets the host and readies this process.
func (s *server) prepare() error {
	s.score = openScore(s.scoreFD)
	// The programs inside have the same user id: without this they could read
	// the guest's memory and take its descriptors.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("forbid tracing: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become subreaper: %w", err)
	}
	h, err := s.in.Next()
	if err != nil {
		return fmt.Errorf("read hello: %w", err)
	}
	body, err := s.in.Control(h)
	if err != nil {
		return fmt.Errorf("read hello: %w", err)
	}
	if err := wire.Decode(body, &s.hello); err != nil || h.Type != wire.TypeHello {
		return errors.New("the first frame is no hello")
	}
	if s.null, err = os.OpenFile(os.DevNull, os.O_RDWR, 0); err != nil {
		return err
	}
	if err := fillLow(int(s.null.Fd())); err != nil { //nolint:gosec // a descriptor
		return err
	}
	if s.hello.Workspace != "" {
		if s.root, err = os.OpenRoot(s.hello.Workspace); err != nil {
			return err
		}
	}
	if s.lane, err = newLane(s.stream, s.out); err != nil {
		return err
	}
	mode, err := s.openOutlet()
	if err != nil {
		return err
	}
	return s.out.Control(wire.TypeHello, 0, &wire.Hello{Version: wire.Version, Nonce: s.hello.Nonce, Mode: mode})
}

// take takes the host's frames. The host is trusted; what is checked here keeps
// a fault of its own from going unseen.
func (s *server) take() error {
	for {
		h, err := s.in.Next()
		if err != nil {
			return err
		}
		switch h.Type {
		case wire.TypeHold:
			err = s.hold(h)
		case wire.TypeFile:
			err = s.file(h)
		default:
			s.mu.Lock()
			to := s.open[h.Stream]
			s.mu.Unlock()
			if to == nil { // closed while this was under way
				err = s.in.Skip(h.Length)
				break
			}
			err = to.frame(h, s.in)
		}
		if err != nil {
			return err
		}
	}
}

// add opens a stream.
func (s *server) add(id uint32, st stream) {
	s.mu.Lock()
	s.open[id] = st
	s.mu.Unlock()
}

// last sends the last frame of a stream and closes it.
func (s *server) last(t wire.Type, id uint32, body pack.Value) {
	s.mu.Lock()
	delete(s.open, id)
	s.mu.Unlock()
	_ = s.out.Control(t, id, body) // a broken stream ends the guest in take
}

// begun is called once for each start that did not fail, when the command is there.
func (s *server) begun() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.score.begun()
}

// start forks a holder and registers it, so that it is not taken for a stray.
func (s *server) start(sp *spawn) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.stacks); n > 0 {
		sp.stack, s.stacks = s.stacks[n-1], s.stacks[:n-1]
	} else {
		stack, err := unix.Mmap(-1, 0, stackSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			return 0, err
		}
		sp.stack = stack
	}
	s.score.begin()
	pid, errno := fork(sp)
	if errno != 0 {
		s.score.begun()
		s.stacks = append(s.stacks, sp.stack)
		return 0, errno
	}
	s.holders[pid] = sp
	return pid, nil
}

// reap waits for the end of a holder that is ending.
func (s *server) reap(holder int) {
	for {
		if _, err := unix.Wait4(holder, nil, 0, nil); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if sp := s.holders[holder]; sp != nil {
		s.stacks = append(s.stacks, sp.stack)
		delete(s.holders, holder)
	}
}

// endStrays ends and reaps what fell to the guest because its holder was killed
// from inside, and returns how many there were. Under the lock, so that no new
// holder is taken for a stray.
func (s *server) endStrays() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	self := os.Getpid()
	killed := killedOnce{}
	n := 0
	for {
		all, err := proctree.All()
		if err != nil {
			return n
		}
		for _, p := range proctree.Below(all, self, func(pid int) bool { return s.holders[pid] != nil }) {
			if !killed.has(p) && p.Signal(unix.SIGKILL) {
				killed.add(p)
				n++
			}
		}
		left := false
		for _, p := range all {
			if p.Parent == self && s.holders[p.PID] == nil {
				left = true
				// Not waited for: of one that fell to the guest after it was looked
				// for among its children, nobody has killed it yet.
				_, _ = unix.Wait4(p.PID, nil, unix.WNOHANG, nil)
			}
		}
		if !left {
			return n
		}
		<-time.After(time.Millisecond)
	}
}

// endAll ends everything.
func (s *server) endAll() {
	if os.Getpid() == 1 {
		_ = unix.Kill(-1, unix.SIGKILL) // all but this one; this one's exit ends what could not be reached
		return
	}
	for range 200 {
		if childless() {
			return
		}
		all, err := proctree.All()
		left := proctree.Below(all, os.Getpid(), nil)
		if err != nil || len(left) == 0 {
			return
		}
		for _, p := range left { // what is stopped starts nothing new
			p.Signal(unix.SIGSTOP)
		}
		for _, p := range left {
			p.Signal(unix.SIGKILL)
		}
		<-time.After(time.Millisecond)
	}
}

// childless reaps what has ended, and tells whether nothing is left. As all that
// loses its parent falls to this process, nothing is below it then; that is told
// here without a look at each process of the host.
func childless() bool {
	for {
		pid, err := unix.Wait4(-1, nil, unix.WNOHANG|unix.WALL, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return errors.Is(err, unix.ECHILD)
		case pid == 0:
			return false
		}
	}
}

package cli

import (
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/agent"
	"golang.org/x/term"
)

// agentTerminal lends the person's streams to a foreign agent. On a terminal
// the agent gets one of its own, and the person's is made raw when the agent
// first reads from it: what is asked before that is asked on a terminal as usual.
type agentTerminal struct {
	streams agent.Options
	raw     *rawInput // nil without a terminal
	resized chan os.Signal
	done    chan struct{}
	ended   sync.WaitGroup
}

func (a *app) agentTerminal(pty bool) *agentTerminal {
	t := &agentTerminal{done: make(chan struct{})}
	t.streams = agent.Options{Stdin: a.io.In, Stdout: a.out, Stderr: a.err}
	if !pty || !a.terminal() {
		return t
	}
	t.raw = &rawInput{file: a.io.In}
	t.streams.Stdin = t.raw
	t.streams.Size = sizeOf(a.io.Out)
	sizes := make(chan caisson.Winsize, 1)
	t.streams.Resize = sizes
	t.resized = make(chan os.Signal, 1)
	signal.Notify(t.resized, syscall.SIGWINCH)
	t.ended.Go(func() {
		defer close(sizes)
		for {
			select {
			case <-t.done:
				return
			case <-t.resized:
				select {
				case sizes <- sizeOf(a.io.Out):
				case <-t.done:
					return
				}
			}
		}
	})
	return t
}

func (t *agentTerminal) close() {
	close(t.done)
	t.ended.Wait()
	if t.raw != nil {
		signal.Stop(t.resized)
		t.raw.restore()
	}
}

func sizeOf(f *os.File) caisson.Winsize {
	cols, rows, err := term.GetSize(int(f.Fd()))
	if err != nil || cols == 0 || rows == 0 { // what terminals are before they say otherwise
		return caisson.Winsize{Rows: 24, Cols: 80}
	}
	return caisson.Winsize{Rows: uint16(rows), Cols: uint16(cols)}
}

// rawInput is a terminal that is raw from the first read on.
type rawInput struct {
	file  *os.File
	mu    sync.Mutex
	state *term.State
	over  bool
}

func (r *rawInput) Read(p []byte) (int, error) {
	r.mu.Lock()
	if r.state == nil && !r.over {
		if state, err := term.MakeRaw(int(r.file.Fd())); err == nil {
			r.state = state
		}
	}
	r.mu.Unlock()
	return r.file.Read(p)
}

// isRaw tells whether lines must bring their own carriage returns.
func (r *rawInput) isRaw() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state != nil
}

func (r *rawInput) restore() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	if r.state != nil {
		_ = term.Restore(int(r.file.Fd()), r.state) // the terminal may be gone
		r.state = nil
	}
}

package control

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/caisson-run/caisson/control/channel"
)

// place is where a broker's files are. It is made anew where another, that had
// no right to it any more, has taken it.
type place struct {
	files atomic.Pointer[channel.Files]

	// unsaid: it is to be made anew, or was, and not all is told that is told at its
	// making.
	unsaid atomic.Bool

	mu sync.Mutex // who makes it
	// old are those before: somebody may be in the middle of using them.
	old []*channel.Files
}

func (p *place) make(dir string) error {
	files, err := channel.Make(dir)
	if err != nil {
		return err
	}
	if old := p.files.Swap(files); old != nil {
		p.old = append(p.old, old)
	}
	return nil
}

// close is called when nobody uses the files any more.
func (p *place) close() {
	for _, files := range append(p.old, p.files.Load()) {
		if files != nil {
			files.Close() //nolint:errcheck,gosec // descriptors of directories lose nothing
		}
	}
}

func (b *Broker) files() *channel.Files { return b.place.files.Load() }

// keep takes the channel's files back where they are another's, and this process
// still holds the sandbox: a process that held it once and was stopped while it
// opened the channel has gone on. What that one told inside is told again, and
// what was not taken meanwhile is. What does not succeed is tried again with the
// next tick.
func (b *Broker) keep(ctx context.Context) {
	if !b.files().Displaced() && !b.place.unsaid.Load() {
		return
	}
	b.place.unsaid.Store(true) // also where nothing else tells of it again
	b.mu.stirred.Store(true)   // nor takes the lock after this
	if b.owned(ctx) != nil {
		return
	}
	b.mu.Lock()
	collecting := b.collecting // it is not there because it is cleared away
	b.mu.Unlock()
	b.place.mu.Lock()
	defer b.place.mu.Unlock()
	if collecting || b.files().Displaced() && b.place.make(b.o.Dir) != nil {
		return
	}
	b.place.unsaid.Store(b.introduce() != nil)
	b.doubtStatus()
	signal(b.wake)
}

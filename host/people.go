package host

import (
	"context"
	"sync"

	"github.com/caisson-run/caisson"
)

// people is a box of which it is known whether any command runs in it. What a
// command has started ends with it. Safe for concurrent use.
type people struct {
	caisson.Sandbox

	mu     sync.Mutex
	inside int
	tell   func(inhabited bool) // nil: nobody wants to know
}

// follow has tell called when the first command comes and when the last one has
// ended, and once with how it is now.
func (b *people) follow(tell func(inhabited bool)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tell = tell
	tell(b.inside > 0)
}

func (b *people) count(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	was := b.inside > 0
	b.inside += n
	if is := b.inside > 0; is != was && b.tell != nil {
		b.tell(is)
	}
}

// Hold implements [caisson.Sandbox].
func (b *people) Hold(ctx context.Context, cmd caisson.Command) (caisson.Process, error) {
	b.count(1)
	p, err := b.Sandbox.Hold(ctx, cmd)
	if err != nil {
		b.count(-1)
		return nil, err
	}
	return &person{Process: p, leave: sync.OnceFunc(func() { b.count(-1) })}, nil
}

// person is one command in a box.
type person struct {
	caisson.Process
	leave func()

	mu       sync.Mutex
	released bool
}

// Release implements [caisson.Process].
func (p *person) Release() error {
	p.release(true) // before it is: who drops it meanwhile stops it
	err := p.Process.Release()
	if err != nil {
		p.release(false)
	}
	return err
}

func (p *person) release(is bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.released = is
}

// Wait implements [caisson.Process]. A command for whose end nobody waits counts as
// one that runs.
func (p *person) Wait(ctx context.Context) (caisson.Exit, error) {
	exit, err := p.Process.Wait(ctx)
	p.leave()
	return exit, err
}

// Drop implements [caisson.Process].
func (p *person) Drop() {
	p.Process.Drop()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.released {
		p.leave()
	}
}

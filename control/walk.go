package control

import (
	"context"
	"runtime"
	"sync"
	"time"
)

// looking is one thing that is looked at in a round.
type looking interface {
	look(ctx context.Context) // which ends it, if what it asks knows of contexts
	tell(ctx context.Context) // what was seen, to those whom it concerns
	// alone has it looked at beside all others, in place of both. A look at it may
	// be under way that hangs.
	alone(ctx context.Context)
}

// lookMoment is more than all looks take together where all is well.
const lookMoment = 50 * time.Millisecond

// walker is a goroutine that looks at one thing after the other, which takes
// microseconds each. It rests between the rounds: one that is begun for each touches
// much more memory.
type walker struct {
	s      *Service
	set    chan struct{} // it sets out
	giveUp func()

	mu         sync.Mutex
	walks      int64 // begun
	looks      []looking
	through    int
	done, over bool
	bound      *time.Timer
}

// lookAround looks at things. Those that the walker is not through with in a moment
// are looked at each on its own: none waits for one that hangs. It tells whether it
// is through, and looks are not used any more. It is called by one at a time, and
// leave at last.
func (s *Service) lookAround(ctx context.Context, looks []looking) bool {
	if len(looks) == 0 {
		return true
	}
	if s.walker == nil || !s.walker.rests() {
		s.leave()
		s.walker = s.newWalker(ctx)
	}
	w := s.walker
	s.looks.Add(1)
	w.mu.Lock()
	w.walks++
	walk := w.walks
	w.looks, w.through, w.done, w.bound = looks, 0, false, nil
	w.mu.Unlock()
	w.set <- struct{}{}
	// Mostly it is through by now. A timer that is set and stopped again wakes the
	// process all the same: whatever thread sleeps meanwhile has it as its end.
	runtime.Gosched()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.done {
		w.bound = time.AfterFunc(lookMoment, func() { w.disperse(ctx, walk) })
	}
	return w.done
}

func (s *Service) newWalker(ctx context.Context) *walker {
	asking, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	w := &walker{s: s, set: make(chan struct{}), giveUp: giveUp, done: true}
	go func() { // it ends with leave, or as one that asks a single thing does: see look
		defer giveUp()
		for range w.set {
			if !w.walk(ctx, asking) {
				return
			}
		}
	}()
	return w
}

// leave lets the walker go: it ends, when it is back.
func (s *Service) leave() {
	if s.walker != nil {
		close(s.walker.set)
		s.walker = nil
	}
}

func (w *walker) rests() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.done
}

// walk tells whether it came through before others looked at what was left.
func (w *walker) walk(ctx, asking context.Context) bool {
	for _, l := range w.looks {
		l.look(asking)
		w.mu.Lock()
		late := w.over
		if !late {
			w.through++
			w.s.looks.Add(1) // while the walk is still counted
		}
		w.mu.Unlock()
		if late {
			return false
		}
		l.tell(ctx)
		w.s.looks.Done()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return false
	}
	w.done, w.looks = true, nil // what it looked at may end while it rests
	w.s.looks.Done()
	if w.bound != nil {
		w.bound.Stop()
	}
	return true
}

// disperse has what is left of a walk looked at otherwise, and gives up what hangs in
// a while. Its timer may go off just when that walk has ended, and come here in the
// next one, which has its own.
func (w *walker) disperse(ctx context.Context, walk int64) {
	w.mu.Lock()
	if w.done || walk != w.walks {
		w.mu.Unlock()
		return
	}
	w.over = true
	left := w.looks[w.through:]
	w.mu.Unlock()
	defer w.s.looks.Done()
	time.AfterFunc(lookFor-lookMoment, w.giveUp)
	for _, l := range left {
		l.alone(ctx)
	}
}

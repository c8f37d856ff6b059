package control

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caisson-run/caisson"
)

// silent is a watcher that tells nothing.
type silent struct{}

func (silent) Add(string, func(), func()) (func(), error) { return func() {}, nil }
func (silent) Guard(string, func()) (func(), bool)        { return func() {}, false }
func (silent) Run(ctx context.Context) error              { <-ctx.Done(); return nil }

// unasked is a ledger that is asked nothing but the time.
type unasked struct{ caisson.Ledger }

func (unasked) Now() time.Time { return time.Now() }

// rounds are those of a service in a bubble of time, and of brokers of which
// nothing is there but what is looked at by time.
type rounds struct {
	t  *testing.T
	at time.Time
	s  *Service

	mu    sync.Mutex
	looks map[string][]time.Duration
}

func newRounds(t *testing.T) *rounds {
	r := &rounds{t: t, at: time.Now(), looks: map[string][]time.Duration{}}
	r.s = New(Options{Ledger: unasked{}, Watcher: silent{}, Boot: func() time.Duration { return time.Since(r.at) + time.Hour }})
	return r
}

// still returns a broker whose channel is there, and of which there is nothing to tell.
func still(t *testing.T, s *Service, o Sandbox) (b *Broker, dir string) {
	t.Helper()
	b, dir = s.broker(t.Context(), o), t.TempDir()
	if err := b.place.make(dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.place.close)
	b.untold, b.guarded = false, true
	return b, dir
}

func (r *rounds) looked(at string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.looks[at] = append(r.looks[at], time.Since(r.at))
}

func (r *rounds) broker(name string, bound func(context.Context) error) *Broker {
	b := r.s.broker(r.t.Context(), Sandbox{Bound: func(ctx context.Context) error { r.looked(name); return bound(ctx) }})
	b.untold, b.guarded = false, true
	if err := b.place.make(r.t.TempDir()); err != nil {
		r.t.Fatal(err)
	}
	b.displaced.ask = asking[bool](func(context.Context) (bool, error) { r.looked(name + "'s files"); return false, nil })
	r.s.add(b)
	go func() { // ends with Run
		defer close(b.done)
		<-b.ctx.Done()
		b.work.Wait()
		b.place.close()
		r.s.drop(b)
	}()
	return b
}

func (r *rounds) run(lasting time.Duration) {
	ctx, cancel := context.WithTimeout(r.t.Context(), lasting)
	defer cancel()
	if err := r.s.Run(ctx); err != nil {
		r.t.Error(err)
	}
	<-time.After(lookFor) // of the bubble's clock: nobody waits for who asks
}

// wants looks whether something was looked at when it should, in seconds. A look that
// hangs keeps the others for a moment.
func (r *rounds) wants(what string, seconds ...time.Duration) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	got := r.looks[what]
	right := len(got) == len(seconds)
	for i := 0; right && i < len(got); i++ {
		late := got[i] - seconds[i]*time.Second
		right = late >= 0 && late <= 3*lookMoment
	}
	if !right {
		r.t.Errorf("%s: looked at after %v, want %d", what, got, seconds)
	}
}

// All workspaces are looked at in each round, and one that is not right after 1,
// 2, 4, 5, 5 s; none waits for one that hangs.
func TestBindingsAreLookedAtInTheirOwnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRounds(t)
		end := make(chan struct{})
		defer close(end)
		var all []*Broker
		for range 3 { // whichever of them is the first
			all = append(all, r.broker("works", func(context.Context) error { return nil }))
		}
		r.broker("fails", func(context.Context) error { return errors.New("no") })
		r.broker("hangs", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		dead := r.broker("dead", func(context.Context) error { <-end; return nil })
		time.AfterFunc(2*time.Second+2*lookMoment, func() {
			if !dead.parkedFor(caisson.CodeWorkspaceBindingLost) {
				t.Error("what does not answer does not park")
			}
			for _, b := range all {
				if b.parkedFor(caisson.CodeWorkspaceBindingLost) {
					t.Error("what answers parks")
				}
			}
		})
		r.run(29 * time.Second)
		r.wants("works", 0, 0, 0, 5, 5, 5, 10, 10, 10, 15, 15, 15, 20, 20, 20, 25, 25, 25)
		r.wants("fails", 0, 1, 3, 7, 12, 17, 22, 27)
		r.wants("hangs", 0, 3, 7, 13, 20, 27)
		r.wants("dead", 0)
	})
}

func (b *Broker) parkedFor(reason caisson.Code) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, is := b.reasons[reason]
	return is
}

// Files are looked at in each round where nobody is told when they are taken, and
// else now and then; whatever hangs there, the workspace is looked at.
func TestFilesAreLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRounds(t)
		end := make(chan struct{})
		defer close(end)
		fine := func(context.Context) error { return nil }
		r.broker("guarded", fine)
		r.broker("open", fine).guarded = false
		r.broker("dead", fine).displaced.ask = asking[bool](func(context.Context) (bool, error) { r.looked("dead's files"); <-end; return true, nil })
		r.run(61 * time.Second)
		r.wants("guarded's files", 0, 60)
		r.wants("open's files", 0, 5, 10, 15, 20, 25, 30, 35, 40, 45, 50, 55, 60)
		r.wants("dead's files", 0)
		r.wants("dead", 0, 5, 10, 15, 20, 25, 30, 35, 40, 45, 50, 55, 60)
	})
}

// While nothing has happened no round has a broker do anything, and whatever is
// left to do is done with the next.
func TestRoundsOfNothing(t *testing.T) {
	at := time.Duration(0)
	s := New(Options{Ledger: unasked{}, Watcher: silent{}, Boot: func() time.Duration { return at }})
	b, dir := still(t, s, Sandbox{})
	scan := func() {
		t.Helper()
		if _, err := b.files().Scan(time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	// round tells whether the loop has something to do.
	round := func() bool {
		at += lookEvery
		b.tick(at, s.round(at), s.stalls)
		b.looking = false
		select {
		case <-b.ticks:
			return true
		default:
			return false
		}
	}
	round()
	s.stalls++
	if b.tick(at+beatEvery, b.round, s.stalls); len(b.ticks) == 0 {
		t.Fatal("a stall waits for the next round")
	}
	<-b.ticks
	b.stalls++
	young := filepath.Join(dir, caisson.ControlRequests, ".0123456789abcdef.tmp")
	id := caisson.RequestID("0123456789abcdef")
	for what, c := range map[string]struct{ begin, end func() }{
		"a stall":                           {func() { s.stalls++ }, func() { b.stalls++ }},
		"a status that is not told":         {func() { b.untold = true }, func() { b.untold = false }},
		"an identity that is not told":      {func() { b.place.unsaid.Store(true) }, func() { b.place.unsaid.Store(false) }},
		"a move that is not recorded":       {func() { b.moves = []move{{}} }, func() { b.moves = nil }},
		"an answer that is not published":   {func() { b.repair[id] = true }, func() { delete(b.repair, id) }},
		"a review that may lapse":           {func() { b.waiting[id] = &request{} }, func() { delete(b.waiting, id) }},
		"something that came":               {func() { b.unseen.Store(true) }, func() { b.unseen.Store(false) }},
		"a request that is not whole":       {func() { _ = os.WriteFile(young, nil, 0o600); scan() }, func() { _ = os.Remove(young); scan() }},
		"answers whose age nobody knows":    {func() { answerAndReopen(t, b, dir, id) }, func() { _ = b.files().Trim(time.Now(), nil) }},
		"a claimed one that is a directory": {func() { claimDirectory(t, b, id) }, scan},
	} {
		for range 30 {
			if round() {
				t.Fatalf("before %s: something is done", what)
			}
		}
		b.mu.Lock() // as whoever does that
		c.begin()
		b.mu.Unlock()
		for range 2 {
			if !round() {
				t.Errorf("%s: nothing is done", what)
			}
		}
		c.end()
		if round() {
			t.Errorf("after %s: something is done", what)
		}
	}
}

// A round does not ask a broker with which nobody has done anything, but for now and
// then; what the watcher tells of is no less than what is done under the lock.
func TestWhatStirs(t *testing.T) {
	s := New(Options{Ledger: unasked{}, Watcher: silent{}})
	b, dir := still(t, s, Sandbox{})
	var round int64
	until := func() (n int) {
		for ; len(b.ticks) == 0 && n < 2*surely; n++ {
			b.tick(s.begun+time.Duration(round)*lookEvery, round, 0)
			b.looking = false
			round++
		}
		if len(b.ticks) > 0 {
			<-b.ticks
		}
		return n
	}
	if n := until(); n != 2*surely {
		t.Fatalf("nothing is to be done, and the loop is told in %d rounds", n)
	}
	b.stir()
	if n := until(); n != 1 {
		t.Errorf("something came, and the loop is told in %d rounds", n)
	}
	b.unseen.Store(false)
	until()
	answerAndReopen(t, b, dir, "0123456789abcdef")
	if n := until(); n < 2 || n > surely {
		t.Errorf("what no lock tells of is noticed in %d rounds", n)
	}
}

// Who was told of a failure while it was being looked at is told again after that,
// when the next look is due.
func TestAfterALookThatFailed(t *testing.T) {
	s := New(Options{Ledger: unasked{}, Watcher: silent{}})
	b := s.broker(t.Context(), Sandbox{Bound: func(context.Context) error { return errors.New("no") }})
	b.looking = true
	b.bind(errors.New("no"))
	<-s.roused
	if _, next := b.tick(s.o.Boot(), b.round, 0); next != never {
		t.Errorf("while it is looked at the next is due after %s", next)
	}
	b.looked()
	select {
	case <-s.roused:
	default:
		t.Fatal("nobody is told")
	}
	if look, next := b.tick(s.o.Boot(), b.round, 0); look.near != nil || next != b.boundDue {
		t.Errorf("the next is due after %s, not %s", next, b.boundDue)
	}
}

// answerAndReopen has an answer be of an earlier life of the channel.
func answerAndReopen(t *testing.T, b *Broker, dir string, id caisson.RequestID) {
	t.Helper()
	err := b.files().Answer(caisson.ControlAnswer{ID: id, State: caisson.AnswerRejected}, nil)
	if err == nil {
		err = b.place.make(dir)
	}
	if err == nil { // its own age is known
		err = b.files().Accept(caisson.ControlAnswer{ID: id, State: caisson.AnswerAccepted})
	}
	if err != nil {
		t.Fatal(err)
	}
}

func claimDirectory(t *testing.T, b *Broker, id caisson.RequestID) {
	t.Helper()
	if err := os.Mkdir(filepath.Join(b.files().Requests(), string(id)+".json"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := b.files().Claim(id); caisson.CodeOf(err) != caisson.CodeRequestInvalid {
		t.Fatal(err)
	}
	b.files().Release(id)
}

// What is due while a look is still under way is not left to a later round, which
// may be one in which it is not due.
func TestDueWhileALookLasts(t *testing.T) {
	s := New(Options{Ledger: unasked{}, Watcher: silent{}})
	b, _ := still(t, s, Sandbox{Bound: func(context.Context) error { return nil }})
	at := func(round int64) glance {
		look, _ := b.tick(s.begun+time.Duration(round)*lookEvery, round, 0)
		return look
	}
	at(surely - 1)
	if look := at(surely); look.near != nil {
		t.Errorf("two look at once: %+v", look)
	}
	b.looked()
	select {
	case <-s.roused:
	default:
		t.Error("nobody is told that a look is due")
	}
	if look := at(surely); look.near != b.near || !look.files || !look.bound {
		t.Errorf("what was due is not looked at: files %t, workspace %t", look.files, look.bound)
	}
	b.looked()
	if look := at(surely); look.near != nil || len(s.roused) > 0 {
		t.Errorf("it is looked at twice: files %t, workspace %t", look.files, look.bound)
	}
}

// A broker that is opened while the service ends is ended with the others, and not
// waited for without end.
func TestOpenedWhileTheServiceEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRounds(t)
		fine := func(context.Context) error { return nil }
		first := r.broker("first", fine)
		var second *Broker
		first.work.Go(func() {
			<-first.ctx.Done()
			second = r.broker("second", fine)
		})
		r.run(time.Second)
		if second.Err() != nil || second.ctx.Err() == nil {
			t.Errorf("it has not ended: %v", second.Err())
		}
	})
}

// What a request's record says of its generation is read while another epoch
// begins: who quiesces a channel mends it beside the loop.
func TestMendedWhileAnEpochBegins(t *testing.T) {
	s := New(Options{Ledger: unasked{}, Watcher: silent{}})
	b := s.broker(t.Context(), Sandbox{})
	begun := make(chan struct{})
	go func() {
		defer close(begun)
		b.mu.Lock()
		defer b.mu.Unlock()
		b.channel = caisson.Channel{Generation: 1, Epoch: 2}
	}()
	if err := b.projectOf(t.Context(), caisson.RequestRecord{Generation: 7}, nil); err != nil {
		t.Error(err)
	}
	<-begun
}

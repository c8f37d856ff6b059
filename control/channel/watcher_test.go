package channel_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/control/channel"
)

// watch runs a watcher until the test's end.
func watch(t *testing.T, opts channel.WatcherOptions) *channel.Watcher {
	t.Helper()
	w := channel.NewWatcher(opts)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		w.Close()
	})
	return w
}

// wakes are those of one directory.
type wakes chan struct{}

func (w wakes) wake() {
	select {
	case w <- struct{}{}:
	default:
	}
}

func (w wakes) await(t *testing.T, what string) {
	t.Helper()
	select {
	case <-w:
	case <-time.After(2 * time.Minute):
		t.Fatalf("nobody was woken: %s", what)
	}
}

func TestWatcher(t *testing.T) {
	for _, poll := range []bool{false, true} {
		t.Run(fmt.Sprintf("poll=%v", poll), func(t *testing.T) {
			w := watch(t, channel.WatcherOptions{Poll: poll})
			f, _ := open(t)
			woken, stirred := make(wakes, 1), make(wakes, 1)
			remove, err := w.Add(f.Requests(), woken.wake, stirred.wake)
			if err != nil {
				t.Fatal(err)
			}
			woken.await(t, "at first")
			for n := range 5 {
				send(t, f, id(n), "{}")
				for len(scan(t, f)) == 0 {
					woken.await(t, "a request")
				}
				if _, err := f.Claim(id(n)); err != nil {
					t.Fatal(err)
				}
			}
			for n := range 3 {
				if err := os.Link(filepath.Join(f.Public(), "../private/boot"), request(f, id(100+n))); err != nil {
					t.Fatal(err)
				}
				for len(scan(t, f)) == 0 {
					woken.await(t, "a link")
				}
				f.Claim(id(100 + n))
			}
			what := stirred
			if poll {
				what = woken // nothing tells what it was
			}
			for len(what) > 0 {
				<-what
			}
			if err := os.WriteFile(filepath.Join(f.Requests(), "other"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			what.await(t, "something else")
			remove()
			remove()
		})
	}
}

// TestWatcherLosesNothing has so many events come that the kernel drops some.
func TestWatcherLosesNothing(t *testing.T) {
	w := watch(t, channel.WatcherOptions{})
	flooded, _ := open(t)
	quiet, _ := open(t)
	var floods atomic.Int64
	block := make(chan struct{})
	remove, err := w.Add(flooded.Requests(), func() {
		if floods.Add(1) == 1 {
			<-block // Run is held while the queue fills
		}
	}, func() {})
	if err != nil {
		t.Fatal(err)
	}
	defer remove()
	woken := make(wakes, 1)
	removeQuiet, err := w.Add(quiet.Requests(), woken.wake, func() {})
	if err != nil {
		t.Fatal(err)
	}
	defer removeQuiet()
	limit := 20_000 // above the usual bound of a queue, 16,384
	for i := range limit {
		from, to := request(flooded, id(i%2)), request(flooded, id(1-i%2))
		if i == 0 {
			if err := unix.Mknod(from, unix.S_IFREG|0o600, 0); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	send(t, quiet, id(1), "{}") // its own event finds the queue full
	close(block)
	for len(scan(t, quiet)) == 0 {
		woken.await(t, "after events were lost")
	}
	woken.await(t, "after events were lost")
}

func TestWatcherOfManyAndNone(t *testing.T) {
	w := channel.NewWatcher(channel.WatcherOptions{})
	f, _ := open(t)
	if _, err := w.Add(filepath.Join(f.Requests(), "none"), func() {}, func() {}); err == nil {
		t.Error("what is not there is watched")
	}
	woken := make(wakes, 1)
	if _, err := w.Add(f.Requests(), woken.wake, func() {}); err != nil { // before Run
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- w.Run(context.Background()) }()
	woken.await(t, "at first")
	w.Close()
	w.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := w.Add(f.Requests(), woken.wake, func() {}); err == nil {
		t.Error("a closed watcher watches")
	}
}

// All who watch a directory are told, and of what is in it who guards it.
func TestWatchedBySeveral(t *testing.T) {
	w := watch(t, channel.WatcherOptions{})
	f, dir := open(t)
	one, other, changed := make(wakes, 1), make(wakes, 1), make(wakes, 1)
	removeOne, err := w.Add(f.Requests(), one.wake, func() {})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Add(f.Requests(), other.wake, func() {}); err != nil {
		t.Fatal(err)
	}
	one.await(t, "at first")
	other.await(t, "at first")
	send(t, f, id(1), "{}")
	one.await(t, "a request")
	other.await(t, "a request")
	removeOne()
	send(t, f, id(2), "{}")
	other.await(t, "a request, and the other watches no more")

	unguard, _ := w.Guard(dir, changed.wake)
	reopen(t, dir)
	changed.await(t, "the channel was taken")
	unguard()
	unguard()
	if _, sure := w.Guard(filepath.Join(dir, "none"), changed.wake); sure {
		t.Error("what is not there is guarded")
	}
	if _, sure := watch(t, channel.WatcherOptions{Poll: true}).Guard(dir, changed.wake); sure {
		t.Error("it is guarded without events")
	}
}

package channel

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A directory is looked at as often as is needed: seldom where this kernel has all
// events, each second where there may be others, and quicker for a while after
// something has happened without an event.
func TestHowOftenADirectoryIsLookedAt(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	back := []time.Duration{100 * ms, 200 * ms, 400 * ms, 800 * ms}
	for name, c := range map[string]struct {
		poll, shared bool
		quiet        time.Duration
		after        []time.Duration // a change of which nobody told
	}{
		"all events":  {quiet: time.Minute, after: append(back[:4:4], 1600*ms, 3200*ms, 6400*ms, 12800*ms, 25600*ms, 51200*ms, time.Minute, time.Minute)},
		"some events": {shared: true, quiet: s, after: append(back[:4:4], s, s)},
		"no events":   {poll: true, quiet: s, after: append(back[:4:4], s, s)},
	} {
		w := NewWatcher(WatcherOptions{Poll: c.poll})
		defer w.Close()
		dir := t.TempDir()
		if _, err := w.Add(dir, func() {}, func() {}); err != nil {
			t.Fatal(err)
		}
		var d *watched
		for d = range w.watched {
		}
		if !local(d.dir) {
			t.Skip("the directory for tests is on a file system that others may share")
		}
		if c.shared {
			d.most = pollMax
		}
		for range 12 {
			d.look()
		}
		if d.every != c.quiet {
			t.Errorf("%s: at rest each %s", name, d.every)
		}
		change := func() {
			t.Helper()
			path := filepath.Join(dir, "a")
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			for was := d.seen; was == d.seen; d.look() { // within a tick of its clock it may not show
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
		change()
		if d.every != pollMin {
			t.Errorf("%s: right after a change each %s", name, d.every)
		}
		d.look() // the last may have changed it once more
		for _, want := range c.after {
			if d.look(); d.every != want {
				t.Errorf("%s: later each %s, want %s", name, d.every, want)
			}
		}
		if c.poll {
			continue
		}
		change()
		w.told(batch{stir: map[int32]bool{d.watch: true}})
		if d.look(); d.every != c.quiet {
			t.Errorf("%s: where an event has come each %s", name, d.every)
		}
	}
}

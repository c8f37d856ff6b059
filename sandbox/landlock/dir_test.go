//go:build linux

package landlock

import (
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/lockfile"
)

// Somebody looks at the lock of a directory in the moment before its maker has
// it: its maker waits.
func TestLookedAtWhileItIsMade(t *testing.T) {
	e := New(Options{Dir: filepath.Join(t.TempDir(), "boxes")})
	var at atomic.Value
	var over atomic.Bool
	var looker sync.WaitGroup
	looks := 0
	looker.Go(func() { // ends with over
		for !over.Load() {
			path, _ := at.Load().(string)
			if lock, err := lockfile.Dir(path, unix.LOCK_SH); err == nil {
				looks++
				lock.Close()
			}
		}
	})
	for range 300 {
		id := caisson.NewSandboxID()
		at.Store(filepath.Join(e.opts.Dir, string(id)))
		d, err := e.makeDir(id, []string{filepath.Join(e.dirOf(id), "tmp")})
		if err != nil {
			t.Error(err)
			break
		}
		if lock, err := lockfile.Dir(d.path, unix.LOCK_SH); err == nil {
			lock.Close()
			t.Error("it is made and not locked")
		}
		if err := d.remove(); err != nil {
			t.Error(err)
		}
	}
	over.Store(true)
	looker.Wait()
	t.Logf("looked at %d times before it was locked", looks)
}

// Who tidies up removes what nobody holds also where another looks at it.
func TestLookedAtWhileItIsRemoved(t *testing.T) {
	e := New(Options{Dir: filepath.Join(t.TempDir(), "boxes")})
	id := caisson.NewSandboxID()
	d, err := e.makeDir(id, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(d.lock.Fd()), unix.LOCK_SH); err != nil { // nobody's, and looked at
		t.Fatal(err)
	}
	time.AfterFunc(50*time.Millisecond, func() { d.lock.Close() })
	if err := e.removeDir(id); err != nil {
		t.Error(err)
	}
	if left, err := e.dirs(); err != nil || len(left) > 0 {
		t.Errorf("left: %+v, %v", left, err)
	}
}

//go:build linux

package landlock

import (
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
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
			if lock, err := lockDir(path, unix.LOCK_SH); err == nil {
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
		if lock, err := lockDir(d.path, unix.LOCK_SH); err == nil {
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

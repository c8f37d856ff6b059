package workspace

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/atomicfile"
	"github.com/caisson-run/caisson/internal/fault"
)

// write makes a file of a workspace that is being made. It is durable after
// settle: until then the workspace is not recorded, and half of one is removed.
func (c *creation) write(path string, data []byte, mode fs.FileMode) error {
	if err := fault.Point("workspace.create.write"); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|unix.O_NOFOLLOW, mode)
	if errors.Is(err, fs.ErrExist) {
		return writeFile(path, data, mode)
	}
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Chmod(mode)
	}
	c.written = append(c.written, path)
	return errors.Join(err, f.Close())
}

// settle makes what was written durable, all at once: the disk is waited for
// once or twice, not for each file.
func (c *creation) settle() error {
	dirs := map[string]bool{}
	var all sync.WaitGroup
	errs := make([]error, len(c.written))
	for i, path := range c.written {
		dirs[filepath.Dir(path)], dirs[filepath.Dir(filepath.Dir(path))] = true, true
		all.Go(func() { errs[i] = syncFile(path) }) // ends with the sync
	}
	var mu sync.Mutex
	var failed error
	for dir := range dirs {
		all.Go(func() { // ends with the sync
			if err := atomicfile.SyncDir(dir); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed = errors.Join(failed, err)
			}
		})
	}
	all.Wait()
	return errors.Join(append(errs, failed)...)
}

func syncFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/config"
)

// bench is where metrics are measured.
type bench struct {
	n   int    // 0: what each metric wants
	bin string // directory of the programs
	dir string // where files are written
}

// find makes the directories absolute and chooses the one for files: a ledger's
// speed is that of the disk that it stands on.
func (b *bench) find() (err error) {
	if b.bin, err = filepath.Abs(b.bin); err != nil {
		return err
	}
	if b.dir == "" {
		dirs, err := config.Paths(os.Getenv)
		if info, statErr := os.Stat(dirs.State); err == nil && statErr == nil && info.IsDir() {
			b.dir = dirs.State
		}
	}
	if b.dir, err = filepath.Abs(b.dir); err != nil {
		return err
	}
	b.dir, err = filepath.EvalSymlinks(b.dir)
	return err
}

// scratch makes a directory for a metric's files; remove removes it.
func (b *bench) scratch() (dir string, remove func(), err error) {
	if dir, err = os.MkdirTemp(b.dir, ".bench-"); err != nil {
		return "", nil, err
	}
	return dir, func() { _ = os.RemoveAll(dir) }, nil // what stays is empty files of ours
}

// disk is scratch on a real disk: what is written to memory costs nothing, and
// a comparison there says nothing.
func (b *bench) disk() (dir string, remove func(), err error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(b.dir, &fs); err != nil {
		return "", nil, fmt.Errorf("look at file system of %s: %w", b.dir, err)
	}
	if fs.Type == unix.TMPFS_MAGIC || fs.Type == unix.RAMFS_MAGIC {
		return "", nil, skipped(b.dir + " is kept in memory; name a directory on a disk with -dir")
	}
	return b.scratch()
}

// program returns the path of one of our programs.
func (b *bench) program(name string) (string, error) {
	path := filepath.Join(b.bin, name)
	if _, err := os.Stat(path); err != nil {
		return "", skipped(fmt.Sprintf("%s is not there; `make build` makes it", path))
	}
	return path, nil
}

// plain runs a program as anybody would, without what package process adds: it
// is what ours are compared with.
func plain(path string, args ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		cmd := exec.CommandContext(ctx, path, args...) //nolint:forbidigo // a bare fork and exec is what is measured
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("run %s: %w", path, err)
		}
		return nil
	}
}

// memory reads a field of a process's status, in MiB: VmRSS is what it holds,
// VmHWM the most that it held.
func memory(pid int, field string) (float64, error) {
	path := filepath.Join("/proc", strconv.Itoa(pid), "status")
	raw, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(raw)) {
		value, found := strings.CutPrefix(line, field+":")
		if !found {
			continue
		}
		kib, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 64)
		return kib / 1024, err
	}
	return 0, fmt.Errorf("%s has no %s", path, field)
}

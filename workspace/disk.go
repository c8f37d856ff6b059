package workspace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
)

// What git says of a disk, in the words of the C library and its own.
var (
	saysFull = []string{"No space left on device", "Out of diskspace", "Disk quota exceeded"}
	saysShut = []string{"Read-only file system", "Permission denied", "Input/output error", "Operation not permitted"}
)

// diskCode returns the code of a failure that is the disk's, or "". said is what
// a git command has said.
func diskCode(err error, said string) caisson.Code {
	switch {
	case isAny(err, syscall.ENOSPC, syscall.EDQUOT) || saysAny(said, saysFull):
		return caisson.CodeDiskFull
	case isAny(err, syscall.EROFS, syscall.EACCES, syscall.EPERM, syscall.EIO) || saysAny(said, saysShut):
		return caisson.CodeWriteFailed
	}
	return ""
}

// saysUnwritten is what git says where it keeps the reason to itself.
var saysUnwritten = regexp.MustCompile(`(?i)(unable to|could not|couldn't|cannot|failed to) (write|create|close|update|open)|write error`)

// exit is the error of a command that did not succeed. Where it could not write
// and does not say why, it is looked whether there is room.
func (p *program) exit(inv invocation, status int, complaint string) error {
	err := &exitError{inv.args, status, complaint}
	if diskCode(nil, complaint) != "" || !saysUnwritten.MatchString(complaint) {
		return err
	}
	for _, dir := range []string{filepath.Dir(inv.index), cmp.Or(inv.tree, p.empty), filepath.Join(inv.gitDir, "refs"), filepath.Join(inv.gitDir, "objects")} {
		if filepath.IsAbs(dir) && full(dir) {
			return fmt.Errorf("%w: %w", syscall.ENOSPC, err)
		}
	}
	return err
}

func isAny(err error, errnos ...syscall.Errno) bool {
	for _, errno := range errnos {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

func saysAny(said string, texts []string) bool {
	for _, text := range texts {
		if strings.Contains(said, text) {
			return true
		}
	}
	return false
}

// spare is what is left free beside what is known to be needed.
const spare = 1 << 20

// roomFor refuses to bring a checkout along where the disk has no room for the
// files that it will have: git cuts off what it cannot write, and a file that is
// cut off cannot be told from one that a person has changed.
func (w *Workspaces) roomFor(ctx context.Context, repo *repository, b bringing) error {
	var stat unix.Statfs_t
	if err := unix.Statfs(b.Tree, &stat); err != nil {
		return failed("look at the disk of "+b.Tree, err)
	}
	changed, err := w.differences(ctx, repo, b.Old, b.New)
	if err != nil {
		return err
	}
	var ids strings.Builder
	for _, d := range changed {
		if isObjectID(d.id) {
			ids.WriteString(d.id + "\n")
		}
	}
	inv := repo.in("cat-file", "--batch-check=%(objectsize)")
	inv.stdin = strings.NewReader(ids.String())
	out, err := w.git.run(ctx, inv)
	if err != nil {
		return failed("look how large the files are", err)
	}
	block := stat.Bsize
	need := int64(spare)
	for line := range strings.Lines(string(out)) {
		size, _ := strconv.ParseInt(strings.TrimSpace(line), 10, 64) // a submodule has none
		need += (size/block + 2) * block
	}
	if free := int64(stat.Bavail) * block; free < need { //nolint:gosec // of a disk
		return caisson.Errorf(caisson.CodeDiskFull, "there is no room for the files of %s in %s: %d MiB are needed", b.Branch, b.Tree, need>>20)
	}
	return nil
}

package workspace

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

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
	for _, dir := range []string{filepath.Dir(inv.index), orElse(inv.tree, p.empty), filepath.Join(inv.gitDir, "refs"), filepath.Join(inv.gitDir, "objects")} {
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

package workspace

import (
	"errors"
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

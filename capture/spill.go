package capture

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"os"
	"path/filepath"
	"syscall"

	"github.com/caisson-run/caisson"
)

var errNotWanted = errors.New("no spill is wanted")

// spill is the file that keeps what the preview does not show.
type spill struct {
	file *os.File
	hash hash.Hash
	n    int64 // bytes in the file
	cap  int64
	path string
	buf  []byte // small pieces are common, system calls are not free
}

const spillBuf = 32 << 10

// newSpill makes the file. O_EXCL makes it ours and new, and follows no link. Its
// directory is made when the first output needs it: most never do.
func newSpill(path string, limit, room int64) (*spill, error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of spills: %w", err)
	}
	used, err := usedIn(dir)
	if err != nil {
		return nil, fmt.Errorf("look at the other spills: %w", err)
	}
	if limit = min(limit, room-used); limit <= 0 {
		return nil, fmt.Errorf("the other spills have %d bytes, and all of them may have %d", used, room)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make spill: %w", err)
	}
	return &spill{file: f, hash: sha256.New(), cap: limit, path: path, buf: make([]byte, 0, spillBuf)}, nil
}

// leastUsed is what a file takes of a disk at least.
const leastUsed = 4 << 10

// usedIn is what the files of a directory take of the disk.
func usedIn(dir string) (int64, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	used := int64(0)
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil { // it may be gone
			used += max(info.Size(), leastUsed)
		}
	}
	return used, nil
}

// write keeps p as far as the cap allows.
func (s *spill) write(p []byte) error {
	room := s.cap - s.n - int64(len(s.buf))
	p = p[:min(int64(len(p)), room)]
	if len(s.buf)+len(p) > spillBuf {
		if err := s.flush(s.buf); err != nil {
			return err
		}
		s.buf = s.buf[:0]
	}
	if len(p) > spillBuf {
		return s.flush(p)
	}
	s.buf = append(s.buf, p...)
	return nil
}

// flush writes to the file; count and digest are of what the file took.
func (s *spill) flush(p []byte) error {
	n, err := s.file.Write(p)
	_, _ = s.hash.Write(p[:n]) // never fails
	s.n += int64(n)
	if err != nil {
		return fmt.Errorf("write spill: %w", err)
	}
	return nil
}

// close says what is in the file.
func (s *spill) close() (caisson.Spill, error) {
	flushErr := s.flush(s.buf)
	s.buf = nil
	err := errors.Join(flushErr, s.file.Close())
	return caisson.Spill{Path: s.path, Bytes: s.n, SHA256: caisson.Digest(hex.EncodeToString(s.hash.Sum(nil)))}, err
}

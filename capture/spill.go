package capture

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io/fs"
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

// newSpill makes the file, and the directory that it is to be in, where there is
// none yet: most calls spill nothing. O_EXCL makes the file ours and new, and
// follows no link.
func newSpill(path string, limit int64) (*spill, error) {
	const flags = os.O_WRONLY | os.O_CREATE | os.O_EXCL | syscall.O_NOFOLLOW
	f, err := os.OpenFile(path, flags, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(filepath.Dir(path), 0o700); err == nil {
			f, err = os.OpenFile(path, flags, 0o600)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("make spill: %w", err)
	}
	return &spill{file: f, hash: sha256.New(), cap: limit, path: path, buf: make([]byte, 0, spillBuf)}, nil
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

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

	"golang.org/x/sys/unix"

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
func newSpill(o Options) (*spill, error) {
	dir := filepath.Dir(o.SpillPath)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of spills: %w", err)
	}
	room, err := RoomIn(dir, o.SpillRoom, o.SpillFloor)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(o.SpillPath, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make spill: %w", err)
	}
	return &spill{file: f, hash: sha256.New(), cap: min(o.SpillCap, room), path: o.SpillPath, buf: make([]byte, 0, spillBuf)}, nil
}

// RoomIn is how much one more file may take in a directory of spills, all of which
// may have most bytes together (0: DefaultSpillRoom) and leave floor bytes free on
// their disk. An error: nothing.
func RoomIn(dir string, most, floor int64) (int64, error) {
	if most <= 0 {
		most = DefaultSpillRoom
	}
	used, err := usedIn(dir)
	if err != nil {
		return 0, fmt.Errorf("look at the other spills: %w", err)
	}
	room := most - used
	if room <= 0 {
		return 0, fmt.Errorf("the other spills have %d bytes, and all of them may have %d", used, most)
	}
	var disk unix.Statfs_t
	if unix.Statfs(dir, &disk) != nil {
		return room, nil // a system that does not tell is not full
	}
	free := int64(disk.Bavail) * int64(disk.Bsize) //nolint:gosec,unconvert // no disk is that large; the type differs by system
	if room = min(room, free-floor); room <= 0 {
		return 0, fmt.Errorf("%d bytes are free on the disk, and %d must stay free", free, floor)
	}
	return room, nil
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

// close says what is in the file. That not all of it is there is told by the count.
func (s *spill) close() caisson.Spill {
	_ = s.flush(s.buf)
	s.buf = nil
	_ = s.file.Close() // what was written was taken: n counts that alone
	return caisson.Spill{Path: s.path, Bytes: s.n, SHA256: caisson.Digest(hex.EncodeToString(s.hash.Sum(nil)))}
}

package sqlite

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/proctree"
)

// held says who holds a lock of the ledger that could not be had in time. A process
// that was stopped in the middle of a write holds it for as long as it is stopped.
func held(f *os.File) error {
	pid := holder(f)
	if pid <= 0 || pid == os.Getpid() {
		return caisson.Errorf(caisson.CodeLedgerBusy, "another process holds the ledger's lock %s", f.Name())
	}
	if p, there := proctree.Of(pid); !there || !p.Stopped {
		return caisson.Errorf(caisson.CodeLedgerBusy, "process %d holds the ledger's lock %s", pid, f.Name())
	}
	return caisson.Errorf(caisson.CodeLedgerBusy, "process %d, which holds the ledger's lock %s, is stopped (SIGSTOP, or Ctrl-Z at its terminal)", pid, f.Name()).
		WithHint("`kill -CONT %d` has it go on. `kill -9 %d` ends it, and nothing that is in the record is lost.", pid, pid)
}

// holder returns the process that has the flock of a file, 0 where the kernel does
// not tell. For a person to read: it may have ended since.
func holder(f *os.File) int {
	var st unix.Stat_t
	locks, err := os.Open("/proc/locks")
	if err != nil {
		return 0
	}
	defer locks.Close()
	if unix.Fstat(int(f.Fd()), &st) != nil {
		return 0
	}
	// Not by device: some file systems show another one here than fstat.
	file := fmt.Sprintf(":%d", st.Ino)
	for lines := bufio.NewScanner(locks); lines.Scan(); {
		// 1: FLOCK ADVISORY WRITE pid major:minor:inode 0 EOF; one that waits has "->" after its number.
		fields := strings.Fields(lines.Text())
		if len(fields) < 6 || fields[1] != "FLOCK" || fields[3] != "WRITE" || !strings.HasSuffix(fields[5], file) {
			continue
		}
		if pid, err := strconv.Atoi(fields[4]); err == nil && hasOpen(pid, f) {
			return pid
		}
	}
	return 0
}

// hasOpen tells whether a process has a file open, for certain: inodes of another
// device have the same numbers, and who took a lock may have left it to a child.
func hasOpen(pid int, f *os.File) bool {
	ours, err := f.Stat()
	if err != nil {
		return false
	}
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	fds, err := os.ReadDir(dir) // those of other users are closed to an ordinary one
	if err != nil {
		return false
	}
	for _, fd := range fds {
		path := filepath.Join(dir, fd.Name())
		to, err := os.Readlink(path)
		if err != nil || filepath.Base(to) != filepath.Base(f.Name()) {
			continue
		}
		if theirs, err := os.Stat(path); err == nil && os.SameFile(ours, theirs) {
			return true
		}
	}
	return false
}

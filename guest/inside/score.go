package inside

import (
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	boxplan "github.com/caisson-run/caisson/guest/plan"
)

// score is which of a box's processes the kernel ends first when memory runs
// out: commands before the guest. Who fills memory with files of /dev/shm needs
// hardly any itself, and the guest would be the largest of all; with it the box
// would end, and nobody would know how the command did. Among themselves commands
// are as they were. On a host that runs out of memory they go before what the
// person runs. A program inside can undo it for itself.
//
// A command inherits its score from the guest, which has that of commands for as
// long as one begins: what shares the guest's memory shares its score, but for a
// child of vfork; and a command cannot set its own before it has executed its
// program, as the guest's memory, in which it is until then, makes its files in
// /proc root's.
type score struct {
	file      *os.File // the guest's; nil where it cannot be set
	own       int
	beginning int // commands that have no process yet
}

const (
	// sooner is a half of all memory, that of the cgroup where it is that which is
	// full: a command of any size then counts for more than the guest.
	sooner  = 500
	highest = 1000
)

// openScore must be called while the guest can be traced: later its files in /proc
// are root's. given is the descriptor, where it was opened before; 0: it was not.
// Where it cannot be had, commands and guest stay as the box was made.
func openScore(given int) score {
	var file *os.File
	var err error
	if given != 0 {
		unix.CloseOnExec(given)
		file = os.NewFile(uintptr(given), boxplan.ScorePath) //nolint:gosec // a descriptor
	} else if file, err = os.OpenFile(boxplan.ScorePath, os.O_RDWR, 0); err != nil {
		return score{}
	}
	raw, err := io.ReadAll(file)
	own, parseErr := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil || parseErr != nil {
		_ = file.Close()
		return score{}
	}
	return score{file: file, own: own}
}

// begin says that a command is about to be forked.
func (s *score) begin() {
	if s.beginning++; s.beginning == 1 {
		s.set(min(s.own+sooner, highest))
	}
}

// begun says that the command has a process, or will have none.
func (s *score) begun() {
	if s.beginning--; s.beginning == 0 {
		s.set(s.own)
	}
}

func (s *score) set(to int) {
	if s.file != nil {
		_, _ = s.file.WriteAt(strconv.AppendInt(nil, int64(to), 10), 0) // it was opened; nothing is promised where it fails
	}
}

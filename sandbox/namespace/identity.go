//go:build linux

package namespace

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
)

// identify reads the identity of a process that cannot be reaped meanwhile, or
// whose start time the caller compares with what it knows.
func identify(pid int) (caisson.ProcessIdentity, error) {
	id := caisson.ProcessIdentity{PID: pid}
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return id, err
	}
	// The second field is a name in parentheses that may hold anything.
	_, rest, _ := strings.Cut(string(raw[strings.LastIndexByte(string(raw), ')')+1:]), " ")
	fields := strings.Fields(rest)
	if len(fields) < 20 {
		return id, fmt.Errorf("stat of process %d cannot be read", pid)
	}
	if id.Start, err = strconv.ParseUint(fields[22-3], 10, 64); err != nil {
		return id, fmt.Errorf("stat of process %d: %w", pid, err)
	}
	if raw, err = os.ReadFile("/proc/sys/kernel/random/boot_id"); err != nil {
		return id, err
	}
	id.Boot = strings.TrimSpace(string(raw))
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/ns/pid", &st); err != nil {
		return id, fmt.Errorf("look at pid namespace: %w", err)
	}
	id.PIDNS = st.Ino
	id.Host, err = os.Hostname()
	return id, err
}

// same tells whether two identities name one process.
func same(a, b caisson.ProcessIdentity) bool {
	return a.Boot == b.Boot && a.PIDNS == b.PIDNS && a.PID == b.PID && a.Start == b.Start
}

// descend proves a process that a guest numbers pid, whose parent it numbers
// holder, to be a descendant of the guest, and returns its identity here.
func descend(guest, holder, pid int) (caisson.ProcessIdentity, error) {
	at := guest
	path := []int{holder, pid}
	if holder == 1 { // the guest itself
		path = path[1:]
	}
	for _, inside := range path {
		next, err := childNumbered(at, inside)
		if err != nil {
			return caisson.ProcessIdentity{}, err
		}
		at = next
	}
	return identify(at)
}

// childNumbered finds the child of parent that its own pid namespace numbers n.
func childNumbered(parent, n int) (int, error) {
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", parent))
	if err != nil {
		return 0, err
	}
	for _, list := range lists {
		raw, err := os.ReadFile(list)
		if err != nil {
			continue // a thread that has ended
		}
		for field := range strings.FieldsSeq(string(raw)) {
			pid, err := strconv.Atoi(field)
			if err == nil && innermost(pid) == n {
				return pid, nil
			}
		}
	}
	return 0, fmt.Errorf("process %d has no child that is numbered %d inside", parent, n)
}

// innermost returns a process's number in the innermost pid namespace it is in;
// 0 if that cannot be told.
func innermost(pid int) int {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(raw)) {
		if numbers, ok := strings.CutPrefix(line, "NSpid:"); ok {
			fields := strings.Fields(numbers)
			n, _ := strconv.Atoi(fields[len(fields)-1])
			return n
		}
	}
	return 0
}

package cli_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/caisson-run/caisson/guest/plan"
	"github.com/caisson-run/caisson/internal/proctree"
)

// roleOf says what a process is to the program that was started: the guest is
// the program of the inside, a holder its child, and a spawner what stands
// between: the program itself once more, or a wrapper. A server is the program
// in the background. What a container engine starts is nobody's child here.
func (s *storm) roleOf(all []proctree.Process, p proctree.Process, program int) string {
	link := func(pid int) string {
		link, _ := os.Readlink("/proc/" + strconv.Itoa(pid) + "/exe") // ended
		return link
	}
	isGuest := func(exe string) bool {
		return strings.HasPrefix(exe, "/memfd:caisson-guest") || exe == plan.GivenDir+"/guest"
	}
	if line, _ := os.ReadFile("/proc/" + strconv.Itoa(p.PID) + "/cmdline"); bytes.Contains(line, []byte("\x00sandbox\x00serve\x00")) && s.environs(p.PID) {
		return "server"
	}
	own := link(p.PID)
	below := slices.ContainsFunc(proctree.Below(all, program, nil), func(q proctree.Process) bool { return q.PID == p.PID })
	switch {
	case isGuest(own) && (below || s.sees(p.PID)):
		if isGuest(link(p.Parent)) {
			return "holder"
		}
		if namespaced(p.PID) || s.engine == "landlock" { // else it only holds a user namespace open for a moment
			return "guest"
		}
	case below && (own != "" && own == link(program) || filepath.Base(own) == "bwrap"):
		return "spawner"
	}
	return ""
}

// sees tells whether a process has something of this machine mounted.
func (s *storm) sees(pid int) bool {
	raw, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/mountinfo") // ended
	return bytes.Contains(raw, []byte(s.dir+"/"))
}

// environs tells whether a process was started on this machine.
func (s *storm) environs(pid int) bool {
	raw, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ") // ended
	return bytes.Contains(raw, []byte("="+s.dir+"/state\x00"))
}

// namespaced tells whether a process has a number in more than one pid namespace.
func namespaced(pid int) bool {
	raw, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status") // ended
	_, rest, _ := strings.Cut(string(raw), "\nNSpid:")
	numbers, _, _ := strings.Cut(rest, "\n")
	return len(strings.Fields(numbers)) > 1
}

// alone looks by itself at what the list of residue is about: processes that
// were started here or see what is here, and mounts.
func (s *storm) alone() {
	s.t.Helper()
	all, err := proctree.All()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, p := range all {
		if p.PID != os.Getpid() && !p.Zombie && (s.environs(p.PID) || s.sees(p.PID)) {
			line, _ := os.ReadFile("/proc/" + strconv.Itoa(p.PID) + "/cmdline") // ended
			s.t.Errorf("process %d is left: %q", p.PID, line)
		}
	}
	if s.sees(os.Getpid()) {
		s.t.Error("a mount is left")
	}
}

// marked returns the processes that bear the marker.
func (s *storm) marked() []string {
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		s.t.Fatal(err)
	}
	var found []string
	for _, path := range all {
		raw, err := os.ReadFile(path)
		if err == nil && bytes.Contains(raw, []byte("sleep\x00"+s.marker)) {
			found = append(found, strings.Split(path, "/")[2])
		}
	}
	return found
}

//go:build linux

package layout

import (
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const etcDir = "/etc"

// etc are the files and directories of the host's /etc that say how programs
// run, and nothing of who uses the host or how it is reached.
var etc = []string{
	"alternatives", "bash.bashrc", "ca-certificates", "crypto-policies", "debian_version", "fonts", "java*",
	"ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "mime.types", "os-release", "pki", "profile",
	"protocols", "redhat-release", "alpine-release", "services", "ssl", "terminfo", "timezone",
}

// etcList finds them, and remembers what it found for as long as the directory is
// the one that it was: to read it takes a tenth of what it takes to make a box on
// the host. The zero value is ready. Safe for concurrent use.
type etcList struct {
	mu    sync.Mutex
	since time.Time // when the directory was last changed
	found []string  // nil: nothing is remembered
}

// etcSettled is how long ago a directory must have been changed for a second
// change to be seen by its time.
const etcSettled = time.Second

// paths returns them; those without a pattern also where they are not there.
func (e *etcList) paths() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var st unix.Stat_t
	err := unix.Stat(etcDir, &st)
	changed := time.Unix(st.Ctim.Unix())
	if err == nil && e.found != nil && changed.Equal(e.since) {
		return slices.Clone(e.found)
	}
	var out []string
	for _, name := range etc {
		path := filepath.Join(etcDir, name)
		if !strings.Contains(name, "*") {
			out = append(out, path)
			continue
		}
		found, _ := filepath.Glob(path) // the patterns are right
		out = append(out, found...)
	}
	e.found = nil
	if err == nil && time.Since(changed) > etcSettled {
		e.found, e.since = out, changed
	}
	return slices.Clone(out)
}

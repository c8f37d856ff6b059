package host

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
)

// A person can have both sides of a channel look for files where events of the
// file system are not to be relied on; else the host's side waits for those.
func TestPollSwitch(t *testing.T) {
	for _, poll := range []string{"", "1"} {
		t.Run("poll="+poll, func(t *testing.T) {
			h := opened(t, "", map[string]string{caisson.ControlPollEnv: poll})
			s, run := servesOn(t, h)
			v, err := s.opened(t.Context(), run.ID, servingRequest{})
			if err != nil {
				t.Fatal(err)
			}
			box, back, err := v.borrow()
			if err != nil {
				t.Fatal(err)
			}
			defer back()
			requests := filepath.Join(h.channelDir(box.record.ID), caisson.ControlRequests)
			if is := watches(t, requests); is != (poll == "") {
				t.Errorf("that it waits for events of requests is %v", is)
			}
			told := false
			for _, entry := range box.asked.Env {
				told = told || entry == caisson.ControlPollEnv+"=1"
			}
			if told != (poll == "1") {
				t.Errorf("that clients inside look too is %v", told)
			}
		})
	}
}

// watches tells whether this process is told by the kernel what comes into a directory.
func watches(t *testing.T, dir string) bool {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		t.Fatal(err)
	}
	infos, err := filepath.Glob("/proc/self/fdinfo/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range infos {
		raw, _ := os.ReadFile(info) // it may be closed by now
		if strings.Contains(string(raw), fmt.Sprintf(" ino:%x ", st.Ino)) {
			return true
		}
	}
	return false
}

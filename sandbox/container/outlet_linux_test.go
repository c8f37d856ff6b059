package container

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
)

// The door opens to the guest alone, once, and nothing is left of it.
func TestDoor(t *testing.T) {
	for what, c := range map[string]struct {
		guest int
		err   string
	}{
		"the guest":     {os.Getpid(), ""},
		"somebody else": {1, "and not the guest"},
	} {
		t.Run(what, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), strings.Repeat("long", 30))
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			d, err := (&staging{dir: dir}).openDoor()
			if err != nil {
				t.Fatal(err)
			}
			t.Chdir(dir) // the path is too long for a socket
			dial := func() (net.Conn, error) {
				return net.DialUnix("unixpacket", nil, &net.UnixAddr{Net: "unixpacket", Name: outletName})
			}
			conn, err := dial()
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			socket, err := d.take(caisson.ProcessIdentity{PID: c.guest})
			if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
				t.Fatalf("take: %v, want %q", err, c.err)
			}
			if err == nil {
				if kind, err := unix.GetsockoptInt(int(socket.Fd()), unix.SOL_SOCKET, unix.SO_TYPE); err != nil || kind != unix.SOCK_SEQPACKET {
					t.Errorf("kind %d, %v", kind, err)
				}
				if err := socket.Close(); err != nil {
					t.Error(err)
				}
			}
			if again, err := dial(); err == nil {
				again.Close()
				t.Error("a second one came in")
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("left: %v, %v", left, err)
			}
			if err := d.close(); err != nil {
				t.Errorf("close: %v", err)
			}
		})
	}
}

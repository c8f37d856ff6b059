package container

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
)

// carries: engines here may be on this kernel, on which alone a socket of the
// host's can be shown in a box.
const carries = true

// outletName is the socket of the way out, in the directory of a box.
const outletName = "outlet"

// door is where the guest comes for the way out, once: a container cannot be
// started with a descriptor of ours.
type door struct {
	path     string
	listener *net.UnixListener
}

// openDoor listens in the directory of a box. Nobody else can come to the
// socket: the directories above are this user's alone, and in the box the guest
// comes before any program.
func (s *staging) openDoor() (*door, error) {
	dir, err := os.Open(s.dir)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	// The path of a socket may have 107 bytes, and the directory's may have more.
	at := &net.UnixAddr{Net: "unixpacket", Name: fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), outletName)}
	listener, err := net.ListenUnix(at.Net, at)
	if err != nil {
		return nil, err
	}
	listener.SetUnlinkOnClose(false) // by a path that is not for long
	d := &door{path: filepath.Join(s.dir, outletName), listener: listener}
	if err := os.Chmod(d.path, 0o666); err != nil { //nolint:gosec // for the box's user
		_ = d.close()
		return nil, err
	}
	return d, nil
}

// take takes the guest's connection, which has come before it reported, and
// closes the door. Whoever else came is refused with the box.
func (d *door) take(guest caisson.ProcessIdentity) (_ *os.File, err error) {
	defer func() {
		if closeErr := d.close(); err == nil {
			err = closeErr
		}
	}()
	if err := d.listener.SetDeadline(time.Now().Add(lookBound)); err != nil {
		return nil, err
	}
	conn, err := d.listener.AcceptUnix()
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }() // the socket is a copy
	socket, err := conn.File()
	if err != nil {
		return nil, err
	}
	peer, err := unix.GetsockoptUcred(int(socket.Fd()), unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err == nil && int(peer.Pid) != guest.PID {
		err = fmt.Errorf("process %d came, and not the guest", peer.Pid)
	}
	if err != nil {
		_ = socket.Close()
		return nil, err
	}
	return socket, nil
}

// close closes the door for good.
func (d *door) close() error {
	if d == nil || d.listener == nil {
		return nil
	}
	err := d.listener.Close()
	d.listener = nil
	if removeErr := os.Remove(d.path); err == nil {
		err = removeErr
	}
	return err
}

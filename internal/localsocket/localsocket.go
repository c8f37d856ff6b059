// Package localsocket makes and reaches unix sockets through which processes of
// one user talk. Nobody else can reach one, and each side is told by the kernel
// whose process is at the other end.
//
// What is not promised: anything of sockets on a file system of another machine.
package localsocket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
)

// Kinds of socket.
const (
	Stream  = "unix"       // bytes in order
	Packets = "unixpacket" // messages in order, each as it was sent
)

// maxPath is what the kernel has room for in the address of a unix socket.
const maxPath = 107

// dialBound is how long a server may take to take a connection.
const dialBound = 5 * time.Second

// reachable calls use with a path of the socket that is short enough to be an
// address: if it is not itself, by way of a descriptor of its directory.
func reachable(path string, use func(address string) error) error {
	if len(path) <= maxPath {
		return use(path)
	}
	dir, err := os.OpenFile(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer dir.Close()
	return use(filepath.Join("/proc/self/fd", strconv.Itoa(int(dir.Fd())), filepath.Base(path)))
}

// Listen makes a socket, for its user alone; its directory is made if it is
// missing. Closing the listener leaves the socket's file.
func Listen(kind, path string) (*net.UnixListener, error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of sockets: %w", err)
	}
	if err := ownOnly(dir); err != nil {
		return nil, err
	}
	var l *net.UnixListener
	err := reachable(path, func(address string) (err error) {
		l, err = net.ListenUnix(kind, &net.UnixAddr{Name: address, Net: kind})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("make the socket: %w", err)
	}
	l.SetUnlinkOnClose(false) // by an address that may not be its path
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("protect the socket: %w", err), l.Close(), os.Remove(path))
	}
	return l, nil
}

// ownOnly refuses a directory that another user can reach into.
func ownOnly(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	owner, known := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || info.Mode().Perm()&0o077 != 0 || !known || int(owner.Uid) != os.Geteuid() {
		return caisson.Errorf(caisson.CodePathInvalid, "%s is not a directory of this user alone", dir).WithHint("Remove it, or `chmod 700` it if it is yours.")
	}
	return nil
}

// Dial reaches a server of this user. CodeNotFound where nobody listens.
func Dial(ctx context.Context, kind, path string) (*net.UnixConn, error) {
	var conn net.Conn
	err := reachable(path, func(address string) (err error) {
		d := net.Dialer{Timeout: dialBound}
		conn, err = d.DialContext(ctx, kind, address)
		return err
	})
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
			err = caisson.Errorf(caisson.CodeNotFound, "nobody listens there: %w", err)
		}
		return nil, err
	}
	c, _ := conn.(*net.UnixConn) // of the kind that was dialled
	if _, err := Peer(c); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return c, nil
}

// Peer returns the process at the other end, if it is the same user's;
// CodeRefused if it is another's.
func Peer(conn *net.UnixConn) (pid int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	ctlErr := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) //nolint:gosec // a descriptor
	})
	if err := errors.Join(ctlErr, err); err != nil {
		return 0, fmt.Errorf("ask who is at the other end: %w", err)
	}
	if int(cred.Uid) != os.Geteuid() {
		return 0, caisson.Errorf(caisson.CodeRefused, "the other end is user %d's", cred.Uid)
	}
	return int(cred.Pid), nil
}

// Answers tells whether a server listens at path.
func Answers(ctx context.Context, kind, path string) bool {
	conn, err := Dial(ctx, kind, path)
	if err != nil {
		return false
	}
	_ = conn.Close() // nothing was sent
	return true
}

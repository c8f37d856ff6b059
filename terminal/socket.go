package terminal

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

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
)

// maxPath is what the kernel has room for in the address of a unix socket.
const maxPath = 107

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

// listen makes the socket, for its user alone.
func listen(path string) (*net.UnixListener, error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of sockets: %w", err)
	}
	if err := ownOnly(dir); err != nil {
		return nil, err
	}
	var l *net.UnixListener
	err := reachable(path, func(address string) (err error) {
		l, err = net.ListenUnix("unix", &net.UnixAddr{Name: address, Net: "unix"})
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

// dial reaches a server of this user.
func dial(ctx context.Context, path string) (*net.UnixConn, error) {
	var conn net.Conn
	err := reachable(path, func(address string) (err error) {
		d := net.Dialer{Timeout: greeting}
		conn, err = d.DialContext(ctx, "unix", address)
		return err
	})
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
			err = caisson.Errorf(caisson.CodeNotFound, "nobody serves the terminal: %w", err)
		}
		return nil, err
	}
	c, _ := conn.(*net.UnixConn) // of the network that was dialled
	if _, err := peer(c); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return c, nil
}

// peer returns the process at the other end, if it is the same user's.
func peer(conn *net.UnixConn) (pid int, err error) {
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
func Answers(ctx context.Context, path string) bool {
	conn, err := dial(ctx, path)
	if err != nil {
		return false
	}
	_ = conn.Close() // nothing was sent
	return true
}

package channel

import (
	"errors"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/fault"
)

// Claim takes a request and returns its bytes; nobody else gets it. Its file stays
// out of sight until Release: when its owner dies before that, whoever opens the
// channel next finds it (see Left). An error is
//
//   - fs.ErrNotExist where it is not there (any more): its client took it back,
//     or another claimed it;
//   - CodeRequestInvalid where it is nothing that may be read; it is claimed all
//     the same, and the error may be shown inside;
//   - CodeDiskFull or CodeWriteFailed where it could not be moved and is where it
//     was. The latter is not returned by Scan again.
func (f *Files) Claim(id caisson.RequestID) ([]byte, error) {
	if !id.Valid() {
		return nil, fs.ErrNotExist
	}
	name, left := f.claims.inherit(id)
	if !left {
		name = f.name(string(id)+".") + requestSuffix
		if err := f.moveIn(string(id)+requestSuffix, name); err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return nil, fs.ErrNotExist
			}
			refused := failed("claim a request", err)
			if refused.Code == caisson.CodeWriteFailed {
				f.scan.leaveOut(id)
			}
			return nil, refused
		}
		_ = fault.Point("channel.claim.moved")
		f.claims.add(id, name)
	}
	body, err := f.readRequest(name)
	if errors.Is(err, fs.ErrNotExist) {
		f.claims.drop(id)
	}
	return body, err
}

// moveIn moves an entry of requests into private, whatever it is.
func (f *Files) moveIn(from, to string) error {
	move := func() error { return unix.Renameat(at(f.requests), from, at(f.private), to) }
	err := move()
	if errors.Is(err, fs.ErrPermission) {
		// The sandbox may take the right to write from its own directories: from
		// this one, and from one that is in it, whose ".." changes.
		if err = f.regain(); err == nil {
			if dir, err := openDir(f.requests, from); err == nil {
				dir.Close()
			}
			err = move()
		}
	}
	return err
}

// regain takes back the right to work in requests.
func (f *Files) regain() error {
	var st unix.Stat_t
	if err := unix.Fstat(at(f.requests), &st); err != nil {
		return err
	}
	if st.Mode&0o7777 == dirMode {
		return nil
	}
	return unix.Fchmod(at(f.requests), dirMode)
}

// readRequest reads a claimed file, which nobody inside can exchange any more;
// whoever had it open can still change it, so that it is read once.
func (f *Files) readRequest(name string) ([]byte, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(at(f.private), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return nil, fs.ErrNotExist // another has opened the channel meanwhile, and has it
	}
	if err := readable(&st); err != nil {
		return nil, err
	}
	fd, err := unix.Openat(at(f.private), name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, invalid("it cannot be opened")
	}
	file := os.NewFile(uintptr(fd), "request")
	defer file.Close()
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, invalid("it cannot be looked at")
	}
	if err := readable(&st); err != nil {
		return nil, err
	}
	body, err := io.ReadAll(io.LimitReader(file, caisson.ControlBody+1))
	switch {
	case err != nil:
		return nil, invalid("it cannot be read")
	case len(body) > caisson.ControlBody:
		return nil, tooLarge()
	}
	return body, nil
}

func readable(st *unix.Stat_t) error {
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return invalid("it is not a regular file")
	case st.Nlink != 1:
		return invalid("its file has another name")
	case st.Size > caisson.ControlBody:
		return tooLarge()
	}
	return nil
}

func tooLarge() *caisson.Error { return invalid("it is larger than %d bytes", caisson.ControlBody) }

func invalid(format string, args ...any) *caisson.Error {
	return caisson.Errorf(caisson.CodeRequestInvalid, "the request is not valid: "+format, args...)
}

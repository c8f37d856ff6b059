package inside

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/guest/wire"
)

// maxContent is the most that one operation reads or writes, and the largest
// file that is given a digest.
const maxContent = 64 << 20

// fileOp is one file operation at the guest.
type fileOp struct {
	s       *server
	id      uint32
	req     wire.File
	input   *wire.Ring
	credit  *wire.Credit
	dropped atomic.Bool
}

var errDropped = errors.New("the operation was given up")

// file answers a file frame. The work is done aside: a disk may be slow.
func (s *server) file(h wire.Header) error {
	body, err := s.in.Control(h)
	if err != nil {
		return err
	}
	o := &fileOp{s: s, id: h.Stream, input: wire.NewRing(), credit: wire.NewCredit()}
	if err := wire.Decode(body, &o.req); err != nil {
		return err
	}
	s.add(h.Stream, o)
	go func() { // ends with the operation, which is bounded
		done, err := o.do()
		if err != nil {
			s.last(wire.TypeFailed, o.id, wire.FailedOf(err))
			return
		}
		s.last(wire.TypeDone, o.id, &done)
	}()
	return nil
}

// frame implements stream.
func (o *fileOp) frame(h wire.Header, in *wire.Reader) error {
	if h.Type == wire.TypeIn {
		fits, err := o.input.Fill(h.Length, in.Body)
		if err == nil && !fits {
			err = errors.New("more content than was allowed")
		}
		return err
	}
	body, err := in.Control(h)
	if err != nil {
		return err
	}
	switch h.Type {
	case wire.TypeDrop:
		o.dropped.Store(true)
		o.input.Break()
		o.credit.Break()
		return nil
	case wire.TypeCredit:
		_, n, err := wire.ParseCredit(body)
		if err == nil && !o.credit.Give(n) {
			err = errors.New("credit for what was not sent")
		}
		return err
	default:
		return errors.New("a frame that is not for a file operation")
	}
}

func (o *fileOp) do() (wire.Done, error) {
	switch o.req.Op {
	case wire.OpRead:
		return o.read()
	case wire.OpWrite:
		return o.write()
	case wire.OpStat:
		return o.stat()
	case wire.OpGlob:
		return o.glob()
	case wire.OpGrep:
		return o.grep()
	default:
		return wire.Done{}, fmt.Errorf("no operation %q", o.req.Op)
	}
}

// Write sends content to the host; it implements io.Writer.
func (o *fileOp) Write(p []byte) (int, error) {
	buf := make([]byte, wire.HeaderSize+min(len(p), wire.MaxData))
	for rest := p; len(rest) > 0; {
		n := o.credit.Take(min(len(rest), wire.MaxData))
		if n == 0 {
			return 0, errDropped
		}
		copy(buf[wire.HeaderSize:], rest[:n])
		if err := o.s.out.Data(wire.TypeOut, o.id, buf[:wire.HeaderSize+n]); err != nil {
			return 0, err
		}
		rest = rest[n:]
	}
	return len(p), nil
}

// list sends a list as JSON.
func (o *fileOp) list(v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = o.Write(raw)
	return err
}

// regular opens a regular file to read.
func (s *server) regular(path string) (*os.File, fs.FileInfo, error) {
	f, err := s.openFile(path, os.O_RDONLY)
	if err != nil {
		return nil, nil, err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = caisson.Errorf(caisson.CodePathInvalid, "%q is not a file but a %s", path, kind(st.Mode()))
	}
	if err != nil {
		_ = f.Close()
		return nil, nil, pathError(path, err)
	}
	return f, st, nil
}

func kind(mode fs.FileMode) string {
	switch {
	case mode.IsRegular():
		return "file"
	case mode.IsDir():
		return "dir"
	case mode&fs.ModeSymlink != 0:
		return "link"
	default:
		return "other"
	}
}

func infoOf(st fs.FileInfo) *wire.Info {
	return &wire.Info{Size: st.Size(), Mode: unixMode(st.Mode()), Kind: kind(st.Mode()), ModTime: st.ModTime()}
}

// unixMode returns the permission bits with set-id and sticky in their places.
func unixMode(mode fs.FileMode) uint32 {
	bits := uint32(mode.Perm())
	for from, to := range map[fs.FileMode]uint32{fs.ModeSetuid: unix.S_ISUID, fs.ModeSetgid: unix.S_ISGID, fs.ModeSticky: unix.S_ISVTX} {
		if mode&from != 0 {
			bits |= to
		}
	}
	return bits
}

func (o *fileOp) read() (wire.Done, error) {
	path := string(o.req.Path)
	f, st, err := o.s.regular(path)
	if err != nil {
		return wire.Done{}, err
	}
	defer f.Close()
	info := infoOf(st)
	if st.Size() > maxContent {
		_, err = io.Copy(o, io.NewSectionReader(f, o.req.Offset, o.req.Limit))
		return wire.Done{Info: info}, pathErrorOrNil(path, err)
	}
	// The digest is of the whole, so that all of it is read; only the part
	// that was asked for is sent.
	hash := sha256.New()
	buf := make([]byte, 128<<10)
	var at int64
	for at <= maxContent {
		n, err := f.Read(buf)
		_, _ = hash.Write(buf[:n]) // never fails
		from := min(max(o.req.Offset-at, 0), int64(n))
		to := min(max(o.req.Offset+o.req.Limit-at, from), int64(n))
		if _, err := o.Write(buf[from:to]); err != nil {
			return wire.Done{}, err
		}
		at += int64(n)
		if errors.Is(err, io.EOF) {
			info.Digest, info.Size = caisson.Digest(hex.EncodeToString(hash.Sum(nil))), at
			break
		}
		if err != nil {
			return wire.Done{}, pathError(path, err)
		}
	}
	return wire.Done{Info: info}, nil
}

func pathErrorOrNil(path string, err error) error {
	if err == nil {
		return nil
	}
	return pathError(path, err)
}

// digest returns the digest of a regular file, "" for one that is too large.
func (s *server) digest(path string) (caisson.Digest, error) {
	f, st, err := s.regular(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if st.Size() > maxContent {
		return "", nil
	}
	hash := sha256.New()
	n, err := io.Copy(hash, io.LimitReader(f, maxContent+1))
	if err != nil || n > maxContent {
		return "", pathErrorOrNil(path, err)
	}
	return caisson.Digest(hex.EncodeToString(hash.Sum(nil))), nil
}

func (o *fileOp) stat() (wire.Done, error) {
	path := string(o.req.Path)
	rel, err := o.s.relative(path)
	if err != nil {
		return wire.Done{}, err
	}
	st, err := o.s.lstat(rel)
	if err != nil {
		return wire.Done{}, pathError(path, err)
	}
	info := infoOf(st)
	if st.Mode().IsRegular() {
		// One that cannot be read has no digest, and is there all the same.
		if info.Digest, err = o.s.digest(path); err != nil && !errors.Is(err, fs.ErrPermission) {
			return wire.Done{}, err
		}
	}
	return wire.Done{Info: info}, nil
}

// lstat does not follow the last element.
func (s *server) lstat(rel string) (fs.FileInfo, error) {
	st, err := s.root.Lstat(rel)
	if escapes(err) {
		if dir, resolved := s.resolve(filepath.Dir(rel)); resolved {
			return s.root.Lstat(filepath.Join(dir, filepath.Base(rel)))
		}
	}
	return st, err
}

func (o *fileOp) write() (wire.Done, error) {
	path := string(o.req.Path)
	rel, err := o.s.relative(path)
	if err != nil {
		return wire.Done{}, err
	}
	if rel == "." || o.req.Size < 0 || o.req.Size > maxContent {
		return wire.Done{}, caisson.Errorf(caisson.CodePathInvalid, "%q cannot be written", path)
	}
	dir := filepath.Dir(rel)
	if o.req.Parents {
		if err := o.s.root.MkdirAll(dir, 0o755); err != nil && !escapes(err) {
			return wire.Done{}, pathError(path, err)
		}
	}
	if in, resolved := o.s.resolve(dir); resolved {
		dir = in
	}
	final := filepath.Join(dir, filepath.Base(rel))
	mode, err := o.writable(final)
	if err != nil {
		return wire.Done{}, err
	}
	temp := filepath.Join(dir, ".caisson-"+rand.Text()+".tmp")
	f, err := o.s.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return wire.Done{}, pathError(path, err)
	}
	done, err := o.fill(f, mode)
	if err == nil {
		err = o.put(temp, final)
	}
	if err != nil {
		_ = o.s.root.Remove(temp) // the first error is the one to tell
		return wire.Done{}, pathError(path, err)
	}
	return done, nil
}

// writable checks what must hold for a write and returns the mode of the file.
func (o *fileOp) writable(final string) (fs.FileMode, error) {
	path := string(o.req.Path)
	mode := fs.FileMode(o.req.Mode & 0o7777)
	if mode == 0 {
		mode = 0o644
	}
	st, err := o.s.root.Lstat(final)
	switch {
	case errors.Is(err, fs.ErrNotExist) && o.req.Expect == "":
		return mode, nil
	case errors.Is(err, fs.ErrNotExist):
		return 0, caisson.Errorf(caisson.CodeFileChanged, "%q is not there any more", path)
	case err != nil:
		return 0, pathError(path, err)
	case o.req.Create:
		return 0, caisson.Errorf(caisson.CodeAlreadyExists, "%q exists", path)
	case st.Mode()&fs.ModeSymlink != 0:
		if _, resolved := o.s.resolve(final); !resolved {
			return 0, outside(path)
		}
		return 0, caisson.Errorf(caisson.CodePathInvalid, "%q is a link", path).WithHint("Write to the file that it leads to.")
	case !st.Mode().IsRegular():
		return 0, caisson.Errorf(caisson.CodePathInvalid, "%q is not a file but a %s", path, kind(st.Mode()))
	}
	return st.Mode().Perm(), o.unchanged(final)
}

// unchanged checks the digest that is expected.
func (o *fileOp) unchanged(final string) error {
	if o.req.Expect == "" {
		return nil
	}
	now, err := o.s.digest(final)
	if err == nil && now != o.req.Expect {
		err = caisson.Errorf(caisson.CodeFileChanged, "%q was changed since it was read", string(o.req.Path))
	}
	return err
}

// fill writes what the host sends.
func (o *fileOp) fill(f *os.File, mode fs.FileMode) (wire.Done, error) {
	defer f.Close()
	hash := sha256.New()
	var got int64
	owed := 0
	for got < o.req.Size {
		n, err := o.input.Take(func(chunk []byte) error {
			_, _ = hash.Write(chunk) // never fails
			_, err := f.Write(chunk)
			return err
		})
		if err != nil {
			return wire.Done{}, err
		}
		got += int64(n)
		if owed += n; owed >= wire.Window/2 {
			if err := o.s.out.Credit(o.id, wire.TypeIn, owed); err != nil {
				return wire.Done{}, err
			}
			owed = 0
		}
	}
	if err := f.Chmod(mode); err != nil {
		return wire.Done{}, err
	}
	if err := f.Sync(); err != nil {
		return wire.Done{}, err
	}
	st, err := f.Stat()
	if err != nil {
		return wire.Done{}, err
	}
	info := infoOf(st)
	info.Digest = caisson.Digest(hex.EncodeToString(hash.Sum(nil)))
	return wire.Done{Info: info}, f.Close()
}

// put gives the new file its name.
func (o *fileOp) put(temp, final string) error {
	if o.req.Create {
		if err := o.s.root.Link(temp, final); err != nil { // fails where the name is taken
			return err
		}
		return o.s.root.Remove(temp)
	}
	if err := o.unchanged(final); err != nil {
		return err
	}
	return o.s.root.Rename(temp, final)
}

package host

import (
	"bytes"
	"errors"
	"io"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

// begun makes streams of files; those are closed.
func begun(t *testing.T, files ...*os.File) *streams {
	t.Helper()
	s, err := newStreams(files)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// ends fails where the streams are not closed soon.
func (s *streams) ends(t *testing.T) {
	t.Helper()
	ended := make(chan struct{})
	go func() { s.close(); s.close(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(never):
		t.Fatal("the streams do not end while nobody reads what was written")
	}
}

func dup(t *testing.T, f *os.File) *os.File {
	t.Helper()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fd), f.Name())
}

// used waits until so many calls of a descriptor are under way.
func (s *streams) used(t *testing.T, d *descriptor, calls int) {
	t.Helper()
	eventually(t, "its descriptor is not used", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return d.users >= calls
	})
}

// never is how long a test waits for what comes at once where nothing is wrong: no
// machine is so busy.
const never = 2 * time.Minute

// eventually waits for a state that nothing tells of.
func eventually(t *testing.T, not string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(never); !is(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatal(not)
		}
	}
}

// Both outputs of a session are one pipe, whose reader pauses: each is told that
// it can go on, and one cannot. Nobody waits for it, and it ends with the pause.
func TestStreamsShared(t *testing.T) {
	for _, plain := range []bool{false, true} {
		in, _ := pipe(t)
		r, w := pipe(t)
		s := begun(t, in, dup(t, w), w)
		s.out.d.plain, s.err.d.plain = plain, plain
		if _, err := s.out.Write(make([]byte, 15*atOnce)); err != nil {
			t.Fatal(err)
		}
		var writers sync.WaitGroup
		for _, d := range []*streamOut{s.out, s.err} { // with one page free
			writers.Go(func() {
				if _, err := d.Write(make([]byte, 64*atOnce)); !errors.Is(err, errStreamsClosed) {
					t.Errorf("a write that nobody reads: %v", err)
				}
			})
		}
		// For certain, too: one that the kernel holds up.
		held := make(chan error, 1)
		writers.Go(func() {
			held <- s.use(s.out.d, func() error {
				_, err := unix.Write(s.out.d.fd, bytes.Repeat([]byte{'x'}, 64*atOnce))
				return err
			})
		})
		s.used(t, s.out.d, 2)
		s.used(t, s.err.d, 1)
		s.ends(t)
		select {
		case err := <-held:
			t.Errorf("it was not held up: %v", err)
		default:
		}
		if _, err := s.out.Write([]byte{'x'}); !errors.Is(err, errStreamsClosed) {
			t.Errorf("a write after the end: %v", err)
		}
		if _, err := io.Copy(io.Discard, r); err != nil { // ends when nobody has the pipe
			t.Error(err)
		}
		writers.Wait()
		if err := <-held; err != nil {
			t.Errorf("what was held up: %v", err)
		}
	}
}

// Another takes what a session was told that it can read: the session does not
// wait for more in a way that cannot be ended, and takes nothing after its end.
func TestStreamsStolen(t *testing.T) {
	r, w := pipe(t)
	out, _ := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	thief := dup(t, r)
	t.Cleanup(func() { thief.Close() })
	s := begun(t, r, dup(t, out), out)
	s.in.d.look()
	if n, err := s.in.d.try(make([]byte, 1), unix.Preadv2, func(int, []byte) (int, error) { return 0, unix.EOPNOTSUPP }); err == nil || errors.Is(err, unix.EOPNOTSUPP) {
		t.Skipf("the kernel has no read of a pipe that does not wait: %d, %v", n, err)
	}
	read := make(chan error, 1)
	go func() {
		_, err := s.in.Read(make([]byte, 8))
		read <- err
	}()
	s.used(t, s.in.d, 1)
	s.ends(t)
	if err := <-read; !errors.Is(err, io.EOF) {
		t.Errorf("the read ends with %v", err)
	}
	if _, err := w.WriteString("later"); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 8)
	if n, err := thief.Read(buf); err != nil || string(buf[:n]) != "later" {
		t.Errorf("another reads %q, %v", buf[:n], err)
	}
}

// What goes through whole is what came.
func TestStreamsPass(t *testing.T) {
	in, typed := pipe(t)
	shown, out := pipe(t)
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	s := begun(t, in, out, dup(t, file))
	defer file.Close()
	want := bytes.Repeat([]byte("0123456789abcde\n"), 1<<16)
	go func() {
		_, _ = typed.Write(want) // what is missing is told below
		typed.Close()
	}()
	var got []byte
	var reader sync.WaitGroup
	reader.Go(func() { got, _ = io.ReadAll(shown) })
	if n, err := io.Copy(io.MultiWriter(s.out, s.err), s.in); err != nil || n != int64(len(want)) {
		t.Errorf("%d bytes, %v", n, err)
	}
	s.ends(t)
	reader.Wait()
	if kept, err := os.ReadFile(file.Name()); err != nil || !bytes.Equal(kept, want) || !bytes.Equal(got, want) {
		t.Errorf("%d bytes in the file, %d through the pipe, %v", len(kept), len(got), err)
	}
}

package terminal

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/localsocket"
)

// Who comes sees what was shown before, once and whole, then what follows.
func TestReplay(t *testing.T) {
	t.Parallel()
	s := open(t, Options{})
	write(t, s, "before ")
	a := enter(t, s, hello{Size: size})
	a.shown("before ")
	b := enter(t, s, hello{Size: size})
	write(t, s, "after")
	a.shown("after")
	if got := b.shown("after"); got != "before after" {
		t.Errorf("%q", got)
	}
}

// Attaching while much is shown loses and doubles nothing.
func TestReplayHasNoGap(t *testing.T) {
	t.Parallel()
	s := open(t, Options{})
	const lines = 2000 // less than is shown again
	go func() {
		for n := range lines {
			_, _ = s.Write([]byte{byte('a' + n%26), '\n'})
		}
		_, _ = s.Write([]byte("end"))
	}()
	want := strings.Builder{}
	for n := range lines {
		want.Write([]byte{byte('a' + n%26), '\n'})
	}
	want.WriteString("end")
	for range 8 {
		if got := enter(t, s, hello{Size: size}).shown("end"); got != want.String() {
			t.Errorf("%d bytes instead of %d", len(got), want.Len())
		}
	}
}

// A viewer that reads nothing holds up nobody, and is let go.
func TestViewerThatDoesNotRead(t *testing.T) {
	t.Parallel()
	// Who writes must be done before the viewer is let go, and was held up by it else:
	// by the machine, where it is also with a longer stall.
	for stall := 6 * time.Second; !doesNotRead(t, stall) && !t.Failed(); stall *= 4 {
		if stall > time.Minute {
			t.Fatal("a write waits for a viewer that does not read")
		}
	}
}

// doesNotRead tells whether all was written while a viewer that reads nothing was
// still there.
func doesNotRead(t *testing.T, stall time.Duration) bool {
	t.Helper()
	why := make(chan string, 4)
	s := open(t, Options{Stall: stall, Detached: func(_ Viewer, w string) { why <- w }})
	enter(t, s, hello{Size: size})
	var shown tail
	went, attached := make(chan Went, 1), make(chan struct{})
	go func() { // ends with the server's end
		w, _ := Attach(t.Context(), s.opts.Path, View{Out: &shown, Size: size, Attached: func() { close(attached) }})
		went <- w
	}()
	<-attached // who comes after all has been written is shown no line that it is within
	began, chunk := time.Now(), bytes.Repeat([]byte("x"), maxBody)
	for range 256 { // 16 MiB
		_, _ = s.Write(chunk)
	}
	inTime := len(why) == 0 && time.Since(began) < stall/2 // it takes milliseconds where it waits for nobody
	write(t, s, "the end")
	first := <-why
	s.Ended()
	if w := <-went; inTime && (first != wasStalled || w != WentEnded || !strings.Contains(string(shown), "the end")) {
		t.Errorf("it went as %q; the other one %s, and saw %q last", first, w, shown)
	}
	return inTime
}

// tail keeps the last bytes that were written.
type tail []byte

func (k *tail) Write(p []byte) (int, error) {
	*k = append(*k, p...)
	*k = (*k)[max(0, len(*k)-64):]
	return len(p), nil
}

// One that is behind is told how much it has not seen.
func TestViewerThatIsBehind(t *testing.T) {
	t.Parallel()
	s := open(t, Options{})
	r := enter(t, s, hello{Size: size})
	for range (2*behind + 2<<20) / maxBody { // as much as may wait is on its way, at most
		_, _ = s.Write(bytes.Repeat([]byte("x"), maxBody))
	}
	write(t, s, "\nthe end")
	told, total := false, 0
	for {
		kind, body, err := r.in.next()
		if err != nil {
			t.Fatal(err)
		}
		told = told || kind == typeNote && strings.Contains(string(body), "left out")
		total += len(body)
		if kind == typeOutput && bytes.HasSuffix(body, []byte("the end")) {
			break
		}
	}
	if !told || total > 2*behind+1<<20 {
		t.Errorf("told %v, %d bytes", told, total)
	}
}

// What is typed reaches the program exactly; who only looks types nothing.
func TestInput(t *testing.T) {
	t.Parallel()
	s := open(t, Options{})
	a, b, looks := enter(t, s, hello{Size: size}), enter(t, s, hello{Size: size}), enter(t, s, hello{ReadOnly: true, Size: size})
	looks.send(appendFrame(nil, typeInput, []byte("no")))
	a.send(appendFrame(nil, typeInput, []byte("one\x00\xff\x03")))
	buf := make([]byte, 64)
	n, err := io.ReadAtLeast(s, buf, 6)
	if err != nil || string(buf[:n]) != "one\x00\xff\x03" {
		t.Errorf("%q, %v", buf[:n], err)
	}
	b.send(appendFrame(nil, typeInput, []byte("two")))
	if n, err = io.ReadAtLeast(s, buf, 3); err != nil || string(buf[:n]) != "two" {
		t.Errorf("%q, %v", buf[:n], err)
	}
	s.Ended()
	if _, err := s.Read(buf); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
}

// More than a program may leave unread is lost, and said; nothing grows.
func TestInputThatNobodyReads(t *testing.T) {
	t.Parallel()
	s := open(t, Options{})
	r := enter(t, s, hello{Size: size})
	for range unread/maxBody + 1 {
		r.send(appendFrame(nil, typeInput, make([]byte, maxBody)))
	}
	if note := string(r.want(typeNote)); !strings.Contains(note, "does not read") {
		t.Error(note)
	}
	if n := len(s.in.buf); n != unread {
		t.Errorf("%d bytes wait", n)
	}
}

// The size is that of who typed last, or came last; never of one who only looks.
func TestSize(t *testing.T) {
	t.Parallel()
	s := open(t, Options{})
	of := func(rows, cols uint16) caisson.Winsize { return caisson.Winsize{Rows: rows, Cols: cols} }
	next := func(want caisson.Winsize) {
		t.Helper()
		if got := <-s.Sizes(); got != want {
			t.Errorf("%v, want %v", got, want)
		}
	}
	a := enter(t, s, hello{Size: of(10, 20)})
	next(of(10, 20))
	enter(t, s, hello{Size: of(1, 2), ReadOnly: true})
	b := enter(t, s, hello{Size: of(30, 40)})
	next(of(30, 40))
	a.send(appendJSON(nil, typeSize, of(11, 21))) // it is b's turn
	b.send(appendJSON(nil, typeSize, of(31, 41)))
	next(of(31, 41))
	a.send(appendFrame(nil, typeInput, []byte("x")))
	next(of(11, 21))
	s.Ended()
	if _, more := <-s.Sizes(); more {
		t.Error("a size after the end")
	}
}

// A full-screen program is asked to draw for who comes, and its modes are set.
func TestOtherScreen(t *testing.T) {
	t.Parallel()
	s := open(t, Options{})
	write(t, s, "shell\x1b[?1049h\x1b[?25ldrawn")
	r := enter(t, s, hello{Size: size})
	if got := r.shown("\x1b[2J\x1b[H"); !strings.HasPrefix(got, "\x1b[?1049h\x1b[?25l") || strings.Contains(got, "drawn") {
		t.Errorf("%q", got)
	}
	if got := <-s.Sizes(); got.Rows != size.Rows-1 {
		t.Error(got)
	}
	if got := <-s.Sizes(); got != size {
		t.Error(got)
	}
}

// The end is told to all, after all that was shown; who comes then sees both.
func TestEnd(t *testing.T) {
	t.Parallel()
	s := open(t, Options{})
	a := enter(t, s, hello{Size: size})
	write(t, s, "last words")
	s.Ended()
	late := enter(t, s, hello{Size: size})
	for _, r := range []*raw{a, late} {
		r.shown("last words")
		if body := string(r.want(typeEnd)); !strings.Contains(body, `"ended":true`) {
			t.Error(body)
		}
	}
	var out bytes.Buffer
	went, err := Attach(t.Context(), s.opts.Path, View{Out: &out})
	if went != WentEnded || err != nil || out.String() != "last words" {
		t.Error(went, err, out.String())
	}
}

// Whoever is refused learns why; the number of viewers is bounded.
func TestRefused(t *testing.T) {
	t.Parallel()
	s := open(t, Options{Attached: func(v Viewer) error {
		if v.PID != os.Getpid() || v.N < 1 {
			t.Errorf("%+v", v)
		}
		if v.Size.Rows == 7 {
			return caisson.Errorf(caisson.CodeLeaseLost, "not to you")
		}
		return nil
	}})
	_, err := Attach(t.Context(), s.opts.Path, View{Size: caisson.Winsize{Rows: 7, Cols: 7}, Out: io.Discard})
	if caisson.CodeOf(err) != caisson.CodeLeaseLost || !strings.Contains(err.Error(), "not to you") {
		t.Error(err)
	}
	for range maxViewers {
		enter(t, s, hello{})
	}
	if _, err := Attach(t.Context(), s.opts.Path, View{Out: io.Discard}); caisson.CodeOf(err) != caisson.CodeHostFull {
		t.Error(err)
	}
}

// Viewers come and go from many sides while it is shown to and ends.
func TestManyComeAndGo(t *testing.T) {
	t.Parallel()
	const people, times = 10, 10
	gone := make(chan string, people*times)
	s := open(t, Options{Detached: func(_ Viewer, why string) { gone <- why }})
	stop := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				_, _ = s.Write([]byte("tick\n"))
			}
		}
	})
	var crowd sync.WaitGroup
	for range people {
		crowd.Go(func() {
			for range times {
				ctx, cancel := context.WithCancel(t.Context())
				out := writerFunc(func(p []byte) (int, error) { cancel(); return len(p), nil })
				if went, err := Attach(ctx, s.opts.Path, View{Out: out, Size: size}); went != WentLeft || err != nil {
					t.Error(went, err)
				}
				cancel()
			}
		})
	}
	crowd.Wait()
	close(stop)
	writer.Wait()
	for range people * times {
		if why := <-gone; why != wentAway && why != wasCut {
			t.Errorf("one went as %q", why)
		}
	}
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// A socket is its user's alone, at a path of any length.
func TestSocket(t *testing.T) {
	t.Parallel()
	long := filepath.Join(t.TempDir(), strings.Repeat("long", 30), "terminals", "one")
	s := open(t, Options{Path: long})
	info, err := os.Lstat(long)
	if err != nil || info.Mode() != fsSocket|0o600 {
		t.Error(info.Mode(), err)
	}
	enter(t, s, hello{})
	if !localsocket.Answers(t.Context(), localsocket.Stream, long) || localsocket.Answers(t.Context(), localsocket.Stream, long+"x") {
		t.Error("whether it answers is not told")
	}
	open := t.TempDir()
	if err := os.Chmod(open, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := New(Options{Path: filepath.Join(open, "one")}).Open(); caisson.CodeOf(err) != caisson.CodePathInvalid {
		t.Error("a directory that others reach into was used:", err)
	}
}

const fsSocket = os.ModeSocket

// Another user is not served even where the socket can be reached.
func TestStranger(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("not root: no process of another user can be made")
	}
	dir, err := os.MkdirTemp("", "terminal-") //nolint:usetesting // that one is closed to others
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := open(t, Options{Path: filepath.Join(dir, "in", "one"), Attached: func(v Viewer) error {
		t.Errorf("%+v was let in", v)
		return nil
	}})
	for path, mode := range map[string]os.FileMode{dir: 0o755, filepath.Dir(s.opts.Path): 0o755, s.opts.Path: 0o666} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	program := filepath.Join(dir, "stranger")
	raw, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, raw, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Dir, cmd.Env = "/", []string{dialVariable + "=" + s.opts.Path}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.HasPrefix(out, []byte("e ")) || !bytes.Contains(out, []byte(caisson.CodeRefused)) {
		t.Errorf("%s %v", out, err)
	}
}

// A viewer may say anything: it is cut off, and the others go on.
func FuzzServer(f *testing.F) {
	good := appendJSON(nil, typeHello, hello{Version: version, Size: size})
	f.Add(good)
	f.Add(append(bytes.Clone(good), appendFrame(nil, typeInput, []byte("keys"))...))
	f.Add(append(bytes.Clone(good), appendJSON(nil, typeSize, size)...))
	f.Add(append(bytes.Clone(good), 'i', 0xff, 0xff, 0xff))
	f.Add(append(bytes.Clone(good), appendFrame(nil, typeLeave, nil)...))
	f.Add([]byte{'h', 0, 0x10, 0x01})
	s := New(Options{Path: filepath.Join(f.TempDir(), "in", "one"), Size: size})
	if err := s.Open(); err != nil {
		f.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- s.Run(ctx) }() // ended in the clean-up
	go func() {                       // ends with the server
		_, _ = io.Copy(io.Discard, s)
	}()
	go func() { // ends with the server
		for range s.Sizes() {
		}
	}()
	f.Cleanup(func() { cancel(); <-ran; s.Close() })
	f.Fuzz(func(t *testing.T, said []byte) {
		conn, err := net.Dial("unix", s.opts.Path)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = conn.Write(said)
		_ = conn.Close()
		var out bytes.Buffer
		r := enter(t, s, hello{})
		write(t, s, "on")
		if got := r.shown("on"); !strings.HasSuffix(got, "on") {
			t.Error(out.String())
		}
		r.Close()
	})
}

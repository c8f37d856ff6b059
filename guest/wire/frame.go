package wire

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"sync"
	"time"

	"github.com/caisson-run/caisson/guest/pack"
)

// Version of the protocol. Host and guest are built together; a guest of
// another version is refused.
const Version = 2

// StreamFD is the descriptor on which the guest program finds its stream.
const StreamFD = 3

// Bounds of what one side accepts from the other.
const (
	HeaderSize = 9
	// MaxControl bounds a control body towards the guest: the kernel's own
	// bound for arguments and environment is 2 MiB.
	MaxControl = 4 << 20
	// MaxReply bounds a control body towards the host.
	MaxReply = 64 << 10
	// MaxData bounds the body of in, out and err.
	MaxData = 256 << 10
	// Window is how much of one channel may be under way.
	Window = 1 << 20
	// MaxStreams is how many streams may be open at once.
	MaxStreams = 1024
)

// Type is the type of a frame.
type Type uint8

// Types of frames.
const (
	TypeHello   Type = 1
	TypeHold    Type = 2
	TypeRelease Type = 3
	TypeStop    Type = 4
	TypeSignal  Type = 5
	TypeResize  Type = 6
	TypeDrop    Type = 7
	TypeFile    Type = 8
	TypeHeld    Type = 16
	TypeEnded   Type = 17
	TypeFailed  Type = 18
	TypeDone    Type = 19
	TypeClosed  Type = 20
	TypeIn      Type = 32
	TypeOut     Type = 33
	TypeErr     Type = 34
	TypeCredit  Type = 35
)

// Data tells whether the body is raw bytes.
func (t Type) Data() bool { return t == TypeIn || t == TypeOut || t == TypeErr }

// Header is the head of a frame.
type Header struct {
	Type   Type
	Stream uint32
	Length int
}

// Put writes the header into the first HeaderSize bytes of b.
func (h Header) Put(b []byte) {
	b[0] = byte(h.Type)
	binary.BigEndian.PutUint32(b[1:5], h.Stream)
	binary.BigEndian.PutUint32(b[5:9], uint32(h.Length)) //nolint:gosec // bounded by the callers
}

// LengthError says that a frame is longer than its type may be.
type LengthError struct {
	Type   Type
	Length uint32
}

// Error implements error.
func (e LengthError) Error() string {
	return fmt.Sprintf("a frame of type %d has %d bytes", e.Type, e.Length)
}

// Reader reads frames. One goroutine at a time uses it.
type Reader struct {
	r       *bufio.Reader
	control int
	head    [HeaderSize]byte
	scratch []byte
}

// NewReader returns a reader that accepts control bodies of up to maxControl bytes.
func NewReader(r io.Reader, maxControl int) *Reader {
	// Small on purpose: a long body is read past the buffer, straight to its place.
	return &Reader{r: bufio.NewReaderSize(r, 4<<10), control: maxControl}
}

// Next reads a header. The body must be read, with Control or Body, before the
// next call. io.EOF means that the stream ended between two frames.
func (r *Reader) Next() (Header, error) {
	if _, err := io.ReadFull(r.r, r.head[:]); err != nil {
		return Header{}, err
	}
	length := binary.BigEndian.Uint32(r.head[5:9])
	h := Header{Type: Type(r.head[0]), Stream: binary.BigEndian.Uint32(r.head[1:5])}
	limit := r.control
	if h.Type.Data() {
		limit = MaxData
	}
	if int64(length) > int64(limit) {
		return h, LengthError{h.Type, length}
	}
	h.Length = int(length)
	return h, nil
}

// Control reads the body of h. It is valid until the next call.
func (r *Reader) Control(h Header) ([]byte, error) {
	if cap(r.scratch) < h.Length || cap(r.scratch) > 64<<10 {
		r.scratch = make([]byte, max(h.Length, 512))
	}
	body := r.scratch[:h.Length]
	_, err := io.ReadFull(r.r, body)
	return body, noEOF(err)
}

// Body fills p with the next bytes of a body.
func (r *Reader) Body(p []byte) error {
	_, err := io.ReadFull(r.r, p)
	return noEOF(err)
}

// Skip reads n bytes of a body and forgets them.
func (r *Reader) Skip(n int) error {
	_, err := r.r.Discard(n)
	return noEOF(err)
}

func noEOF(err error) error {
	if err == io.EOF { //nolint:errorlint // io returns it bare
		return io.ErrUnexpectedEOF
	}
	return err
}

// Writer writes frames. Safe for concurrent use; a frame is never torn.
type Writer struct {
	mu    sync.Mutex
	w     io.Writer
	stall func()
	err   error
}

// StallBound is how long the other side may take to read a frame. Both sides
// always read, so that only one that is stuck, or plays dead, takes this long.
const StallBound = 5 * time.Second

// NewWriter returns a writer to w. stall, unless nil, is called when a write
// has taken StallBound; it should make the write return.
func NewWriter(w io.Writer, stall func()) *Writer { return &Writer{w: w, stall: stall} }

// Control writes a frame whose body is v; nil writes an empty body. One
// that is longer than any reader takes is a LengthError, and nothing is written.
func (w *Writer) Control(t Type, stream uint32, v pack.Value) error {
	buf := make([]byte, HeaderSize, 256)
	if v != nil {
		body := pack.Bytes(v)
		if len(body) > MaxControl {
			return LengthError{t, uint32(min(len(body), math.MaxUint32))} //nolint:gosec // bounded
		}
		buf = append(buf, body...)
	}
	Header{t, stream, len(buf) - HeaderSize}.Put(buf)
	return w.raw(buf)
}

// Data writes a frame whose body is buf[HeaderSize:], at most MaxData bytes. The
// room in front is for the header, so that a body is not copied.
func (w *Writer) Data(t Type, stream uint32, buf []byte) error {
	Header{t, stream, len(buf) - HeaderSize}.Put(buf)
	return w.raw(buf)
}

// Body writes a frame whose body does not pass through this package: begin says
// how long it is, and write writes that many bytes to the underlying writer. An
// error of begin leaves the frame out.
func (w *Writer) Body(t Type, stream uint32, begin func() (int, error), write func(n int) error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return w.err
	}
	n, err := begin()
	if err != nil {
		return err
	}
	defer w.watch()()
	var head [HeaderSize]byte
	Header{t, stream, n}.Put(head[:])
	if _, err = w.w.Write(head[:]); err == nil {
		err = write(n)
	}
	if err != nil {
		w.err = fmt.Errorf("write frame: %w", err)
	}
	return w.err
}

// End writes the empty frame that ends a channel.
func (w *Writer) End(t Type, stream uint32) error {
	var buf [HeaderSize]byte
	return w.Data(t, stream, buf[:])
}

// Credit gives n bytes of a channel back.
func (w *Writer) Credit(stream uint32, channel Type, n int) error {
	var buf [HeaderSize + 5]byte
	Header{TypeCredit, stream, 5}.Put(buf[:])
	buf[HeaderSize] = byte(channel)
	binary.BigEndian.PutUint32(buf[HeaderSize+1:], uint32(n)) //nolint:gosec // at most Window
	return w.raw(buf[:])
}

// ParseCredit reads the body of a credit frame.
func ParseCredit(body []byte) (channel Type, n int, err error) {
	if len(body) != 5 {
		return 0, 0, fmt.Errorf("credit of %d bytes", len(body))
	}
	n = int(binary.BigEndian.Uint32(body[1:]))
	if n < 1 || n > Window {
		return 0, 0, fmt.Errorf("credit for %d bytes", n)
	}
	return Type(body[0]), n, nil
}

func (w *Writer) raw(buf []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return w.err
	}
	defer w.watch()()
	if _, err := w.w.Write(buf); err != nil {
		w.err = fmt.Errorf("write frame: %w", err)
	}
	return w.err
}

// watch calls stall unless it is stopped in time.
func (w *Writer) watch() (stop func()) {
	if w.stall == nil {
		return func() {}
	}
	timer := time.AfterFunc(StallBound, w.stall)
	return func() { timer.Stop() }
}

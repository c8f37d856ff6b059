// Package capture bounds output: of a command, a file, a child, a model. At
// most Cap bytes come out, however much goes in: the head, a notice, the tail.
// Everything that went in, up to another cap, is kept in a spill file.
//
// What is promised: memory in proportion to Cap; valid UTF-8; no code point cut
// in two, and no grapheme cluster where the cap allows; an exact count; a spill
// that is new, private and not behind a link. What is not promised: that the
// spill holds everything. The result says what it holds; a spill that cannot be
// made or written never fails the one who writes.
package capture

import (
	"fmt"
	"strings"
	"sync"

	"github.com/caisson-run/caisson"
)

const (
	// DefaultCap is about ten thousand tokens: what a model can still make use of.
	DefaultCap = 40_000
	// DefaultSpillCap keeps one command from filling a disk.
	DefaultSpillCap = 1 << 30
	// DefaultSpillRoom keeps all commands of a run together from filling it.
	DefaultSpillRoom = 4 << 30
	// slack is how much more than the tail is held, so that the seams between
	// clusters are seen before the cut: longer than any cluster that is a
	// character and not a trick.
	slack = 128
)

// Options say how much comes out and where the rest goes.
type Options struct {
	Cap int // bytes of the whole preview with its notice; 0: DefaultCap
	// SpillPath is the file that is made, with mode 0600, when the preview does
	// not hold everything. Its directory is made with it, with mode 0700, where it
	// is not there; nobody else may write above it. Empty: nothing is kept.
	SpillPath string
	SpillCap  int64 // bytes; 0: DefaultSpillCap
	// SpillRoom is how many bytes all files of the directory may have together; 0:
	// DefaultSpillRoom. Those that are written at the same time may exceed it, each
	// by what it has.
	SpillRoom int64
	// SpillFloor is how many bytes the file leaves free on its disk, as that is when
	// it is made; 0: none. Those that are written at the same time do not know of
	// each other.
	SpillFloor int64
	// Hide takes secrets out of a text, as is done with the preview later; nil: there
	// are none. The preview is not cut within one: a half is none that Hide knows.
	Hide func(string) string
	// Read says, in the notice, how the spill is read; %s in it is its path. Empty:
	// "read it in parts: %s".
	Read string
}

// Output is what came out.
type Output struct {
	Text    string         // the preview, with its notice
	Total   int64          // bytes that went in
	Omitted int64          // bytes that Text does not show
	Invalid bool           // Text shows U+FFFD in place of bytes that are not UTF-8
	Spill   *caisson.Spill // nil where Text is everything, or nothing could be kept
}

// Writer takes output. Safe for concurrent use. Write never fails.
type Writer struct {
	opts Options

	mu      sync.Mutex
	head    []byte // the first Cap bytes
	tail    ring   // the last ones after those
	total   int64
	valid   validity
	spill   *spill
	spilled error // why there is no spill, or not all of it
	done    *Output
}

// New returns an empty writer. It touches the disk only when output is spilled.
func New(opts Options) *Writer {
	if opts.Cap <= 0 {
		opts.Cap = DefaultCap
	}
	if opts.SpillCap <= 0 {
		opts.SpillCap = DefaultSpillCap
	}
	if opts.Read == "" {
		opts.Read = "read it in parts: %s"
	}
	held := opts.Cap/4 + slack
	if opts.Hide != nil {
		held += secretRoom
	}
	return &Writer{opts: opts, tail: ring{size: held}}
}

// Write implements io.Writer. It always returns len(p) and nil. What is written
// after Finish is lost.
func (w *Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.done != nil || len(p) == 0 {
		return len(p), nil
	}
	w.total += int64(len(p))
	w.valid.add(p)
	rest := p
	if room := w.opts.Cap - len(w.head); room > 0 {
		n := min(room, len(rest))
		w.grow(n)
		w.head = append(w.head, rest[:n]...)
		rest = rest[n:]
	}
	if len(rest) == 0 {
		return len(p), nil
	}
	w.openSpill()
	w.keep(rest)
	w.tail.add(rest)
	return len(p), nil
}

// grow makes room for n bytes of head: in steps, but never more than Cap.
func (w *Writer) grow(n int) {
	need := len(w.head) + n
	if need <= cap(w.head) {
		return
	}
	head := make([]byte, len(w.head), min(max(need, 2*cap(w.head), 512), w.opts.Cap))
	copy(head, w.head)
	w.head = head
}

// openSpill makes the spill, with the head in it, unless that was tried before.
func (w *Writer) openSpill() {
	if w.spill != nil || w.spilled != nil {
		return
	}
	if w.opts.SpillPath == "" {
		w.spilled = errNotWanted
		return
	}
	if w.spill, w.spilled = newSpill(w.opts); w.spilled == nil {
		w.keep(w.head)
	}
}

func (w *Writer) keep(p []byte) {
	if w.spill == nil || w.spilled != nil {
		return
	}
	w.spilled = w.spill.write(p)
}

// Finish ends the capture and returns its output; the same again when called again.
func (w *Writer) Finish() Output {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.done != nil {
		return *w.done
	}
	out := Output{Total: w.total, Invalid: w.valid.end()}
	whole := w.total == int64(len(w.head)) && sanitizedLen(w.head) <= w.opts.Cap
	if !whole || out.Invalid {
		w.openSpill()
	}
	if w.spill != nil {
		kept := w.spill.close()
		kept.Total, kept.Invalid = w.total, out.Invalid
		out.Spill = &kept
	}
	if whole {
		out.Text = sanitize(w.head)
	} else {
		out.Text, out.Omitted = w.preview(out)
	}
	w.head, w.tail = nil, ring{}
	w.done = &out
	return out
}

// preview cuts head and tail to the cap. The notice is measured with the
// largest count, so that the true one fits.
func (w *Writer) preview(out Output) (string, int64) {
	first := firstLen(w.head)
	var make func(omitted int64) string
	room := w.opts.Cap
	for _, notice := range []func(int64) string{
		func(omitted int64) string { return w.detailed(out, omitted) },
		func(omitted int64) string { return fmt.Sprintf("\n[%d bytes left out]\n", omitted) },
	} {
		if n := len(notice(w.total)); n+first <= w.opts.Cap {
			make, room = notice, w.opts.Cap-n
			break
		}
	}
	if make == nil {
		head := w.outside(w.head, cutHead(w.head, room), -1)
		return sanitize(w.head[:head]), w.total - int64(head)
	}
	head := w.outside(w.head, cutHead(w.head, max(room*3/4, first)), -1)
	last, cut := w.last(head)
	last = last[w.outside(last, cutTail(last, room-sanitizedLen(w.head[:head]), cut), 1):]
	omitted := w.total - int64(head) - int64(len(last))
	return sanitize(w.head[:head]) + make(omitted) + sanitize(last), omitted
}

// last returns the last bytes that are held and not part of the head that is
// shown, and whether there are others before them.
func (w *Writer) last(head int) (last []byte, cut bool) {
	last = w.tail.bytes()
	if missing := w.tail.size - len(last); missing > 0 {
		from := max(len(w.head)-missing, head)
		last = append(append([]byte{}, w.head[from:]...), last...)
	}
	if int64(len(last)) < w.total-int64(head) {
		return last[skipContinuation(last):], true
	}
	return last, false
}

// secretRoom is how much on both sides of a cut is looked at for a secret.
const secretRoom = 16 << 10

// outside moves a cut of p step by step out of a secret that it would cut in two.
func (w *Writer) outside(p []byte, at, step int) int {
	if w.opts.Hide == nil {
		return at
	}
	from, to := max(at-secretRoom, 0), min(at+secretRoom, len(p))
	whole := w.opts.Hide(string(p[from:to]))
	for from < at && at < to && w.opts.Hide(string(p[from:at]))+w.opts.Hide(string(p[at:to])) != whole {
		at += step
	}
	return at
}

func (w *Writer) detailed(out Output, omitted int64) string {
	kept := "the rest was not kept"
	if s := out.Spill; s != nil {
		kept = strings.ReplaceAll(w.opts.Read, "%s", s.Path)
		if s.Bytes < s.Total {
			kept = fmt.Sprintf("the first %d bytes are kept, ", s.Bytes) + kept
		}
	}
	return fmt.Sprintf("\n[%d of %d bytes left out; %s]\n", omitted, w.total, kept)
}

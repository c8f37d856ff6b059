package terminal

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/caisson-run/caisson"
)

// RecordingOptions say what is recorded where.
type RecordingOptions struct {
	Path    string // made with mode 0600; its directory is there, and it is not
	Cap     int64  // bytes of the file; its header and its last line are there all the same
	Why     string // what it says at its end when it has reached Cap; empty: that it has
	Size    caisson.Winsize
	Command string // for people
	Term    string // the kind of terminal
}

// Recording writes what a terminal shows, with its time, as an asciicast of
// version 2: a header and then an event a line. What is typed is not recorded.
// Bytes that are not UTF-8 are replaced; the format has no room for them. One
// that cannot be written goes on counting, and says so at its end.
//
// Source of the format: docs.asciinema.org/manual/asciicast/v2.
type Recording struct {
	mu      sync.Mutex
	file    *os.File
	hash    hash.Hash
	began   time.Time
	path    string
	room    int64
	why     string
	kept    int64
	total   int64 // bytes that were shown
	part    []byte
	line    bytes.Buffer
	stopped bool // the cap is reached
	err     error
}

// capNote ends a recording that has reached its cap.
const capNote = "the recording has reached its cap"

// NewRecording makes the file.
func NewRecording(opts RecordingOptions) (*Recording, error) {
	f, err := os.OpenFile(opts.Path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make recording: %w", err)
	}
	r := &Recording{file: f, hash: sha256.New(), path: opts.Path, room: opts.Cap, why: cmp.Or(opts.Why, capNote), began: time.Now()}
	header := map[string]any{
		"version": 2, "width": opts.Size.Cols, "height": opts.Size.Rows, "timestamp": r.began.Unix(), "command": opts.Command,
	}
	if opts.Term != "" {
		header["env"] = map[string]string{"TERM": opts.Term}
	}
	raw, err := json.Marshal(header)
	if err != nil { // strings and numbers always marshal
		panic(err)
	}
	r.write(append(raw, '\n'))
	return r, r.err
}

// Path returns the path of the file.
func (r *Recording) Path() string { return r.path }

// Output records p, if there is room.
func (r *Recording) Output(p []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.total += int64(len(p))
	if r.file == nil || r.stopped || r.err != nil {
		return
	}
	text := p
	if len(r.part) > 0 {
		text = append(r.part, p...)
	}
	whole := len(text) - cut(text)
	if whole > 0 {
		r.event("o", string(text[:whole]))
	}
	r.part = append(r.part[:0:0], text[whole:]...)
}

// cut returns how many bytes at the end are the beginning of a character.
func cut(p []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(p); n++ {
		if b := p[len(p)-n]; utf8.RuneStart(b) {
			if b >= utf8.RuneSelf && !utf8.FullRune(p[len(p)-n:]) {
				return n
			}
			return 0
		}
	}
	return 0
}

// Resize records a new size.
func (r *Recording) Resize(size caisson.Winsize) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.file != nil && !r.stopped && r.err == nil {
		r.event("r", fmt.Sprintf("%dx%d", size.Cols, size.Rows))
	}
}

// event writes one line, or the last one where there is no room for it.
func (r *Recording) event(kind, data string) {
	const noteRoom = 128
	r.encode(kind, data)
	if r.kept+int64(r.line.Len()) > r.room-noteRoom {
		r.stopped = true
		r.encode("m", r.why)
	}
	r.write(r.line.Bytes())
}

func (r *Recording) encode(kind, data string) {
	r.line.Reset()
	r.line.WriteByte('[')
	r.line.WriteString(strconv.FormatFloat(time.Since(r.began).Seconds(), 'f', 6, 64))
	r.line.WriteString(`,"` + kind + `",`)
	enc := json.NewEncoder(&r.line)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(data)              // a string, into memory
	r.line.Truncate(r.line.Len() - 1) // the encoder's newline
	r.line.WriteString("]\n")
}

func (r *Recording) write(p []byte) {
	n, err := r.file.Write(p)
	_, _ = r.hash.Write(p[:n]) // never fails
	r.kept += int64(n)
	r.err = err
}

// Close ends the recording and says what it holds, and why that is not
// everything, if it is not. Total counts what was shown, Bytes the file.
func (r *Recording) Close() (caisson.Spill, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.file != nil {
		if len(r.part) > 0 && !r.stopped && r.err == nil {
			r.event("o", string(r.part))
		}
		if r.stopped && r.err == nil {
			r.err = errors.New(r.why)
		}
		if err := r.file.Close(); r.err == nil {
			r.err = err
		}
		r.file = nil
	}
	return caisson.Spill{Path: r.path, Bytes: r.kept, Total: r.total, SHA256: caisson.Digest(hex.EncodeToString(r.hash.Sum(nil)))}, r.err
}

package terminal

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/caisson-run/caisson"
)

// A frame is its type, the length of its body in three bytes, big-endian, and
// the body. Bodies other than input and output are JSON.
const (
	typeHello   = 'h' // viewer: hello
	typeInput   = 'i' // viewer: keys
	typeSize    = 's' // viewer: caisson.Winsize
	typeLeave   = 'l' // viewer: it goes, by its own will
	typeWelcome = 'w' // server: it is let in
	typeOutput  = 'o' // server: what the program wrote
	typeNote    = 'n' // server: text for the person
	typeEnd     = 'e' // server: there is no more
)

const (
	version    = 1
	headerSize = 4
	maxBody    = 64 << 10 // of input and output
	maxControl = 4 << 10  // of everything else
)

// hello is what a viewer says first.
type hello struct {
	Version  int             `json:"version"`
	ReadOnly bool            `json:"read_only"`
	Size     caisson.Winsize `json:"size"` // 0 by 0: it has no terminal
}

// end is why a server has no more.
type end struct {
	Ended bool           `json:"ended"` // the program has
	Error *caisson.Error `json:"error,omitempty"`
}

func appendFrame(to []byte, kind byte, body []byte) []byte {
	to = binary.BigEndian.AppendUint32(to, uint32(len(body))) //nolint:gosec // at most maxBody
	to[len(to)-headerSize] = kind
	return append(to, body...)
}

// appendOutput appends p as frames of output.
func appendOutput(to, p []byte) []byte {
	for len(p) > 0 {
		n := min(len(p), maxBody)
		to = appendFrame(to, typeOutput, p[:n])
		p = p[n:]
	}
	return to
}

func appendJSON(to []byte, kind byte, body any) []byte {
	raw, err := json.Marshal(body)
	if err != nil { // plain structs always marshal
		panic(err)
	}
	if len(raw) > maxControl {
		raw = []byte("{}") // an error with very much detail: its reader looks at the record
	}
	return appendFrame(to, kind, raw)
}

// frames reads frames. The body is valid until the next.
type frames struct {
	from io.Reader
	buf  [headerSize + maxBody]byte
}

func (f *frames) next() (kind byte, body []byte, err error) {
	head := f.buf[:headerSize]
	if _, err := io.ReadFull(f.from, head); err != nil {
		return 0, nil, err
	}
	kind = head[0]
	length := int(binary.BigEndian.Uint32(head) & 0xffffff)
	most := maxControl
	if kind == typeInput || kind == typeOutput {
		most = maxBody
	}
	if length > most {
		return 0, nil, fmt.Errorf("a frame of type %q with %d bytes", kind, length)
	}
	body = f.buf[headerSize : headerSize+length]
	if _, err := io.ReadFull(f.from, body); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, err
	}
	return kind, body, nil
}

// decode reads a body with exactly the fields of v.
func decode(body []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("read frame: %w", err)
	}
	return nil
}

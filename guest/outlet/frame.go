package outlet

import (
	"encoding/binary"
	"fmt"
)

// Bounds that both sides keep. A guest that does not is cut off.
const (
	// MaxConns is how many connections the host carries at once for a sandbox;
	// further ones wait in the listeners' queues. Each may take 64 KiB of the
	// host's memory, and two of its descriptors, while it is found out what is
	// said on it.
	MaxConns = 512
	// MaxLookups is how many look-ups may be under way.
	MaxLookups = 256
	// MaxName is the length of a name (RFC 1035, 2.3.4, without the last dot).
	MaxName = 253
	// MaxFrame is the longest frame: a head, a name, a colon and a port.
	MaxFrame = headSize + MaxName + 6
)

const headSize = 6

// Kind is what a frame says.
type Kind byte

// Kinds of frames.
const (
	KindLookup Kind = 'l' // guest: may Text be looked up?
	KindAnswer Kind = 'a' // host: the answer to that look-up
	KindCarry  Kind = 'c' // guest: carry the connection sent along to Text, or, if empty, as a proxy
	KindDone   Kind = 'd' // host: a connection that was handed over has ended
)

// Answer is the host's answer to a look-up.
type Answer byte

// Answers.
const (
	AnswerNo      Answer = 0
	AnswerYes     Answer = 1
	AnswerUnknown Answer = 2 // it could not be told in time
)

// Frame is one packet between guest and host: a head of kind, answer and ID
// (big endian), and a text. What a kind has no use for is zero.
//
//	guest                               host
//	lookup{ID, Text}              →
//	                              ←     answer{ID, Answer}
//	carry{Text}, one descriptor   →
//	                              ←     done
type Frame struct {
	Kind   Kind
	Answer Answer
	ID     uint32
	Text   string
}

// Append appends the frame's bytes to b.
func (f Frame) Append(b []byte) []byte {
	b = append(b, byte(f.Kind), byte(f.Answer))
	b = binary.BigEndian.AppendUint32(b, f.ID)
	return append(b, f.Text...)
}

// ParseFrame reads a packet. What it accepts has exactly one form.
func ParseFrame(b []byte) (Frame, error) {
	if len(b) < headSize || len(b) > MaxFrame {
		return Frame{}, fmt.Errorf("a frame of %d bytes", len(b))
	}
	f := Frame{Kind: Kind(b[0]), Answer: Answer(b[1]), ID: binary.BigEndian.Uint32(b[2:headSize]), Text: string(b[headSize:])}
	var right bool
	switch f.Kind {
	case KindLookup:
		right = f.Answer == 0 && f.Text != "" && len(f.Text) <= MaxName
	case KindAnswer:
		right = f.Answer <= AnswerUnknown && f.Text == ""
	case KindCarry:
		right = f.Answer == 0 && f.ID == 0
	case KindDone:
		right = f == Frame{Kind: KindDone}
	}
	if !right {
		return Frame{}, fmt.Errorf("a frame of kind %q, answer %d, id %d and %d bytes of text", f.Kind, f.Answer, f.ID, len(f.Text))
	}
	return f, nil
}

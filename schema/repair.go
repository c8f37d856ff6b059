package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"unicode/utf8"
)

// repair completes an object that was cut, or takes off what trails it: text that
// was cut gets the quote and brackets it lacks, an unfinished member and a
// comma that nothing follows are left out, closers and a closing tag after the
// end are taken off. The result is a beginning of input and then only closers
// (or the rest of true, false, null). Where something is wrong before the end,
// as when two texts were interleaved or follow one another, there is no honest
// completion, and it is an error. cut is Prepared.Cut.
//
// input must not be valid JSON already.
func repair(input []byte) (mended []byte, cut bool, err error) {
	if len(bytes.TrimSpace(input)) == 0 {
		return []byte("{}"), false, nil // how some providers write "no arguments"
	}
	m := &mender{in: input}
	tail, err := m.scan()
	if err != nil {
		return nil, false, err
	}
	out := slices.Concat(input[:m.keep], tail, m.closers())
	if !json.Valid(out) {
		return nil, false, errors.New("it is not JSON")
	}
	return out, m.cut, nil
}

// place is what may come next.
type place int

const (
	atValue  place = iota // a value
	atFirst               // a value or the array's end
	atKey                 // a key
	atMember              // a key or the object's end
	atColon
	atComma // a comma or the closer
	atEnd   // nothing
)

// maxOpen is the deepest nesting that a text is mended to, as deep as canonical
// JSON may be.
const maxOpen = 512

// mender walks a text strictly up to the first place where it stops being JSON.
type mender struct {
	in    []byte
	i     int
	next  place
	open  []byte // closers still due
	keep  int    // the text up to here is whole
	comma bool   // the last token was a comma
	cut   bool
}

func (m *mender) closers() []byte {
	out := slices.Clone(m.open)
	slices.Reverse(out)
	return out
}

// scan returns what has to follow in[:keep] before the closers.
func (m *mender) scan() (tail []byte, err error) {
	for {
		for m.i < len(m.in) && isSpace(m.in[m.i]) {
			m.i++
		}
		if m.i == len(m.in) {
			m.cut = m.next != atComma && m.next != atEnd
			if m.keep == 0 {
				return nil, errors.New("it is not a JSON object")
			}
			return nil, nil
		}
		done, tail, err := m.token(m.in[m.i])
		if done || err != nil {
			return tail, err
		}
	}
}

func (m *mender) token(c byte) (done bool, tail []byte, err error) {
	comma := m.comma
	m.comma = false
	switch {
	case m.keep == 0 && c != '{':
		return true, nil, errors.New("it is not a JSON object")
	case m.next == atEnd:
		return true, nil, m.trailing(m.i)
	case (c == '}' || c == ']') && (comma || m.next == atComma || (m.next == atMember && c == '}') || (m.next == atFirst && c == ']')):
		if comma {
			return true, nil, m.trailingComma()
		}
		return false, nil, m.close(c)
	case m.next == atComma && c == ',':
		m.i++
		m.comma = true
		m.next = atValue
		if m.open[len(m.open)-1] == '}' {
			m.next = atKey
		}
		return false, nil, nil
	case m.next == atColon && c == ':':
		m.i++
		m.next = atValue
		return false, nil, nil
	case m.next == atKey || m.next == atMember:
		if c != '"' {
			return true, nil, m.wrong()
		}
		end, whole, err := m.text()
		if err != nil || !whole {
			m.cut = true
			return true, nil, err
		}
		m.i, m.next = end, atColon
		return false, nil, nil
	case m.next == atValue || m.next == atFirst:
		return m.value(c)
	default:
		return true, nil, m.wrong()
	}
}

func (m *mender) value(c byte) (done bool, tail []byte, err error) {
	switch c {
	case '{', '[':
		if len(m.open) == maxOpen {
			return true, nil, fmt.Errorf("it is nested deeper than %d", maxOpen)
		}
		closer, next := byte('}'), atMember
		if c == '[' {
			closer, next = ']', atFirst
		}
		m.open = append(m.open, closer)
		m.i++
		m.keep, m.next = m.i, next
		return false, nil, nil
	case '"':
		end, whole, err := m.text()
		if err != nil {
			return true, nil, err
		}
		if !whole {
			m.keep, m.cut = end, true
			return true, []byte{'"'}, nil
		}
		m.ended(end)
		return false, nil, nil
	default:
		return m.bare()
	}
}

// ended notes that a value ends before i.
func (m *mender) ended(i int) {
	m.i, m.keep, m.next = i, i, atComma
	if len(m.open) == 0 {
		m.next = atEnd
	}
}

func (m *mender) close(c byte) error {
	if m.open[len(m.open)-1] != c {
		return m.wrong()
	}
	m.open = m.open[:len(m.open)-1]
	m.ended(m.i + 1)
	return nil
}

// text reads a string that begins at i. Where it was cut, end is after its last
// whole character.
func (m *mender) text() (end int, whole bool, err error) {
	i := m.i + 1
	for i < len(m.in) {
		switch c := m.in[i]; {
		case c == '"':
			return i + 1, true, nil
		case c < 0x20:
			return 0, false, fmt.Errorf("there is a bare control character in a string, at byte %d", i)
		case c == '\\':
			n, err := m.escaped(i)
			if err != nil {
				return 0, false, err
			}
			if n == 0 {
				return i, false, nil
			}
			i += n
		case c < utf8.RuneSelf:
			i++
		default:
			if !utf8.FullRune(m.in[i:]) {
				return i, false, nil
			}
			_, size := utf8.DecodeRune(m.in[i:])
			i += size
		}
	}
	return i, false, nil
}

// escaped returns the length of the escape at i, a whole surrogate pair at once,
// and 0 where it was cut.
func (m *mender) escaped(i int) (int, error) {
	rest := m.in[i:]
	if len(rest) < 2 {
		return 0, nil
	}
	if rest[1] != 'u' {
		if bytes.IndexByte([]byte(`"\/bfnrt`), rest[1]) < 0 {
			return 0, fmt.Errorf("there is an unknown escape in a string, at byte %d", i)
		}
		return 2, nil
	}
	digits := rest[2:min(6, len(rest))]
	for _, d := range digits {
		if !isHex(d) {
			return 0, fmt.Errorf("there is an unknown escape in a string, at byte %d", i)
		}
	}
	if len(digits) < 4 {
		return 0, nil
	}
	high := (digits[0] == 'd' || digits[0] == 'D') && bytes.IndexByte([]byte("89abAB"), digits[1]) >= 0
	second := rest[6:min(12, len(rest))]
	if high && len(second) < 6 && bytes.HasPrefix([]byte(`\u`), second[:min(2, len(second))]) {
		return 0, nil // its other half may have been cut off
	}
	return 6, nil
}

var (
	number  = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)
	partial = regexp.MustCompile(`^-?((0|[1-9][0-9]*)(\.[0-9]*)?([eE][+-]?[0-9]*)?)?$`)
)

// bare reads a number, true, false or null.
func (m *mender) bare() (done bool, tail []byte, err error) {
	end := m.i
	for end < len(m.in) && isBare(m.in[end]) {
		end++
	}
	word := m.in[m.i:end]
	for _, literal := range []string{"true", "false", "null"} {
		if string(word) == literal {
			m.ended(end)
			return false, nil, nil
		}
		if end == len(m.in) && len(word) > 0 && bytes.HasPrefix([]byte(literal), word) {
			m.keep = end
			return true, []byte(literal[len(word):]), nil
		}
	}
	whole := number.Match(word)
	if end < len(m.in) {
		if !whole {
			return true, nil, m.wrong()
		}
		m.ended(end)
		return false, nil, nil
	}
	if !partial.Match(word) {
		return true, nil, m.wrong()
	}
	m.cut = true
	if whole {
		m.keep = end
	}
	return true, nil, nil
}

// trailingComma is reached at a closer right after a comma: the comma is left
// out if nothing but the closers that are due, or fewer, come after it.
func (m *mender) trailingComma() error {
	i := m.i
	for _, due := range m.closers() {
		for i < len(m.in) && isSpace(m.in[i]) {
			i++
		}
		if i == len(m.in) {
			return nil
		}
		if m.in[i] != due {
			return m.wrong()
		}
		i++
	}
	return m.trailing(i)
}

// garbage is what may trail a whole object: surplus closers and punctuation, the
// end of a fence, a closing tag. Nothing in it could be a value of its own.
var garbage = regexp.MustCompile("^[\\s}\\],;`]*(</[A-Za-z_:|-]{1,40}>)?[\\s}\\],;`]*$")

func (m *mender) trailing(i int) error {
	if !garbage.Match(m.in[i:]) {
		return fmt.Errorf("there is more after its end, from byte %d on", i)
	}
	return nil
}

func (m *mender) wrong() error {
	return fmt.Errorf("it is not JSON, from byte %d on", m.i)
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

func isBare(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '-' || c == '+' || c == '.'
}

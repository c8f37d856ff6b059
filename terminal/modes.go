package terminal

import (
	"slices"
	"strconv"
	"strings"
)

// restored are the private modes of a terminal that a program may leave set and
// that spoil it for what comes after, in the order in which they are undone:
// cursor keys, mouse and focus reports, bracketed paste, the other screen last.
// Source: XTerm Control Sequences, DEC private mode set.
var restored = [...]int{1, 9, 1000, 1001, 1002, 1003, 1004, 1005, 1006, 1015, 1016, 2004, 2026, 47, 1047, 1049}

const cursorShown = 25 // set to begin with

// modes follows the modes that a program sets on its terminal.
type modes struct {
	set    map[int]bool
	hidden bool // the cursor
	keypad bool
	state  scanState
	params []byte
}

type scanState int

const (
	ground scanState = iota
	escape
	private // after ESC [ ?
	other   // in a sequence that sets no mode
	text    // in a string that ends with BEL or ESC \
)

// maxParams bounds the parameters of a sequence: one that is longer sets nothing.
const maxParams = 64

func (m *modes) scan(p []byte) {
	for _, b := range p {
		m.take(b)
	}
}

func (m *modes) take(b byte) {
	switch {
	case b == 0x1b:
		m.state = escape
	case b == 0x18 || b == 0x1a: // cancel
		m.state = ground
	case m.state == escape:
		m.state = ground
		switch b {
		case '[':
			m.state, m.params = other, m.params[:0]
		case ']', 'P', '_', '^', 'X':
			m.state = text
		case '=', '>':
			m.keypad = b == '='
		case 'c': // full reset
			*m = modes{}
		}
	case m.state == other && b == '?' && len(m.params) == 0:
		m.state = private
	case m.state == text:
		if b == 0x07 {
			m.state = ground
		}
	case m.state == other:
		m.params = append(m.params, 0) // so that a ? that comes later is none
		m.params = m.params[:1]
		if b >= 0x40 && b <= 0x7e {
			m.state = ground
		}
	case m.state == private:
		m.parameter(b)
	}
}

func (m *modes) parameter(b byte) {
	if b < 0x40 {
		if len(m.params) < maxParams {
			m.params = append(m.params, b)
		}
		return
	}
	m.state = ground
	if (b != 'h' && b != 'l') || len(m.params) == maxParams {
		return
	}
	for _, param := range strings.Split(string(m.params), ";") {
		mode, err := strconv.Atoi(param)
		switch {
		case err != nil:
		case mode == cursorShown:
			m.hidden = b == 'l'
		case slices.Contains(restored[:], mode):
			if m.set == nil {
				m.set = map[int]bool{}
			}
			m.set[mode] = b == 'h'
		}
	}
}

// otherScreen tells whether the program draws on the alternate screen.
func (m *modes) otherScreen() bool { return m.set[47] || m.set[1047] || m.set[1049] }

// enter brings a terminal into the modes.
func (m *modes) enter() string {
	var s strings.Builder
	for i := len(restored) - 1; i >= 0; i-- {
		if m.set[restored[i]] {
			s.WriteString("\x1b[?" + strconv.Itoa(restored[i]) + "h")
		}
	}
	if m.keypad {
		s.WriteString("\x1b=")
	}
	if m.hidden {
		s.WriteString("\x1b[?25l")
	}
	return s.String()
}

// leave brings a terminal back out of the modes.
func (m *modes) leave() string {
	var s strings.Builder
	if m.state != ground {
		s.WriteString("\x18")
	}
	for _, mode := range restored {
		if m.set[mode] {
			s.WriteString("\x1b[?" + strconv.Itoa(mode) + "l")
		}
	}
	if m.keypad {
		s.WriteString("\x1b>")
	}
	if m.hidden {
		s.WriteString("\x1b[?25h")
	}
	s.WriteString("\x1b[0m")
	return s.String()
}

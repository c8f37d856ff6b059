package cli

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode/utf8"
)

// console is where a run is shown: lines, the model's text as it comes, and one
// open question share it without running into each other.
type console struct {
	out io.Writer
	raw func() bool // whether the terminal is raw just now; nil: never

	mu     sync.Mutex
	mid    bool   // the last line is not ended
	asked  bool   // it is an open question
	broken string // the last bytes of a piece of text that are not yet a character
}

// line prints text as lines of their own.
func (c *console) line(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.breakLocked()
	c.writeLocked(fmt.Sprintf(format, args...) + "\n")
}

// text prints a piece of a text that comes bit by bit.
func (c *console) text(piece string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asked {
		c.breakLocked()
	}
	piece = c.broken + piece
	whole := len(piece)
	for n := 1; n < utf8.UTFMax && n <= len(piece); n++ {
		if utf8.RuneStart(piece[len(piece)-n]) {
			if !utf8.FullRuneInString(piece[len(piece)-n:]) {
				whole -= n
			}
			break
		}
	}
	c.broken = piece[whole:]
	c.writeLocked(printable(piece[:whole]))
}

// endText ends a text that came bit by bit.
func (c *console) endText() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.asked {
		c.breakLocked()
	}
}

// prompt asks for a line.
func (c *console) prompt(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.breakLocked()
	c.writeLocked(text)
	c.asked = true
}

// prompted tells whether the question is still the last thing that is shown.
func (c *console) prompted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked
}

// entered says that the person has ended the line.
func (c *console) entered() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mid, c.asked = false, false
}

// unprompt takes the question back.
func (c *console) unprompt() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asked {
		c.breakLocked()
	}
}

func (c *console) breakLocked() {
	if c.broken != "" {
		c.writeLocked(printable(c.broken))
		c.broken = ""
	}
	if c.mid {
		c.writeLocked("\n")
	}
	c.asked = false
}

// writeLocked writes; a terminal that is gone is noticed by who reads from it.
func (c *console) writeLocked(text string) {
	if text == "" {
		return
	}
	c.mid = !strings.HasSuffix(text, "\n")
	if c.raw != nil && c.raw() {
		text = strings.ReplaceAll(text, "\n", "\r\n")
	}
	_, _ = io.WriteString(c.out, text)
}

package shell

import "strings"

// Glob is text with holes that any text fits.
type Glob []piece

type piece struct {
	text string
	hole bool
}

// ParseGlob reads a pattern in which * is a hole.
func ParseGlob(pattern string) Glob {
	var g Glob
	for i, part := range strings.Split(pattern, "*") {
		if i > 0 {
			g = g.addHole()
		}
		g = g.addText(part)
	}
	return g
}

// Hole is the glob that anything fits.
func Hole() Glob { return Glob{{hole: true}} }

// Text is the glob that only text fits.
func Text(text string) Glob { return Glob{}.addText(text) }

// Join returns g followed by h.
func (g Glob) Join(h Glob) Glob {
	out := append(Glob(nil), g...)
	for _, p := range h {
		if p.hole {
			out = out.addHole()
		} else {
			out = out.addText(p.text)
		}
	}
	return out
}

func (g Glob) addText(s string) Glob {
	if s == "" {
		return g
	}
	if n := len(g); n > 0 && !g[n-1].hole {
		g[n-1].text += s
		return g
	}
	return append(g, piece{text: s})
}

func (g Glob) addHole() Glob {
	if n := len(g); n > 0 && g[n-1].hole {
		return g
	}
	return append(g, piece{hole: true})
}

// Match tells whether s fits g.
func (g Glob) Match(s string) bool {
	for i, p := range g {
		if !p.hole {
			rest, ok := strings.CutPrefix(s, p.text)
			if !ok {
				return false
			}
			s = rest
			continue
		}
		if i == len(g)-1 {
			return true
		}
		// The next piece is text. The leftmost place is the best for all but the
		// last piece, which must end the string.
		next := g[i+1].text
		if i+2 == len(g) {
			return strings.HasSuffix(s, next)
		}
		at := strings.Index(s, next)
		if at < 0 {
			return false
		}
		return g[i+2:].Match(s[at+len(next):])
	}
	return s == ""
}

// Meets tells whether some text fits both g and h.
func (g Glob) Meets(h Glob) bool {
	if !g.mayMeet(h) {
		return false
	}
	a, b := g.flat(), h.flat()
	// row[j]: whether a[:i] and b[:j] have a text in common.
	row := make([]bool, len(b)+1)
	row[0] = true
	for j := 1; j <= len(b) && b[j-1] < 0; j++ {
		row[j] = true
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = diagonal && a[i-1] < 0
		for j := 1; j <= len(b); j++ {
			above := row[j]
			switch {
			case a[i-1] < 0 || b[j-1] < 0:
				row[j] = (above && (a[i-1] < 0 || b[j-1] < 0)) || row[j-1]
			default:
				row[j] = diagonal && a[i-1] == b[j-1]
			}
			diagonal = above
		}
	}
	return row[len(b)]
}

// mayMeet is false where ends or lengths alone show that nothing fits both. It
// decides almost always, in a time that a long word does not make longer.
func (g Glob) mayMeet(h Glob) bool {
	if len(g) == 0 || len(h) == 0 {
		return true
	}
	if a, b := g[0], h[0]; !a.hole && !b.hole {
		if n := min(len(a.text), len(b.text)); a.text[:n] != b.text[:n] {
			return false
		}
	}
	if a, b := g[len(g)-1], h[len(h)-1]; !a.hole && !b.hole {
		if n := min(len(a.text), len(b.text)); a.text[len(a.text)-n:] != b.text[len(b.text)-n:] {
			return false
		}
	}
	least, fixed := g.length()
	other, otherFixed := h.length()
	return !(fixed && least < other || otherFixed && other < least)
}

// length returns the shortest length of what fits, and whether all has it.
func (g Glob) length() (least int, fixed bool) {
	fixed = true
	for _, p := range g {
		least += len(p.text)
		fixed = fixed && !p.hole
	}
	return least, fixed
}

// flat returns the bytes of g, with -1 for a hole.
func (g Glob) flat() []int16 {
	var out []int16
	for _, p := range g {
		if p.hole {
			out = append(out, -1)
			continue
		}
		for i := range len(p.text) {
			out = append(out, int16(p.text[i]))
		}
	}
	return out
}

package capture

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// ring holds the last size bytes.
type ring struct {
	size  int
	buf   []byte
	start int
}

func (r *ring) add(p []byte) {
	if len(p) >= r.size {
		r.buf = append(r.buf[:0], p[len(p)-r.size:]...)
		r.start = 0
		return
	}
	if room := r.size - len(r.buf); room > 0 {
		n := min(room, len(p))
		r.buf = append(r.buf, p[:n]...)
		p = p[n:]
	}
	for len(p) > 0 {
		n := copy(r.buf[r.start:], p)
		r.start = (r.start + n) % r.size
		p = p[n:]
	}
}

func (r *ring) bytes() []byte {
	return append(append([]byte{}, r.buf[r.start:]...), r.buf[:r.start]...)
}

// validity follows whether a stream is UTF-8.
type validity struct {
	invalid bool
	carry   [utf8.UTFMax]byte // of a code point that is not whole yet
	n       int
}

func (v *validity) add(p []byte) {
	if v.invalid {
		return
	}
	for v.n > 0 && len(p) > 0 {
		v.carry[v.n] = p[0]
		v.n++
		p = p[1:]
		if utf8.FullRune(v.carry[:v.n]) {
			v.invalid = !utf8.Valid(v.carry[:v.n])
			v.n = 0
		}
	}
	if v.invalid || v.n > 0 {
		return
	}
	cut := len(p)
	for back := 1; back < utf8.UTFMax && back <= len(p); back++ {
		if utf8.RuneStart(p[len(p)-back]) {
			if !utf8.FullRune(p[len(p)-back:]) {
				cut = len(p) - back
			}
			break
		}
	}
	v.n = copy(v.carry[:], p[cut:])
	v.invalid = !utf8.Valid(p[:cut])
}

// end tells whether anything was not UTF-8.
func (v *validity) end() bool { return v.invalid || v.n > 0 }

// sanitize puts U+FFFD in place of each byte that is not UTF-8.
func sanitize(p []byte) string {
	if utf8.Valid(p) {
		return string(p)
	}
	var out strings.Builder
	out.Grow(sanitizedLen(p))
	for len(p) > 0 {
		r, n := utf8.DecodeRune(p)
		out.WriteRune(r)
		p = p[n:]
	}
	return out.String()
}

func sanitizedLen(p []byte) int {
	if utf8.Valid(p) {
		return len(p)
	}
	total := 0
	for len(p) > 0 {
		r, n := utf8.DecodeRune(p)
		total += utf8.RuneLen(r)
		p = p[n:]
	}
	return total
}

// firstLen is what the first code point of p takes; 0 for none.
func firstLen(p []byte) int {
	if len(p) == 0 {
		return 0
	}
	r, _ := utf8.DecodeRune(p)
	return utf8.RuneLen(r)
}

// skipContinuation returns how many bytes at the start of p belong to a code
// point that began before it.
func skipContinuation(p []byte) int {
	n := 0
	for n < len(p) && n < utf8.UTFMax-1 && !utf8.RuneStart(p[n]) {
		n++
	}
	return n
}

// cutHead returns how many bytes of p can be shown in room: up to the end of a
// cluster, or of a code point where not even one cluster fits.
func cutHead(p []byte, room int) int {
	at, used, cluster := 0, 0, 0
	var seam seam
	for at < len(p) {
		r, n := utf8.DecodeRune(p[at:])
		if seam.before(r) {
			cluster = at
		}
		if used += utf8.RuneLen(r); used > room {
			if cluster > 0 {
				return cluster
			}
			return at
		}
		at += n
	}
	return at // whether a cluster ends with it cannot be seen
}

// cutTail returns where in p the part begins that can be shown in room: at the
// start of a cluster, or of a code point where there is room for a cluster and
// it is still too long. cut says that p may begin inside a cluster.
func cutTail(p []byte, room int, cut bool) int {
	left := sanitizedLen(p)
	at, point := 0, -1
	seam := seam{begun: cut, last: '\u200d'}
	for at < len(p) {
		r, n := utf8.DecodeRune(p[at:])
		starts := seam.before(r)
		if left <= room {
			if starts {
				return at
			}
			if point < 0 {
				point = at
			}
		}
		left -= utf8.RuneLen(r)
		at += n
	}
	if point >= 0 && room >= slack {
		return point
	}
	return at
}

// seam finds the seams between grapheme clusters: the rules of UAX #29 for what
// occurs in terminals' output (marks, joined emoji, flags, Hangul, CR LF),
// without its tables for Indic conjuncts. Which flags belong together cannot be
// seen from the middle of a row of them.
type seam struct {
	last  rune
	flags int // regional indicators in a row
	begun bool
}

// before tells whether a cluster starts with r, which follows what it was asked before.
func (s *seam) before(r rune) bool {
	last, flags, begun := s.last, s.flags, s.begun
	s.last, s.begun = r, true
	s.flags = 0
	if regional(r) {
		s.flags = flags + 1
	}
	switch {
	case !begun:
		return true
	case last == '\r' && r == '\n':
		return false
	case unicode.IsControl(last) || unicode.IsControl(r):
		return true
	case extends(r):
		return false
	case last == '\u200d' && r > 0xff:
		return false
	case regional(r) && flags%2 == 1:
		return false
	case hangulLead(last) && (hangulLead(r) || hangulRest(r) || hangulWhole(r)):
		return false
	case (hangulWhole(last) || hangulRest(last)) && hangulRest(r):
		return false
	}
	return true
}

func extends(r rune) bool {
	return r == '\u200d' || r == '\u200c' ||
		r >= 0x1f3fb && r <= 0x1f3ff || // skin tones
		r >= 0xe0020 && r <= 0xe007f || // tags
		r > 0x2ff && unicode.Is(unicode.M, r) // marks and variation selectors
}

func regional(r rune) bool    { return r >= 0x1f1e6 && r <= 0x1f1ff }
func hangulLead(r rune) bool  { return r >= 0x1100 && r <= 0x115f || r >= 0xa960 && r <= 0xa97c }
func hangulRest(r rune) bool  { return r >= 0x1160 && r <= 0x11ff || r >= 0xd7b0 && r <= 0xd7fb }
func hangulWhole(r rune) bool { return r >= 0xac00 && r <= 0xd7a3 }

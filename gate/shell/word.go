package shell

import (
	"strings"
	"unicode/utf8"

	"mvdan.cc/sh/v3/syntax"
)

// Word is one word of a simple command, as far as reading alone tells.
type Word struct {
	// Text is the word after quoting is removed. Of a word that is not Known it
	// shows the unknown pieces as they were written, for people only.
	Text string
	// Known says that the word is exactly Text when it runs, except for Tilde.
	Known bool
	// Tilde says that Text begins with a ~ that the shell replaces.
	Tilde bool
	// Many says that it may become any number of words.
	Many bool

	glob    Glob // what it may be, of a word that is not literal
	process bool // <(…) or >(…)
}

// Literal returns the known word text.
func Literal(text string) Word { return Word{Text: text, Known: true} }

// anything is a word that may become any number of any words.
func anything(text string) Word { return Word{Text: text, Many: true, glob: Glob{{hole: true}}} }

// May tells whether the word, or one of those that it becomes, may match g.
func (w Word) May(g Glob) bool {
	if w.Known && (!w.Tilde || g.Match(w.Text)) {
		return g.Match(w.Text)
	}
	return w.glob.Meets(g)
}

// Is tells whether the word is known and matches g.
func (w Word) Is(g Glob) bool { return w.Known && g.Match(w.Text) }

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

// wordMaker gathers the pieces of one word.
type wordMaker struct {
	text               strings.Builder
	glob               Glob
	unknown, many, any bool
	tilde, process     bool
	open, comma        bool // an unquoted { was seen, and then a comma or ..
	brackets           bool // [ begins a bracket expression, because it is closed
	bracket            bool // one has begun: what follows is not read
}

func (m *wordMaker) add(s string) {
	m.text.WriteString(s)
	if !m.bracket {
		m.glob = m.glob.addText(s)
	}
}

func (m *wordMaker) hole(shown string) {
	m.text.WriteString(shown)
	m.glob = m.glob.addHole()
	m.unknown = true
}

// makeWord reads a word of the syntax tree.
func makeWord(w *syntax.Word) Word {
	m := wordMaker{brackets: hasBrackets(w)}
	for i, part := range w.Parts {
		m.part(part, i == 0, false)
	}
	return m.word()
}

// hasBrackets tells whether an unquoted [ is followed by an unquoted ].
func hasBrackets(w *syntax.Word) bool {
	open := false
	for _, part := range w.Parts {
		lit, ok := part.(*syntax.Lit)
		if !ok {
			continue
		}
		text := lit.Value
		if !open {
			at := strings.IndexByte(text, '[')
			if at < 0 {
				continue
			}
			open, text = true, text[at+1:]
		}
		if strings.Contains(text, "]") {
			return true
		}
	}
	return false
}

func (m *wordMaker) word() Word {
	out := Word{Text: m.text.String(), Known: !m.unknown, Tilde: m.tilde, Many: m.many || m.any, process: m.process}
	switch {
	case m.any:
		out.Known, out.glob = false, Hole()
	case m.unknown || m.tilde:
		out.glob = m.glob
	}
	return out
}

func (m *wordMaker) part(part syntax.WordPart, first, quoted bool) {
	switch p := part.(type) {
	case *syntax.Lit:
		if quoted {
			m.quotedLit(p.Value)
		} else {
			m.bareLit(p.Value, first)
		}
	case *syntax.SglQuoted:
		if p.Dollar {
			m.ansi(p.Value)
		} else {
			m.add(p.Value)
		}
	case *syntax.DblQuoted:
		for _, inner := range p.Parts {
			m.part(inner, false, true)
		}
	case *syntax.ParamExp:
		shown := "${…}"
		if p.Param != nil {
			shown = "$" + p.Param.Value
		}
		m.hole(shown)
		m.any = m.any || !quoted || severalWords(p)
	case *syntax.CmdSubst:
		m.hole("$(…)")
		m.any = m.any || !quoted
	case *syntax.ArithmExp:
		m.hole("$((…))")
		m.any = m.any || !quoted
	case *syntax.ProcSubst:
		m.hole("<(…)")
		m.process = true
	case *syntax.ExtGlob:
		m.hole(p.Op.String() + "…)")
		m.many = true
	default: // a brace expansion, or a kind that a later parser may add
		m.hole("…")
		m.any = true
	}
}

// severalWords tells whether a quoted expansion can be more or fewer than one word.
func severalWords(p *syntax.ParamExp) bool {
	if p.Param == nil || p.Param.Value == "@" || p.Excl || p.Names != 0 || p.NestedParam != nil || p.Exp != nil {
		return true
	}
	return p.Index != nil
}

// bareLit adds text that is not quoted: backslashes quote, globs and braces expand.
func (m *wordMaker) bareLit(s string, first bool) {
	if first && strings.HasPrefix(s, "~") {
		// What ~ or ~name becomes is unknown, up to the first slash.
		name, rest, slash := strings.Cut(s, "/")
		m.tilde = true
		m.text.WriteString(name)
		m.glob = m.glob.addHole()
		if !slash {
			return
		}
		s = "/" + rest
	}
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\\' && i+1 < len(s):
			i++
			if s[i] != '\n' {
				m.add(s[i : i+1])
			}
		case c == '*' || c == '?' || c == '[' && m.brackets:
			m.hole(s[i : i+1])
			m.many = true
			m.bracket = m.bracket || c == '['
		case c == '{':
			m.open = true
			m.add("{")
		case m.open && (c == ',' || c == '.' && i+1 < len(s) && s[i+1] == '.'):
			m.comma = true
			m.add(s[i : i+1])
		case c == '}' && m.comma:
			m.unknown, m.any = true, true
			m.add("}")
		default:
			m.add(s[i : i+1])
		}
	}
}

func (m *wordMaker) quotedLit(s string) {
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) && strings.IndexByte("$`\"\\\n", s[i+1]) >= 0 {
			i++
			if s[i] == '\n' {
				continue
			}
		}
		m.add(s[i : i+1])
	}
}

var ansiEscapes = map[byte]string{
	'a': "\a", 'b': "\b", 'e': "\x1b", 'E': "\x1b", 'f': "\f", 'n': "\n",
	'r': "\r", 't': "\t", 'v': "\v", '\\': "\\", '\'': "'", '"': "\"", '?': "?",
}

// ansi adds the inside of $'…'. An escape that it does not know is a hole.
func (m *wordMaker) ansi(s string) {
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			m.add(s[i : i+1])
			continue
		}
		i++
		if text, ok := ansiEscapes[s[i]]; ok {
			m.add(text)
			continue
		}
		base, limit, start := 16, 0, i+1
		switch s[i] {
		case 'x':
			limit = 2
		case 'u':
			limit = 4
		case 'U':
			limit = 8
		case '0', '1', '2', '3', '4', '5', '6', '7':
			base, limit, start = 8, 3, i
		}
		value, end := number(s, start, base, limit)
		if end == start || value == 0 || value > utf8.MaxRune {
			m.hole(`\` + s[i:i+1])
			m.any = true
			continue
		}
		if s[i] == 'u' || s[i] == 'U' {
			m.add(string(rune(value)))
		} else {
			m.add(string([]byte{byte(value)}))
		}
		i = end - 1
	}
}

func number(s string, start, base, limit int) (value int64, end int) {
	for end = start; end < len(s) && end < start+limit; end++ {
		digit := 16
		switch c := s[end]; {
		case c >= '0' && c <= '9':
			digit = int(c - '0')
		case c >= 'a' && c <= 'f':
			digit = int(c-'a') + 10
		case c >= 'A' && c <= 'F':
			digit = int(c-'A') + 10
		}
		if digit >= base {
			break
		}
		value = value*int64(base) + int64(digit)
	}
	return value, end
}

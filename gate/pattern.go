package gate

import (
	"errors"
	"path"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/gate/shell"
)

// commandPattern is shell words in which * stands for any text inside a word,
// and a last ** for any further words.
type commandPattern struct {
	program string // as written, for the slash
	words   []shell.Glob
	rest    bool
}

var errPatternSyntax = errors.New("a pattern is plain words: quote ; | & < > ( ) $ ` and line breaks, or make two rules")

func parseCommandPattern(s string) (commandPattern, error) {
	words, err := patternWords(s)
	if err != nil {
		return commandPattern{}, err
	}
	var p commandPattern
	for i, w := range words {
		if w.open == "**" {
			if i == 0 {
				return p, errors.New("** cannot stand for the program")
			}
			if i != len(words)-1 {
				return p, errors.New("** can only be the last word")
			}
			p.rest = true
			break
		}
		if strings.Contains(w.open, "**") {
			return p, errors.New("** must be a word of its own")
		}
		p.words = append(p.words, w.glob)
		if i == 0 {
			p.program = w.text
		}
	}
	if len(p.words) == 0 {
		return p, errors.New("an empty pattern")
	}
	if strings.Contains(p.program, "*") && strings.Contains(p.program, "/") {
		return p, errors.New("a program with a slash is written out, without *")
	}
	return p, nil
}

type patternWord struct {
	glob shell.Glob
	text string // without quotes
	open string // what of it was not quoted
}

// patternWords splits a pattern at blanks, with the quotes of a shell.
func patternWords(s string) ([]patternWord, error) {
	var out []patternWord
	var word patternWord
	inside := false
	add := func(text, open string) {
		inside = true
		word.text += text
		word.open += open
		if open == "*" {
			word.glob = word.glob.Join(shell.Hole())
		} else {
			word.glob = word.glob.Join(shell.Text(text))
		}
	}
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == ' ' || c == '\t':
			if inside {
				out = append(out, word)
				word, inside = patternWord{}, false
			}
		case c == '\'' || c == '"':
			end := strings.IndexByte(s[i+1:], c)
			if end < 0 {
				return nil, errors.New("a quote is not closed")
			}
			add(s[i+1:i+1+end], "")
			i += end + 1
		case c == '\\':
			if i++; i == len(s) {
				return nil, errors.New("a backslash at the end")
			}
			add(s[i:i+1], "")
		case strings.IndexByte(";|&<>()$`\n\r\x00", c) >= 0:
			return nil, errPatternSyntax
		default:
			add(s[i:i+1], s[i:i+1])
		}
	}
	if inside {
		out = append(out, word)
	}
	return out, nil
}

// covers tells whether the pattern allows the command: fully, from its first
// word, and nothing of it unknown. A pattern without a slash means the program
// that is found by its bare name or in a trusted directory; one with a slash
// means exactly that file.
func (p commandPattern) covers(c shell.Command, trusted []string) bool {
	if !known(c.Words) || len(c.Words) < len(p.words) || len(c.Words) > len(p.words) && !p.rest {
		return false
	}
	program := c.Words[0]
	switch {
	case program.Tilde:
		return false
	case strings.Contains(p.program, "/"):
		if program.Text != p.program {
			return false
		}
	case !trustedProgram(program.Text, trusted) || !p.words[0].Match(path.Base(program.Text)):
		return false
	}
	for i, g := range p.words[1:] {
		if !c.Words[i+1].Is(g) {
			return false
		}
	}
	return true
}

func known(words []shell.Word) bool {
	return !slices.ContainsFunc(words, func(w shell.Word) bool { return !w.Known })
}

func trustedProgram(program string, trusted []string) bool {
	return program != "" && (!strings.Contains(program, "/") || slices.Contains(trusted, path.Dir(program)) && cleaned(program) == program)
}

// catches tells whether the pattern may fit the command: its program's base
// name, and the other words in order with anything between. An unknown word
// fits anything. Of a wrapper, its arguments are looked at in the same way.
func (p commandPattern) catches(c shell.Command) bool {
	if p.mayStart(c.Words[0]) && p.mayFollow(c.Words) {
		return true
	}
	if !c.Wrapper {
		return false
	}
	// The leftmost program leaves most words to fit the others.
	for i, w := range c.Words[1:] {
		if p.mayStart(w) {
			return p.mayFollow(c.Words[i+1:])
		}
	}
	return false
}

func (p commandPattern) mayStart(w shell.Word) bool {
	if w.Known && !w.Tilde {
		base := path.Base(w.Text)
		return p.words[0].Match(base) || strings.Contains(p.program, "/") && (w.Text == p.program || base == path.Base(p.program))
	}
	last := p.words[0]
	if strings.Contains(p.program, "/") {
		last = shell.Text(path.Base(p.program))
	}
	return w.May(last) || w.May(shell.ParseGlob("*/").Join(last))
}

// mayFollow looks for the pattern's further words in those after the first. A
// word that may become several can stand for any number of them in a row.
func (p commandPattern) mayFollow(words []shell.Word) bool {
	want := p.words[1:]
	if words[0].Many {
		for len(want) > 0 && words[0].May(want[0]) {
			want = want[1:]
		}
	}
	for _, w := range words[1:] {
		if len(want) == 0 {
			break
		}
		if !w.May(want[0]) {
			continue
		}
		want = want[1:]
		for w.Many && len(want) > 0 && w.May(want[0]) {
			want = want[1:]
		}
	}
	return len(want) == 0
}

// covered tells whether the patterns allow the whole reading: every command of
// it, with nothing opaque and no variable set.
func covered(patterns []commandPattern, r shell.Reading, trusted []string) bool {
	if len(r.Opaque) > 0 || r.Assigns || r.Bomb {
		return false
	}
	any := false
	for _, c := range r.Commands {
		fits := slices.ContainsFunc(patterns, func(p commandPattern) bool { return p.covers(c, trusted) })
		if !fits && !(c.Clear && known(c.Words[:1]) && trustedProgram(c.Words[0].Text, trusted)) {
			return false
		}
		any = any || fits
	}
	return any
}

// caught tells whether one of the patterns may fit a command of the reading.
func caught(patterns []commandPattern, r shell.Reading) bool {
	return slices.ContainsFunc(r.Commands, func(c shell.Command) bool {
		return slices.ContainsFunc(patterns, func(p commandPattern) bool { return p.catches(c) })
	})
}

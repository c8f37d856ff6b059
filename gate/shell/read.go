// Package shell reads command lines as far as reading alone can: into the simple
// commands that they would run, the files that they redirect to, and the places
// where nobody can tell.
//
// It is an aid to policy and no boundary. It promises that what it calls known
// and readable is what a POSIX shell or bash would run, in their default modes,
// and that everything else is unknown or opaque. It does not promise to see what
// a program does with its arguments. It never runs or looks up anything.
package shell

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// Bounds of one reading. What goes over them is opaque. They are far above what
// a person writes and keep the worst line at some tens of milliseconds.
const (
	MaxLine     = 64 << 10 // bytes of one line
	MaxCommands = 256
	MaxDepth    = 8         // of sh -c and its like
	maxNesting  = 200       // of brackets; the parser's time grows with its square
	maxTotal    = 256 << 10 // bytes of all lines in a line
	maxKept     = 256 << 10 // bytes of the words of all commands: wrappers in wrappers repeat them
)

// Command is one simple command that a line would run.
type Command struct {
	// Words are the program and its arguments. Never empty.
	Words []Word
	// Via names what it was read out of: "sh -c", "xargs". Empty for the line itself.
	Via string
	// Wrapper says that the command runs what its arguments name.
	Wrapper bool
	// Clear says that a wrapper adds nothing of its own to the commands that were
	// read out of it: nice, timeout, sh -c. They stand for it.
	Clear bool
}

// Target is a file that a redirection opens.
type Target struct {
	Word  Word
	Write bool
}

// Reading is what a line was read as.
type Reading struct {
	Commands []Command
	Targets  []Target
	// Opaque holds the reasons why there may be more than was read.
	Opaque []string
	// Assigns says that the line sets variables, which may change what its
	// commands mean.
	Assigns bool
	// Moves says that the line changes its directory, so that relative targets
	// are unknown.
	Moves bool
	// Bomb says that a function starts itself in the background or in a pipe.
	Bomb bool
}

// Read reads a line for bash or sh.
func Read(line string) Reading {
	r := reader{left: maxTotal}
	r.line(line, source{})
	return r.Reading
}

// ReadArgv reads a program that is run without a shell.
func ReadArgv(argv []string) Reading {
	r := reader{left: maxTotal}
	if len(argv) == 0 || argv[0] == "" {
		r.opaque("no program is named")
		return r.Reading
	}
	words := make([]Word, len(argv))
	for i, arg := range argv {
		words[i] = Literal(arg)
	}
	r.command(words, source{})
	return r.Reading
}

// source is where a command stands.
type source struct {
	via   string
	depth int
	stdin *syntax.Word // here-document or here-string
	guess bool         // the text has holes
}

func (s source) in(via string) source {
	s.via = via
	return s
}

type reader struct {
	Reading
	left int  // bytes that may still be read
	kept int  // bytes of words
	over bool // there were more commands than are kept
}

func (r *reader) opaque(format string, args ...any) {
	reason := fmt.Sprintf(format, args...)
	if !slices.Contains(r.Opaque, reason) {
		r.Opaque = append(r.Opaque, reason)
	}
}

// line reads a shell line that stands at from.
func (r *reader) line(text string, from source) {
	r.left -= len(text)
	switch {
	case from.depth > MaxDepth:
		r.opaque("shells in shells, more than %d deep", MaxDepth)
		return
	case len(text) > MaxLine || r.left < 0:
		r.opaque("more than %d bytes", MaxLine)
		return
	case strings.ContainsRune(text, 0):
		r.opaque("a NUL byte")
		return
	case nesting(text) > maxNesting:
		r.opaque("brackets more than %d deep", maxNesting)
		return
	}
	file, err := parse(text)
	if err != nil {
		r.opaque("it cannot be parsed: %v", err)
		return
	}
	syntax.Walk(file, func(n syntax.Node) bool {
		r.node(n, from)
		return !r.over
	})
}

// parse keeps a fault of the parser on a hostile line from ending the program:
// such a line is one that cannot be parsed.
func parse(text string) (file *syntax.File, err error) {
	defer func() {
		if p := recover(); p != nil {
			file, err = nil, fmt.Errorf("the parser gave up: %v", p)
		}
	}()
	return syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(text), "")
}

// nesting bounds how deep the parser could go.
func nesting(text string) int {
	depth, deepest := 0, 0
	for i := range len(text) {
		switch text[i] {
		case '(', '[', '{':
			depth++
			deepest = max(deepest, depth)
		case ')', ']', '}':
			depth = max(0, depth-1)
		}
	}
	return deepest
}

func (r *reader) node(n syntax.Node, from source) {
	switch n := n.(type) {
	case *syntax.Stmt:
		r.statement(n, from)
	case *syntax.FuncDecl:
		if n.Name != nil && startsItself(n) {
			r.Bomb = true
		}
	case *syntax.WordIter, *syntax.CStyleLoop:
		r.Assigns = true
	case *syntax.ParamExp:
		if n.Exp != nil && (n.Exp.Op == syntax.AssignUnset || n.Exp.Op == syntax.AssignUnsetOrNull) {
			r.Assigns = true
		}
	case *syntax.ArithmExp:
		r.Assigns = true // $((x=1)), and values of variables that hold commands
	}
}

func (r *reader) statement(s *syntax.Stmt, from source) {
	from.stdin = nil
	for _, redirect := range s.Redirs {
		r.redirect(redirect, &from)
	}
	switch c := s.Cmd.(type) {
	case *syntax.CallExpr:
		if len(c.Assigns) > 0 {
			r.Assigns = true
		}
		words := make([]Word, len(c.Args))
		for i, w := range c.Args {
			words[i] = makeWord(w)
		}
		if len(words) > 0 {
			r.command(words, from)
		}
	case *syntax.DeclClause:
		r.declaration(c, from)
	case *syntax.TestClause:
		r.command([]Word{Literal("[["), anything("…")}, from)
	case *syntax.ArithmCmd:
		r.Assigns = true
		r.command([]Word{Literal("(("), anything("…")}, from)
	case *syntax.LetClause:
		r.Assigns = true
		r.command([]Word{Literal("let"), anything("…")}, from)
	case *syntax.TestDecl:
		r.opaque("a form of another shell")
	}
}

func (r *reader) declaration(c *syntax.DeclClause, from source) {
	words := []Word{Literal(c.Variant.Value)}
	for _, a := range c.Args {
		switch {
		case a.Naked && a.Value != nil:
			words = append(words, makeWord(a.Value))
		case a.Name != nil && a.Value == nil && a.Array == nil:
			words = append(words, Literal(a.Name.Value))
		default:
			words = append(words, anything("…=…"))
		}
		r.Assigns = r.Assigns || !a.Naked
	}
	r.command(words, from)
}

// nowhere are targets that are no files.
var nowhere = []string{"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty", "/dev/zero"}

func (r *reader) redirect(redirect *syntax.Redirect, from *source) {
	if redirect.N != nil && strings.HasPrefix(redirect.N.Value, "{") {
		r.Assigns = true
	}
	t := Target{Write: true}
	switch redirect.Op {
	case syntax.Hdoc, syntax.DashHdoc:
		from.stdin = redirect.Hdoc
		return
	case syntax.WordHdoc:
		from.stdin = redirect.Word
		return
	case syntax.RdrIn:
		t.Write = false
	default:
	}
	if redirect.Word == nil {
		return
	}
	t.Word = makeWord(redirect.Word)
	duplicates := redirect.Op == syntax.DplOut || redirect.Op == syntax.DplIn
	switch text := t.Word.Text; {
	case !t.Word.Known:
	case duplicates && strings.Trim(text, "0123456789-") == "":
		return
	case slices.Contains(nowhere, text):
		return
	case strings.HasPrefix(text, "/dev/tcp/") || strings.HasPrefix(text, "/dev/udp/"):
		t.Write = true // a connection, whichever way it is opened
	}
	r.Targets = append(r.Targets, t)
}

// startsItself tells whether a function's body calls the function in a pipe or
// in the background.
func startsItself(f *syntax.FuncDecl) bool {
	calls := func(s *syntax.Stmt) bool {
		c, ok := s.Cmd.(*syntax.CallExpr)
		return ok && len(c.Args) > 0 && c.Args[0].Lit() == f.Name.Value
	}
	found := false
	syntax.Walk(f.Body, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.Stmt:
			found = found || n.Background && calls(n)
		case *syntax.BinaryCmd:
			if n.Op == syntax.Pipe || n.Op == syntax.PipeAll {
				found = found || calls(n.X) || calls(n.Y)
			}
		}
		return !found
	})
	return found
}

// command adds a simple command and what is read out of it.
func (r *reader) command(words []Word, from source) {
	if from.guess && !words[0].Known {
		return // says nothing that opaque does not
	}
	if len(r.Commands) >= MaxCommands {
		r.over = true
		r.opaque("more than %d commands", MaxCommands)
		return
	}
	for _, w := range words {
		r.kept += len(w.Text) + 8
	}
	if r.kept > maxKept {
		r.over = true
		r.opaque("more than %d bytes of words", maxKept)
		return
	}
	at := len(r.Commands)
	r.Commands = append(r.Commands, Command{Words: words, Via: from.via})
	program := words[0]
	if !program.Known || program.Tilde {
		// It may be a shell or a wrapper.
		r.Commands[at].Wrapper = true
		r.linesAmong(words[1:], from.in(program.Text))
		return
	}
	name := path.Base(program.Text)
	if r.special(name, words, from) {
		return
	}
	if slices.Contains(shells, name) {
		r.Commands[at].Wrapper = true
		r.Commands[at].Clear = r.shell(name, words[1:], from)
		return
	}
	if inline, ok := interpreterOf(name); ok {
		r.interpreter(name, inline, words[1:])
		return
	}
	if w, ok := wrappers[name]; ok {
		r.Commands[at].Wrapper = true
		clearly := r.wrapped(name, w, words[1:], from)
		r.Commands[at].Clear = clearly && w.clear
	}
}

// special handles commands that change how the rest is read.
func (r *reader) special(name string, words []Word, from source) bool {
	switch name {
	case "eval":
		r.opaque("eval")
		r.joined(words[1:], from.in("eval"))
	case "source", ".":
		r.opaque("%s reads a file", name)
	case "alias", "hash", "enable":
		if len(words) > 1 {
			r.opaque("%s changes what names mean", name)
		}
	case "mapfile", "readarray", "bind", "complete", "compgen":
		if len(words) > 1 {
			r.opaque("%s can run its arguments", name)
		}
	case "at", "batch":
		r.opaque("%s is fed by stdin", name)
	case "trap":
		if len(words) > 2 {
			r.text(words[1], from.in("trap"))
		}
	case "cd", "pushd", "popd":
		r.Moves = true
	case "read", "getopts", "unset":
		r.Assigns = true
	case "printf":
		r.Assigns = r.Assigns || len(words) > 1 && (!words[1].Known || strings.HasPrefix(words[1].Text, "-v"))
	default:
		return false
	}
	return true
}

// text reads a word as a line of its own.
func (r *reader) text(w Word, from source) {
	from.depth++
	from.stdin = nil
	if w.Known && !w.Tilde {
		r.line(w.Text, from)
		return
	}
	// What is between the holes is read for what it shows; the holes may hold more.
	r.opaque("%s of a line that is not known", from.via)
	from.guess = true
	var line strings.Builder
	for _, p := range w.glob {
		if p.hole {
			line.WriteString("${_}")
		} else {
			line.WriteString(p.text)
		}
	}
	r.line(line.String(), from)
}

// joined reads words as one line, as eval and ssh do.
func (r *reader) joined(words []Word, from source) {
	var g Glob
	for i, w := range words {
		if i > 0 {
			g = g.addText(" ")
		}
		if w.Known && !w.Tilde {
			g = g.addText(w.Text)
		} else {
			g = g.Join(w.glob)
		}
	}
	m := wordMaker{glob: g}
	for _, p := range g {
		m.text.WriteString(p.text)
		m.unknown = m.unknown || p.hole
	}
	r.text(m.word(), from)
}

// linesAmong reads those arguments that look like lines. They add commands for
// rules that deny or review; nothing is allowed for them.
func (r *reader) linesAmong(words []Word, from source) {
	for _, w := range words {
		if strings.ContainsAny(w.Text, " \t\n;|&") {
			from.depth++
			from.stdin = nil
			if from.depth <= MaxDepth && w.Known {
				r.quietly(w.Text, from)
			}
			from.depth--
		}
	}
}

// quietly reads text that is perhaps no line: what cannot be read is left out.
func (r *reader) quietly(text string, from source) {
	before, count := len(r.Opaque), len(r.Commands)
	opaque := slices.Clone(r.Opaque)
	r.line(text, from)
	if len(r.Opaque) > before && len(r.Commands) == count {
		r.Opaque = opaque
	}
}

package shell

import (
	"path"
	"slices"
	"strings"
)

// Code finds those arguments that a program of argv would read as program text:
// what stands behind -c of a shell or -e of an interpreter, the script that one of
// them is to run, what a program such as ssh or watch gives to a shell, and the
// program that one such as env starts. The value says what reads it. A NUL byte
// in an argument stands for text that is not known yet.
//
// Shells and interpreters are found wherever in argv they stand. Not promised is
// that nothing else is read as program text: any program may do so with any of
// its arguments.
func Code(argv []string) map[int]string {
	c := coder{argv: argv, found: map[int]string{}}
	c.command(0)
	for i := range argv {
		c.inline(i)
	}
	return c.found
}

type coder struct {
	argv  []string
	found map[int]string
}

func (c *coder) add(i int, what string) {
	if i < len(c.argv) && c.found[i] == "" {
		c.found[i] = what
	}
}

// option is one of a shell's or an interpreter's own: what it says could be any.
func (c *coder) option(i int, name string, certain bool) {
	if certain {
		c.add(i, name)
	}
}

func (c *coder) name(i int) string { return path.Base(c.argv[i]) }

func isShell(name string) bool { return slices.Contains(shells, name) }

// inline finds what stands behind -c and its like, if argv[i] is the name of a
// shell or an interpreter.
func (c *coder) inline(i int) {
	name := c.name(i)
	if isShell(name) {
		c.shell(i, false)
		return
	}
	if letters, is := interpreterOf(name); is && letters != "" {
		c.interpreter(i, letters, false)
	}
}

// command reads the command that begins at argv[i], through the programs that
// start what their arguments name.
func (c *coder) command(i int) {
	if i >= len(c.argv) {
		return
	}
	name := c.name(i)
	w, wraps := wrappers[name]
	letters, interprets := interpreterOf(name)
	switch {
	case isShell(name):
		c.shell(i, true)
	case interprets:
		c.interpreter(i, letters, true)
	case isAwk(name):
		c.script(i, "vF", "e", "f")
	case name == "sed" || name == "gsed":
		c.script(i, "l", "e", "f")
	case name == "ssh":
		c.rest(c.operand(i+1, w)+1, name)
	case name == "watch" || name == "parallel":
		c.rest(i+1, name)
	case name == "find":
		for j := i + 1; j < len(c.argv); j++ {
			if slices.Contains(findRuns, c.argv[j]) {
				c.started(j+1, name)
			}
		}
	case wraps:
		c.wrapped(i, name, w)
	}
}

func isAwk(name string) bool {
	return slices.Contains([]string{"awk", "gawk", "mawk", "nawk", "original-awk"}, name)
}

// operand is where the first argument from i on is that is no option, nor an
// option's value.
func (c *coder) operand(i int, w wrapper) int {
	if i >= len(c.argv) {
		return len(c.argv)
	}
	words := make([]Word, len(c.argv)-i)
	for j := range words {
		words[j] = Literal(c.argv[i+j])
	}
	rest, _ := w.options(words)
	return len(c.argv) - len(rest)
}

func (c *coder) rest(i int, what string) {
	for ; i < len(c.argv); i++ {
		c.add(i, what)
	}
}

// started is a command that another program starts: its name is to be known.
func (c *coder) started(i int, by string) {
	c.add(i, by)
	c.command(i)
}

func (c *coder) wrapped(i int, name string, w wrapper) {
	if w.lines {
		for j := i + 1; j < len(c.argv); j++ {
			switch arg := c.argv[j]; {
			case arg == "-c" || arg == "--command" || arg == "--call":
				c.add(j+1, name+" "+arg)
			case strings.HasPrefix(arg, "-c"), strings.HasPrefix(arg, "--command="), strings.HasPrefix(arg, "--call="):
				c.add(j, name+" -c")
			}
		}
	}
	if name == "env" {
		for j := i + 1; j < len(c.argv); j++ {
			arg := c.argv[j]
			switch {
			case strings.HasPrefix(arg, "--split-string"), strings.HasPrefix(arg, "-") && !strings.HasPrefix(arg, "--") && strings.ContainsAny(arg, "S\x00"):
				c.add(j, "env -S")
				c.add(j+1, "env -S")
			}
			if !strings.HasPrefix(arg, "-") {
				break
			}
		}
	}
	at := c.operand(i+1, w)
	for w.assigns && at < len(c.argv) && isAssignment(c.argv[at]) && !strings.Contains(assigned(c.argv[at]), "\x00") {
		at++
	}
	if at += w.skip; at < len(c.argv) {
		c.started(at, name)
	}
}

func assigned(arg string) string {
	name, _, _ := strings.Cut(arg, "=")
	return name
}

// shell finds the text that the shell at argv[i] is given; with file also the
// script that it is to run.
func (c *coder) shell(i int, file bool) {
	name, text := c.name(i), false
	for j := i + 1; j < len(c.argv); j++ {
		arg := c.argv[j]
		if arg == "--" || arg == "-" {
			j++
		} else if len(arg) > 1 && (arg[0] == '-' || arg[0] == '+') {
			switch {
			case arg == "--rcfile" || arg == "--init-file":
				c.add(j+1, name)
				j++
			case arg == "--command": // of fish
				c.add(j+1, name+" -c")
				j++
			default:
				text = text || arg[0] == '-' && arg[1] != '-' && strings.ContainsRune(arg, 'c')
				c.option(j, name, file || text)
				if strings.HasSuffix(arg, "o") || strings.HasSuffix(arg, "O") {
					j++
				}
			}
			continue
		}
		switch {
		case text:
			c.add(j, name+" -c")
		case file:
			c.add(j, name)
		}
		return
	}
}

// interpreter finds the text that the interpreter at argv[i] is given behind one
// of the letters; with file also the script that it is to run.
func (c *coder) interpreter(i int, letters string, file bool) {
	name, text := c.name(i), false
	for j := i + 1; j < len(c.argv); j++ {
		arg := c.argv[j]
		option, _, joined := strings.Cut(arg, "=")
		switch {
		case len(arg) < 2 || arg[0] != '-':
			if file && !text {
				c.add(j, name)
			}
			return
		case arg == "--":
			if file && !text {
				c.add(j+1, name)
			}
			return
		case slices.Contains(evals, strings.ToLower(option)):
			text = true
			if c.add(j, name+" "+option); !joined {
				c.add(j+1, name+" "+option)
				j++
			}
		case arg[1] == '-' || letters == "":
			c.option(j, name, file)
		case strings.ContainsAny(arg[1:], letters):
			at := strings.IndexAny(arg, letters)
			what := name + " -" + arg[at:at+1]
			c.add(j, what)
			text = true
			if at == len(arg)-1 {
				c.add(j+1, what)
				j++
			}
			if strings.ContainsAny(arg[at:at+1], "cm") {
				return // what follows are its arguments
			}
		default:
			c.option(j, name, file)
			if slices.Contains([]string{"-W", "-X", "-I", "-r"}, arg) {
				j++
			}
		}
	}
}

// evals are the long options behind which program text stands.
var evals = []string{"--eval", "--print", "--run", "--execute", "-command", "-encodedcommand", "--command"}

// script finds the program of awk and its like: the first operand, unless options
// gave one: texts those of the letters in text, files those in files. values are
// the options that take a value.
func (c *coder) script(i int, values, text, files string) {
	name, given := c.name(i), false
	for j := i + 1; j < len(c.argv); j++ {
		arg := c.argv[j]
		if len(arg) < 2 || arg[0] != '-' || arg == "--" {
			if arg == "--" {
				j++
			}
			if !given {
				c.add(j, name)
			}
			return
		}
		option := arg[1:2]
		switch {
		case strings.HasPrefix(arg, "--"):
			c.add(j, name)
		case strings.Contains(text, option), strings.Contains(files, option):
			given = true
			if c.add(j, name+" -"+option); len(arg) == 2 {
				c.add(j+1, name+" -"+option)
				j++
			}
		case strings.HasSuffix(arg, "e") && strings.Contains(text, "e"): // sed -ne TEXT
			given = true
			c.add(j+1, name+" -e")
			j++
		case strings.Contains(values, option) && len(arg) == 2:
			j++
		}
	}
}

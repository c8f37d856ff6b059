package shell

import (
	"slices"
	"strings"
)

// wrapper says how a program names the command that it runs.
type wrapper struct {
	clear   bool     // adds nothing of its own, with no other options than these:
	plain   string   // short options that change nothing
	values  string   // short options that change nothing and take a value
	others  string   // further short options that take a value
	long    []string // long options that take their value as the next word
	skip    int      // words between the options and the command
	assigns bool     // NAME=VALUE may stand before the command
	lines   bool     // arguments may be shell lines
	appends bool     // adds words of its own to the command
}

// wrappers are the programs that run what their arguments name. Those marked
// clear are covered by rules that allow the command in them; all are looked
// through by rules that deny or review.
var wrappers = map[string]wrapper{
	"command":  {clear: true, plain: "p"},
	"builtin":  {clear: true},
	"exec":     {clear: true, others: "a"},
	"nice":     {clear: true, plain: "0123456789", values: "n", long: []string{"--adjustment"}},
	"nohup":    {clear: true},
	"stdbuf":   {clear: true, values: "ioe", long: []string{"--input", "--output", "--error"}},
	"time":     {clear: true, plain: "pvq", others: "of", long: []string{"--output", "--format"}},
	"timeout":  {clear: true, plain: "fpv", values: "ks", long: []string{"--kill-after", "--signal"}, skip: 1},
	"env":      {clear: true, others: "uCSa", long: []string{"--unset", "--chdir", "--split-string", "--argv0"}, assigns: true},
	"sudo":     {others: "CDghpRrtTUu", long: []string{"--user", "--group", "--chdir", "--chroot", "--host", "--prompt", "--role", "--type", "--other-user", "--close-from", "--command-timeout"}, assigns: true, lines: true},
	"doas":     {others: "Cu"},
	"xargs":    {others: "aEeIiLlnPsd", long: []string{"--arg-file", "--delimiter", "--max-lines", "--max-args", "--max-procs", "--max-chars", "--process-slot-var", "--replace"}, appends: true},
	"setsid":   {},
	"ionice":   {others: "cnpPu"},
	"chrt":     {others: "pTPD", skip: 1},
	"taskset":  {skip: 1},
	"chroot":   {skip: 1},
	"unshare":  {others: "SGRw"},
	"nsenter":  {others: "tSGrw"},
	"setpriv":  {},
	"prlimit":  {},
	"strace":   {others: "abeEIoOpPsSuUX"},
	"ltrace":   {others: "aADeFlnopsuwx"},
	"flock":    {others: "wEc", skip: 1, lines: true},
	"watch":    {others: "n", lines: true},
	"parallel": {lines: true, appends: true},
	"script":   {others: "cEIOBTm", lines: true},
	"su":       {lines: true},
	"runuser":  {others: "ugGcs", lines: true},
	"systemd-run": {
		others: "pEut", lines: true,
	},
	"busybox":          {},
	"toybox":           {},
	"caffeinate":       {others: "tw"},
	"fakeroot":         {others: "lsibu"},
	"unbuffer":         {},
	"dbus-run-session": {},
	"proot":            {others: "rbwqkivSR"},
	"bwrap":            {},
	"firejail":         {},
	"chpst":            {others: "uUbeEmdopfcrt/n"},
	"ssh":              {others: "BbcDEeFIiJLlmOopQRSWw"},
	"find":             {},
	"npx":              {lines: true},
}

// shells run the text after -c, a file, or what stdin holds.
var shells = []string{"sh", "bash", "dash", "ash", "ksh", "ksh93", "mksh", "yash", "zsh", "rbash", "rksh", "fish", "csh", "tcsh"}

// interpreters run a file, or what stdin holds. The letters are the options
// after which no file is needed.
var interpreters = map[string]string{
	"python": "cm", "pypy": "cm", "perl": "eE", "ruby": "e", "node": "ep", "nodejs": "ep", "php": "rRBEF",
	"lua": "e", "luajit": "e", "tclsh": "", "wish": "", "expect": "c", "Rscript": "e", "R": "e", "guile": "c",
	"osascript": "e", "pwsh": "c", "ocaml": "e", "ghci": "", "irb": "", "gdb": "", "ed": "", "ex": "",
}

func interpreterOf(name string) (inline string, ok bool) {
	if inline, ok = interpreters[name]; ok {
		return inline, true
	}
	base := strings.TrimRight(name, "0123456789.")
	inline, ok = interpreters[base]
	return inline, ok && base != name
}

// stdinNames are the names under which a program opens its own stdin.
var stdinNames = []string{"-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"}

// shell reads sh's arguments and tells whether nothing but its text matters.
func (r *reader) shell(name string, args []Word, from source) (clearly bool) {
	clearly = true
	text := false
	for i := 0; i < len(args); i++ {
		arg := args[i]
		option := arg.Known && len(arg.Text) > 1 && (arg.Text[0] == '-' || arg.Text[0] == '+')
		if !option || arg.Text == "--" {
			if arg.Known && (arg.Text == "--" || arg.Text == "-") {
				i++
			}
			if i >= len(args) {
				break
			}
			return r.shellOperand(name, args[i], text, from) && clearly
		}
		switch letters := arg.Text[1:]; {
		case arg.Text == "--rcfile" || arg.Text == "--init-file":
			clearly = false
			i++
		case letters[0] == '-':
			clearly = false
		default:
			text = text || strings.ContainsRune(letters, 'c') && arg.Text[0] == '-'
			clearly = clearly && strings.Trim(letters, "ceuofx") == ""
			if strings.HasSuffix(letters, "o") || strings.HasSuffix(letters, "O") {
				i++
			}
			if strings.ContainsRune(letters, 's') && !text {
				r.fed(name, from)
				return false
			}
		}
	}
	if !onlyAsksForHelp(args) {
		r.fed(name, from)
	}
	return false
}

func (r *reader) shellOperand(name string, operand Word, text bool, from source) bool {
	switch {
	case text:
		r.text(operand, from.in(name+" -c"))
		return operand.Known
	case operand.process || operand.Known && slices.Contains(stdinNames, operand.Text):
		r.fed(name, from)
	}
	return false
}

// fed notes a shell that reads its commands from stdin. A here-document that
// can be read is read, for rules that deny or review.
func (r *reader) fed(name string, from source) {
	r.opaque("%s is fed by stdin", name)
	if from.stdin != nil {
		doc := from
		doc.via = name + " <<"
		r.text(makeWord(from.stdin), doc)
	}
}

func (r *reader) interpreter(name, inline string, args []Word) {
	for i := 0; i < len(args); i++ {
		arg := args[i]
		switch {
		case !arg.Known && !arg.process:
			return
		case arg.process || slices.Contains(stdinNames, arg.Text):
			r.opaque("%s is fed by stdin", name)
			return
		case !strings.HasPrefix(arg.Text, "-"):
			return
		case strings.HasPrefix(arg.Text, "--"):
			if option, _, _ := strings.Cut(arg.Text, "="); option == "--eval" || option == "--print" {
				return
			}
		case strings.ContainsAny(arg.Text[1:], inline) && inline != "":
			return
		case arg.Text == "-W" || arg.Text == "-X" || arg.Text == "-I" || arg.Text == "-r":
			i++
		}
	}
	if !onlyAsksForHelp(args) {
		r.opaque("%s is fed by stdin", name)
	}
}

func onlyAsksForHelp(args []Word) bool {
	for _, arg := range args {
		if !arg.Known || !slices.Contains([]string{"--version", "--help", "-V", "-v", "-h"}, arg.Text) {
			return false
		}
	}
	return len(args) > 0
}

// wrapped reads the command in a wrapper's arguments, and tells whether the
// options before it change nothing.
func (r *reader) wrapped(name string, w wrapper, args []Word, from source) (clearly bool) {
	switch name {
	case "find":
		r.find(args, from.in(name))
		return false
	case "command":
		if len(args) > 0 && (args[0].Is(Text("-v")) || args[0].Is(Text("-V"))) {
			return false // only looks it up
		}
	}
	if w.lines {
		defer r.linesAmong(args, from.in(name))
	}
	rest, clearly := w.options(args)
	for w.assigns && len(rest) > 0 && rest[0].Known && isAssignment(rest[0].Text) {
		r.Assigns, clearly = true, false
		rest = rest[1:]
	}
	for range w.skip {
		if len(rest) == 0 || !rest[0].Known {
			return false
		}
		rest = rest[1:]
	}
	switch {
	case name == "env":
		clearly = r.splitString(args, from) && clearly
	case name == "ssh":
		r.remote(rest, from.in(name))
		return false
	case name == "parallel" && len(rest) == 0:
		r.opaque("parallel is fed by stdin")
	}
	if len(rest) == 0 {
		return false
	}
	if w.appends {
		rest = append(replaced(rest, marks(args)), anything("…"))
	}
	r.command(rest, from.in(name))
	return clearly
}

// options leaves out the options at the start. clearly is false where one of
// them is not known to change nothing.
func (w wrapper) options(args []Word) (rest []Word, clearly bool) {
	clearly = true
	for i := 0; i < len(args); i++ {
		arg := args[i]
		switch {
		case !arg.Known:
			return args[i:], false
		case arg.Text == "--":
			return args[i+1:], clearly
		case len(arg.Text) < 2 || arg.Text[0] != '-':
			return args[i:], clearly
		case strings.HasPrefix(arg.Text, "--"):
			clearly = clearly && slices.Contains(w.long, optionName(arg.Text)) && w.values != ""
			if slices.Contains(w.long, arg.Text) {
				i++
			}
		default:
			takes, known := w.cluster(arg.Text[1:])
			clearly = clearly && known
			if takes {
				i++
			}
		}
	}
	return nil, clearly
}

func optionName(arg string) string {
	name, _, _ := strings.Cut(arg, "=")
	return name
}

// cluster reads short options in one word: whether the next word is the last
// one's value, and whether all are known to change nothing.
func (w wrapper) cluster(letters string) (takes, known bool) {
	known = true
	for i := range len(letters) {
		letter := letters[i]
		value := strings.IndexByte(w.values, letter) >= 0
		if value || strings.IndexByte(w.others, letter) >= 0 {
			return i == len(letters)-1, known && value
		}
		known = known && strings.IndexByte(w.plain, letter) >= 0
	}
	return false, known
}

func isAssignment(s string) bool {
	name, _, ok := strings.Cut(s, "=")
	return ok && name != "" && !strings.HasPrefix(name, "-") && !strings.Contains(name, "/")
}

// splitString reads env -S, whose value is split into words like a line's.
func (r *reader) splitString(args []Word, from source) (none bool) {
	for i, arg := range args {
		if !arg.Known || !strings.HasPrefix(arg.Text, "-") {
			return true
		}
		value, joined := strings.CutPrefix(arg.Text, "--split-string=")
		switch {
		case joined:
			r.text(Literal(value), from.in("env -S"))
			return false
		case strings.HasPrefix(arg.Text, "--"):
			continue
		}
		at := strings.IndexByte(arg.Text, 'S')
		if at < 0 {
			continue
		}
		if rest := arg.Text[at+1:]; rest != "" {
			r.text(Literal(rest), from.in("env -S"))
		} else if i+1 < len(args) {
			r.joined(args[i+1:], from.in("env -S"))
		}
		return false
	}
	return true
}

// remote reads what ssh runs: the words after the host, as one line.
func (r *reader) remote(rest []Word, from source) {
	if len(rest) < 2 {
		r.opaque("a remote shell is fed by stdin")
		return
	}
	after, _ := wrappers["ssh"].options(rest[1:])
	if len(after) == 0 {
		r.opaque("a remote shell is fed by stdin")
		return
	}
	r.joined(after, from)
}

var findRuns = []string{"-exec", "-execdir", "-ok", "-okdir"}

func (r *reader) find(args []Word, from source) {
	for i := 0; i < len(args); i++ {
		if !args[i].Known || !slices.Contains(findRuns, args[i].Text) {
			continue
		}
		end := i + 1
		var words []Word
		for ; end < len(args) && !args[end].Is(Text(";")) && !args[end].Is(Text("+")); end++ {
			words = append(words, args[end])
		}
		if len(words) > 0 {
			r.command(replaced(words, []string{"{}"}), from)
		}
		i = end
	}
}

// marks are the texts that xargs and parallel replace by what they read.
func marks(args []Word) []string {
	found := []string{"{}"}
	for i, arg := range args {
		switch rest, ok := strings.CutPrefix(arg.Text, "-I"); {
		case !ok:
			if mark, long := strings.CutPrefix(arg.Text, "--replace="); long && mark != "" {
				found = append(found, mark)
			}
		case rest != "":
			found = append(found, rest)
		case i+1 < len(args):
			found = append(found, args[i+1].Text)
		}
	}
	return found
}

// replaced returns words in which one that holds a mark is unknown.
func replaced(words []Word, marks []string) []Word {
	out := slices.Clone(words)
	for i, w := range out {
		for _, mark := range marks {
			if mark != "" && w.Known && strings.Contains(w.Text, mark) {
				out[i] = anything(w.Text)
			}
		}
	}
	return out
}

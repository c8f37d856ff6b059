package gate

import (
	"fmt"
	"strings"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/gate/shell"
)

// Explanation says how a verdict came about.
type Explanation struct {
	Verdict caisson.Verdict `json:"verdict"`
	// Layers are what each layer said, in order; a layer without objection or
	// rule is left out. The strictest won, unless a grant made it an allow.
	Layers []LayerSays `json:"layers"`
	// Lines are what command lines and programs were read as.
	Lines []LineRead `json:"lines,omitempty"`
	// Paths are the files that rules saw.
	Paths []PathSeen `json:"paths,omitempty"`
}

// LayerSays is what one layer said.
type LayerSays struct {
	Layer  string         `json:"layer"`
	Rule   string         `json:"rule"`
	Ruling caisson.Ruling `json:"ruling"`
	Reason string         `json:"reason,omitempty"`
	File   string         `json:"file,omitempty"` // where the rule is written
	Line   int            `json:"line,omitempty"`
}

// LineRead is what one command line was read as.
type LineRead struct {
	Line     string        `json:"line"`
	Commands []CommandRead `json:"commands"`
	Opaque   []string      `json:"opaque,omitempty"` // why there may be more
	Assigns  bool          `json:"assigns,omitempty"`
}

// CommandRead is one simple command.
type CommandRead struct {
	Words []WordRead `json:"words"`
	Via   string     `json:"via,omitempty"` // what it was read out of
}

// WordRead is one word.
type WordRead struct {
	Text  string `json:"text"`
	Known bool   `json:"known"`
}

// PathSeen is a file that rules saw.
type PathSeen struct {
	Path  string `json:"path"`
	Write bool   `json:"write"`
	Known bool   `json:"known"`
}

// Explain judges as Judge does and says how.
func (p *Policy) Explain(call caisson.Call, subject caisson.Subject) Explanation {
	m := p.matter(call, subject)
	verdict, found := p.decide(m)
	out := Explanation{Verdict: verdict}
	for _, f := range found {
		says := LayerSays{Layer: f.layer, Rule: f.rule, Ruling: f.ruling, Reason: f.reason}
		if f.source != nil {
			says.File, says.Line = f.source.file, f.source.line
		}
		out.Layers = append(out.Layers, says)
	}
	for i, r := range m.readings {
		var line string
		if i < len(call.Facets.Lines) {
			line = call.Facets.Lines[i]
		} else {
			line = fmt.Sprintf("%q", call.Facets.Argv[i-len(call.Facets.Lines)])
		}
		out.Lines = append(out.Lines, lineRead(line, r))
	}
	for _, u := range m.uses {
		out.Paths = append(out.Paths, PathSeen{u.Path, u.Write, u.known})
	}
	return out
}

func lineRead(line string, r shell.Reading) LineRead {
	out := LineRead{Line: line, Opaque: r.Opaque, Assigns: r.Assigns, Commands: []CommandRead{}}
	for _, c := range r.Commands {
		read := CommandRead{Via: c.Via}
		for _, w := range c.Words {
			read.Words = append(read.Words, WordRead{w.Text, w.Known})
		}
		out.Commands = append(out.Commands, read)
	}
	return out
}

// Text renders the explanation for people. What a model wrote is quoted, so
// that it cannot steer a terminal.
func (e Explanation) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s\n", e.Verdict.Ruling, e.Verdict.Reason)
	for _, l := range e.Layers {
		fmt.Fprintf(&b, "  %-10s %-6s %s", l.Layer, l.Ruling, l.Rule)
		if l.Reason != "" {
			fmt.Fprintf(&b, ": %s", l.Reason)
		}
		if l.File != "" {
			fmt.Fprintf(&b, " (%s:%d)", l.File, l.Line)
		}
		b.WriteByte('\n')
	}
	for _, l := range e.Lines {
		fmt.Fprintf(&b, "  line %q runs\n", l.Line)
		for _, c := range l.Commands {
			b.WriteString("    ")
			for i, w := range c.Words {
				if i > 0 {
					b.WriteByte(' ')
				}
				b.WriteString(w.show())
			}
			if c.Via != "" {
				fmt.Fprintf(&b, "   (in %s)", WordRead{c.Via, true}.show())
			}
			b.WriteByte('\n')
		}
		for _, why := range l.Opaque {
			fmt.Fprintf(&b, "    and perhaps more: %s\n", WordRead{why, true}.show())
		}
		if l.Assigns {
			b.WriteString("    it sets variables, so no pattern allows it\n")
		}
	}
	for _, p := range e.Paths {
		use := "reads"
		if p.Write {
			use = "writes"
		}
		fmt.Fprintf(&b, "  %s %s\n", use, WordRead{p.Path, p.Known}.show())
	}
	fmt.Fprintf(&b, "  policy %s\n", e.Verdict.PolicyDigest.Short(12))
	return b.String()
}

// show quotes a word where it needs it; an unknown one is in angle brackets.
func (w WordRead) show() string {
	text := w.Text
	if quoted := fmt.Sprintf("%q", text); text == "" || quoted != `"`+text+`"` || strings.ContainsAny(text, " <>") {
		text = quoted
	}
	if !w.Known {
		text = "<" + text + ">"
	}
	return text
}

// words is the reason of a verdict: which rule, why, and whether another input
// could pass. unasked says that nobody can be asked.
func words(f finding, unasked bool) string {
	because := ""
	if f.reason != "" {
		because = ": " + strings.TrimSuffix(f.reason, ".")
	}
	who := speaker(f)
	switch {
	case f.ruling == caisson.Allow:
		return "allowed by " + who + because
	case unasked:
		return "refused: " + who + " asks for a person's decision, and with preset unattended nobody is asked" + because + otherInput(f)
	case f.ruling == caisson.ReviewIt:
		return who + " asks for a person's decision" + because
	default:
		return "refused by " + who + because + otherInput(f)
	}
}

func otherInput(f finding) string {
	if f.otherInput {
		return ". Another input to this tool could pass."
	}
	return ". No other input to this tool would pass."
}

func speaker(f finding) string {
	switch f.layer {
	case LayerFloor:
		return fmt.Sprintf("rule %q, which no setting opens", f.rule)
	case LayerGrant:
		return fmt.Sprintf("grant %q", f.rule)
	case LayerPreset:
		return "preset " + f.rule
	case LayerReadOnly:
		return "the read-only allowance"
	default:
		return fmt.Sprintf("the %s's rule %q", f.layer, f.rule)
	}
}

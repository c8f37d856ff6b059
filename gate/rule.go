package gate

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/gate/shell"
	"github.com/caisson-run/caisson/internal/strictyaml"
)

// ruleText is a rule as it was written, with lists for scalars. Its canonical
// form is what a rule's digest covers.
type ruleText struct {
	Layer   string         `json:"layer"`
	Name    string         `json:"name"`
	Tools   []string       `json:"tools,omitempty"`
	Effects []string       `json:"effects,omitempty"`
	Command []string       `json:"command,omitempty"`
	Path    []string       `json:"path,omitempty"`
	Write   bool           `json:"write,omitempty"`
	When    string         `json:"when,omitempty"`
	Verdict caisson.Ruling `json:"verdict"`
	Reason  string         `json:"reason,omitempty"`
	Again   bool           `json:"again,omitempty"`
}

type rule struct {
	ruleText
	digest   caisson.Digest
	file     string
	line     int
	unnamed  bool
	tools    []toolPattern
	commands []commandPattern
	paths    []pathPattern
	when     *condition
}

func readRule(v strictyaml.Value, layer string, env *conditions, tools []caisson.ToolSpec) (*rule, error) {
	fields, err := v.Fields(keysOf("rules[]")...)
	if err != nil {
		return nil, err
	}
	r := &rule{ruleText: ruleText{Layer: layer}, file: v.File, line: v.Line()}
	at := map[string]strictyaml.Value{}
	for _, f := range fields {
		at[f.Name] = f.Value
		if err := r.field(f); err != nil {
			return nil, err
		}
	}
	switch {
	case at["verdict"] == strictyaml.Value{}:
		return nil, v.Errorf("a rule without a verdict")
	case layer == LayerRepository && r.Verdict == caisson.Allow:
		return nil, widens(at["verdict"], "allow")
	case r.Write && r.Path == nil:
		return nil, at["write"].Errorf("says something only beside path")
	case r.Again && r.Verdict != caisson.ReviewIt:
		return nil, at["again"].Errorf("says something only with verdict: review")
	}
	if err := r.compile(at, env, tools); err != nil {
		return nil, err
	}
	raw, err := caisson.CanonicalOf(r.ruleText)
	if err != nil {
		return nil, v.Errorf("it has no canonical form: %v", err)
	}
	r.digest = caisson.DigestOf(raw)
	if r.Name == "" {
		// For people; not in the digest, because a line more above changes nothing.
		r.unnamed, r.Name = true, fmt.Sprintf("%s:%d", path.Base(v.File), v.Line())
	}
	return r, nil
}

func (r *rule) field(f strictyaml.Field) (err error) {
	switch f.Name {
	case "name":
		r.Name, err = shown(f.Value, 80)
	case "tools":
		r.Tools, err = f.Value.Strings()
	case "effects":
		r.Effects, err = f.Value.Strings()
	case "command":
		r.Command, err = f.Value.Strings()
	case "path":
		r.Path, err = f.Value.Strings()
	case "write":
		r.Write, err = f.Value.Bool()
	case "when":
		r.When, err = f.Value.String()
	case "reason":
		r.Reason, err = shown(f.Value, 1000)
	case "again":
		r.Again, err = f.Value.Bool()
	case "verdict":
		var text string
		if text, err = f.Value.String(); err != nil {
			return err
		}
		r.Verdict = caisson.Ruling(text)
		if !slices.Contains([]caisson.Ruling{caisson.Allow, caisson.ReviewIt, caisson.Deny}, r.Verdict) {
			err = f.Value.Errorf("must be allow, review or deny, not %q", text)
		}
	}
	return err
}

// shown reads a text that people and models are shown. A repository writes some
// of them: no control character gets through to a terminal.
func shown(v strictyaml.Value, limit int) (string, error) {
	text, err := v.String()
	if err != nil {
		return "", err
	}
	text = strings.TrimSpace(text)
	switch {
	case text == "":
		return "", v.Errorf("is empty")
	case len(text) > limit:
		return "", v.Errorf("is longer than %d bytes", limit)
	case strings.ContainsFunc(text, func(c rune) bool { return !unicode.IsPrint(c) }):
		return "", v.Errorf("must be one line of printable text")
	}
	return text, nil
}

// compile reads the patterns, and names the item that is wrong.
func (r *rule) compile(at map[string]strictyaml.Value, env *conditions, tools []caisson.ToolSpec) error {
	items := func(key string, read func(text string) error) error {
		v, given := at[key]
		if !given {
			return nil
		}
		values, err := v.Items()
		if err != nil {
			return err
		}
		for _, item := range values {
			text, err := item.String()
			if err != nil {
				return err
			}
			if err := read(text); err != nil {
				return item.Errorf("%q: %v", text, err)
			}
		}
		return nil
	}
	if err := items("tools", func(s string) error { return r.addTool(s, tools) }); err != nil {
		return err
	}
	if err := items("effects", knownEffect); err != nil {
		return err
	}
	if err := items("command", func(s string) error {
		p, err := parseCommandPattern(s)
		r.commands = append(r.commands, p)
		return err
	}); err != nil {
		return err
	}
	if err := items("path", func(s string) error {
		p, err := parsePathPattern(s)
		r.paths = append(r.paths, p)
		return err
	}); err != nil {
		return err
	}
	return items("when", func(s string) (err error) {
		r.when, err = env.compile(s)
		return err
	})
}

func knownEffect(s string) error {
	known := []caisson.Effect{caisson.EffectRead, caisson.EffectIdempotent, caisson.EffectReconcilable, caisson.EffectUnsafe}
	if !slices.Contains(known, caisson.Effect(s)) {
		return fmt.Errorf("no such effect; there are %s, %s, %s, %s", known[0], known[1], known[2], known[3])
	}
	return nil
}

func (r *rule) addTool(s string, tools []caisson.ToolSpec) error {
	p, err := parseToolPattern(s)
	if err != nil {
		return err
	}
	r.tools = append(r.tools, p)
	if r.Verdict != caisson.Allow || tools == nil {
		return nil
	}
	if !slices.ContainsFunc(tools, func(t caisson.ToolSpec) bool { return p.match(t.Ref) }) {
		return fmt.Errorf("no such tool%s", nearest(s, tools))
	}
	return nil
}

// nearest says which tool was perhaps meant.
func nearest(s string, tools []caisson.ToolSpec) string {
	for _, t := range tools {
		if name := t.Ref.String(); strings.EqualFold(name, s) || t.Ref.Name == s {
			return fmt.Sprintf("; there is %q", name)
		}
	}
	return ""
}

// toolPattern is a name, or server/name, in which * stands for any text. A
// pattern without a server never matches a server's tool.
type toolPattern struct {
	remote       bool
	server, name shell.Glob
}

func parseToolPattern(s string) (toolPattern, error) {
	server, name, remote := strings.Cut(s, "/")
	if !remote {
		server, name = "", s
	}
	if name == "" || remote && server == "" || strings.ContainsAny(s, " \t\n") {
		return toolPattern{}, fmt.Errorf("not a tool's name: write NAME or SERVER/NAME, with * for any text")
	}
	return toolPattern{remote, shell.ParseGlob(server), shell.ParseGlob(name)}, nil
}

func (p toolPattern) match(ref caisson.ToolRef) bool {
	return p.remote == (ref.Server != "") && p.server.Match(ref.Server) && p.name.Match(ref.Name)
}

// byInput tells whether the rule looks at more than tool and effect, so that
// another input to the same tool could fare otherwise.
func (r *rule) byInput() bool { return r.commands != nil || r.paths != nil || r.when != nil }

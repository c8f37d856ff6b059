package declared

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/caisson-run/caisson"
)

// Template is one argument of a verb's program: text with {name} in it, where
// "{{" and "}}" stand for the braces themselves.
type Template struct {
	parts []part
	group int // of those that are left out together; 0: by itself
}

// Grouped is the template as one of a group: where one of the group is left out,
// all are. Groups count from 1.
func (t Template) Grouped(group int) Template {
	t.group = group
	return t
}

// Group is the group of the template; 0: it is by itself.
func (t Template) Group() int { return t.group }

// Fields are the names of the values that it has in it.
func (t Template) Fields() []string {
	var names []string
	for _, p := range t.parts {
		if p.name != "" {
			names = append(names, p.name)
		}
	}
	return names
}

// Mark stands in [Template.Shape] for each value.
const Mark = "\x00"

// Shape is the argument with a Mark in place of each value: no other text of an
// argument can hold one.
func (t Template) Shape() string {
	var b strings.Builder
	for _, p := range t.parts {
		if b.WriteString(p.text); p.name != "" {
			b.WriteString(Mark)
		}
	}
	return b.String()
}

// part is text, or the name of a value.
type part struct {
	text string
	name string
}

var fieldName = regexp.MustCompile(`\A[a-z][a-z0-9_]{0,40}\z`)

// ValidField tells whether a field of an input can be called so.
func ValidField(name string) bool {
	return fieldName.MatchString(name) && !slices.Contains(sceneNames(), name)
}

// Names that every template can use.
const (
	SceneBranch    = "branch"    // of the workspace
	SceneWorkspace = "workspace" // path of its tree
	SceneRun       = "run"
	SceneTask      = "task" // empty where there is none
)

func sceneNames() []string { return []string{SceneBranch, SceneWorkspace, SceneRun, SceneTask} }

// ParseTemplate reads an argument; fields are the names of the input's. The
// program itself, the first argument, has no values in it.
func ParseTemplate(text string, fields []string, first bool) (Template, error) {
	var t Template
	if strings.ContainsRune(text, 0) {
		return t, fmt.Errorf("an argument cannot hold a NUL byte")
	}
	for rest := text; rest != ""; {
		at := strings.IndexAny(rest, "{}")
		if at < 0 {
			t.parts = append(t.parts, part{text: rest})
			break
		}
		if at > 0 {
			t.parts = append(t.parts, part{text: rest[:at]})
		}
		if at+1 < len(rest) && rest[at+1] == rest[at] {
			t.parts = append(t.parts, part{text: rest[at : at+1]})
			rest = rest[at+2:]
			continue
		}
		name, after, closed := strings.Cut(rest[at+1:], "}")
		switch {
		case rest[at] == '}' || !closed:
			return t, fmt.Errorf("%q has a brace without its other; write {{ or }} for one that is meant", text)
		case first:
			return t, fmt.Errorf("the program has no values in it: %q", text)
		case !slices.Contains(fields, name) && !slices.Contains(sceneNames(), name):
			return t, fmt.Errorf("there is no field {%s}; there are %s", name, strings.Join(append(slices.Clone(fields), sceneNames()...), ", "))
		}
		t.parts = append(t.parts, part{name: name})
		rest = after
	}
	if first && text == "" {
		return t, fmt.Errorf("there is no program")
	}
	return t, nil
}

// Fill returns the argument. A value may not begin an argument with "-": what a
// program takes for an option is the declaration's to say. One that stands
// behind "--name=" can hold anything.
func (t Template) Fill(values map[string]string) (string, error) {
	var b strings.Builder
	for _, p := range t.parts {
		if p.name == "" {
			b.WriteString(p.text)
			continue
		}
		if b.Len() == 0 && strings.HasPrefix(values[p.name], "-") {
			return "", caisson.Errorf(caisson.CodeCallInvalid, "%s begins with %q, which the program could take for an option", p.name, "-").
				WithHint("Begin it with another character; or the verb's author writes the argument as --name={%s}.", p.name)
		}
		b.WriteString(values[p.name])
	}
	return b.String(), nil
}

// String is the argument as the config has it.
func (t Template) String() string {
	var b strings.Builder
	for _, p := range t.parts {
		if p.name != "" {
			b.WriteString("{" + p.name + "}")
			continue
		}
		b.WriteString(strings.NewReplacer("{", "{{", "}", "}}").Replace(p.text))
	}
	return b.String()
}

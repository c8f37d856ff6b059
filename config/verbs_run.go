package config

import (
	"slices"
	"strings"

	"github.com/caisson-run/caisson/gate/shell"
	"github.com/caisson-run/caisson/internal/strictyaml"
	"github.com/caisson-run/caisson/verb/declared"
)

// readVerbRun reads the program and its arguments. A list among them are
// arguments that are left out together.
func readVerbRun(v strictyaml.Value, input []declared.Field) ([]declared.Template, error) {
	items, err := v.List()
	if err != nil {
		return nil, err
	}
	names := make([]string, len(input))
	for i, f := range input {
		names[i] = f.Name
	}
	var out []declared.Template
	read := func(item strictyaml.Value, group int) error {
		text, err := item.String()
		if err != nil {
			return err
		}
		t, err := declared.ParseTemplate(text, names, len(out) == 0)
		if err != nil {
			return item.Errorf("%v", err)
		}
		out = append(out, t.Grouped(group))
		return nil
	}
	groups := 0
	for _, item := range items {
		together := []strictyaml.Value{item}
		group := 0
		if item.IsList() && len(out) > 0 {
			if together, err = item.List(); err != nil {
				return nil, err
			}
			groups++
			group = groups
		}
		for _, one := range together {
			if err := read(one, group); err != nil {
				return nil, err
			}
		}
	}
	if len(out) == 0 {
		return nil, v.Errorf("there is no program")
	}
	return out, nil
}

// checkVerbRun looks at the arguments together with the fields: whether each
// field has a place, none is where a program would read it as its text, and none
// that may be lacking leaves half of something behind.
func checkVerbRun(verb declared.Verb, run, input strictyaml.Value) error {
	for _, f := range verb.Input {
		if !slices.ContainsFunc(verb.Run, func(t declared.Template) bool { return slices.Contains(t.Fields(), f.Name) }) {
			return input.Errorf("nothing is done with %s: run has no {%s}", f.Name, f.Name)
		}
	}
	shapes := make([]string, len(verb.Run))
	for i, t := range verb.Run {
		shapes[i] = t.Shape()
	}
	code := shell.Code(shapes)
	lacking := map[int]bool{} // groups with a value that may be lacking
	for i, t := range verb.Run {
		fields := t.Fields()
		if by, is := code[i]; is && len(fields) > 0 {
			return run.Errorf("%q: {%s} would be program text of %s, and what a request says never is. "+
				`Give it as an argument behind a text that is fixed, as in [sh, -c, 'echo "$1"', sh, "{%s}"]`, t, fields[0], by, fields[0])
		}
		lacks := slices.IndexFunc(fields, verb.MayLack)
		if lacks < 0 {
			continue
		}
		lacking[t.Group()] = true
		if t.Group() == 0 && i > 1 && verb.Run[i-1].Group() == 0 && isOption(shapes[i-1]) {
			return run.Errorf("%q is left out where {%s} is not given, and %q before it would take the next argument for its value. "+
				"Write both as a list, which is left out as a whole: [%q, %q]", t, fields[lacks], verb.Run[i-1], verb.Run[i-1], t)
		}
	}
	for _, t := range verb.Run {
		if t.Group() > 0 && !lacking[t.Group()] {
			return run.Errorf("%q is in a list, which is for arguments that may be left out: none of its fields is optional", t)
		}
	}
	return nil
}

// isOption tells whether an argument looks like an option that takes the next one
// for its value.
func isOption(shape string) bool {
	return strings.HasPrefix(shape, "-") && shape != "--" && !strings.Contains(shape, "=")
}

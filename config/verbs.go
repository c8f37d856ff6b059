package config

import (
	"regexp"
	"strings"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/strictyaml"
	"github.com/caisson-run/caisson/verb/declared"
)

// verbText is the name of a declared verb: words with a point between them, so
// that none can be taken for a tool of Caisson's own.
var verbText = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,30}(\.[a-z][a-z0-9_-]{0,30}){1,3}$`)

// maxVerbs bounds what a sandbox is told of.
const maxVerbs = 64

func readVerbs(c *Config, v strictyaml.Value) error {
	c.Verbs = nil
	fields, err := v.Fields()
	if err != nil {
		return err
	}
	if len(fields) > maxVerbs {
		return v.Errorf("%d verbs; at most %d can be declared", len(fields), maxVerbs)
	}
	for _, f := range fields {
		switch {
		case !verbText.MatchString(f.Name):
			return f.Value.Errorf("%q is not the name of a verb: write words with points between them, as gh.pr.create", f.Name)
		case !(caisson.ToolRef{Name: f.Name}).Declared():
			first, _, _ := strings.Cut(f.Name, ".")
			return f.Value.Errorf("verbs that begin with %s. are Caisson's own", first)
		}
		verb, err := readVerb(f.Name, f.Value)
		if err != nil {
			return err
		}
		c.Verbs = append(c.Verbs, verb)
	}
	return nil
}

func readVerb(name string, v strictyaml.Value) (declared.Verb, error) {
	out := declared.Verb{
		Name: name, Dir: declared.DirWorkspace, Verdict: caisson.ReviewIt,
		Timeout: declared.DefaultTimeout, Output: declared.DefaultOutput, Memory: declared.DefaultMemory,
	}
	fields, err := v.Fields("description", "input", "run", "dir", "verdict", "timeout", "output", "memory", "env")
	if err != nil {
		return out, err
	}
	at := map[string]strictyaml.Value{}
	for _, f := range fields {
		at[f.Name] = f.Value
		switch f.Name {
		case "description":
			if out.Description, err = f.Value.String(); err == nil && len(out.Description) > 4000 {
				err = f.Value.Errorf("a description has at most 4000 bytes")
			}
		case "input":
			out.Input, err = readVerbInput(f.Value)
		case "run": // when the fields are known
		case "dir":
			out.Dir, err = oneOf(f.Value, declared.DirHostRepo, declared.DirWorkspace)
		case "verdict":
			var text string
			text, err = oneOf(f.Value, string(caisson.Allow), string(caisson.ReviewIt), string(caisson.Deny))
			out.Verdict = caisson.Ruling(text)
		case "timeout":
			err = within(f.Value, durationOf, (*int64)(&out.Timeout), int64(time.Second), int64(declared.MostTimeout), "1s to 24h")
		case "output":
			err = within(f.Value, sizeOf, &out.Output, 1<<10, declared.MostOutput, "1KiB to 1MiB")
		case "memory":
			err = within(f.Value, sizeOf, &out.Memory, declared.LeastMemory, declared.MostMemory, "128MiB to 1TiB")
		case "env":
			out.Env, err = listOf(f.Value, func(item strictyaml.Value, text string) error {
				if !envText.MatchString(text) {
					return item.Errorf("%q is not the name of a variable; its value is taken from your environment", text)
				}
				return nil
			})
		}
		if err != nil {
			return out, err
		}
	}
	run, given := at["run"]
	if !given {
		return out, v.Errorf("the verb %s has no program: run is missing", name)
	}
	if out.Run, err = readVerbRun(run, out.Input); err != nil {
		return out, err
	}
	if err := checkVerbRun(out, run, at["input"]); err != nil {
		return out, err
	}
	if out.Dir == declared.DirHostRepo {
		if program := out.Run[0].String(); strings.Contains(program, "/") && !strings.HasPrefix(program, "/") {
			return out, run.Errorf("%q would be looked for in the repository; write a program of your PATH, or an absolute one", program)
		}
		return out, nil
	}
	if _, given := at["memory"]; given {
		return out, at["memory"].Errorf("a verb that runs inside has the sandbox's memory; memory is for those with dir: host-repo")
	}
	if len(out.Env) > 0 {
		return out, v.Errorf("a verb that runs inside gets the sandbox's environment; env is for those with dir: host-repo")
	}
	return out, nil
}

func within(v strictyaml.Value, parse func(strictyaml.Value) (int64, error), to *int64, least, most int64, text string) error {
	n, err := parse(v)
	if err == nil && (n < least || n > most) {
		err = v.Errorf("is out of range: %s", text)
	}
	*to = n
	return err
}

func readVerbInput(v strictyaml.Value) ([]declared.Field, error) {
	fields, err := v.Fields()
	if err != nil {
		return nil, err
	}
	var out []declared.Field
	for _, f := range fields {
		if !declared.ValidField(f.Name) {
			return nil, f.Value.Errorf("%q is not the name of a field: write a-z, 0-9 and _, and not branch, workspace, run or task", f.Name)
		}
		field, err := readVerbField(f.Name, f.Value)
		if err != nil {
			return nil, err
		}
		out = append(out, field)
	}
	return out, nil
}

func verbTexts(verbs []declared.Verb) []string {
	out := make([]string, len(verbs))
	for i, v := range verbs {
		out[i] = v.Name
	}
	return out
}

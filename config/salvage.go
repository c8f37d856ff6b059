package config

import (
	"regexp"
	"runtime"

	"github.com/caisson-run/caisson/internal/strictyaml"
)

// stateLine is how the setting that Salvage looks for is written where the rest of
// the file cannot be read.
var stateLine = regexp.MustCompile(`(?m)^["']?state_dir["']?[ \t]*:.*$`)

// Salvage returns what holds for a command that only lists or ends things where
// Load has an error: the built-in settings, and of the user's file the state
// directory, without which nothing would be found. One that cannot be read either
// is the built-in one.
func Salvage(user File) Config {
	c := defaults(runtime.NumCPU())
	root, err := strictyaml.Parse(user.Name, user.Data)
	if err != nil {
		lines := stateLine.FindAll(user.Data, 2)
		if len(lines) != 1 {
			return c
		}
		if root, err = strictyaml.Parse(user.Name, lines[0]); err != nil {
			return c
		}
	}
	fields, err := root.Fields()
	if err != nil {
		return c
	}
	for _, f := range fields {
		if f.Name != "state_dir" {
			continue
		}
		if read := c; readStateDir(&read, f.Value) == nil {
			c.StateDir, c.origins["state_dir"] = read.StateDir, user.Name
		}
	}
	return c
}

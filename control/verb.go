package control

import "github.com/caisson-run/caisson"

// VerbOf is the verb by which a tool is asked for from inside: its own name,
// unless it has a method Verb that tells another.
func VerbOf(tool caisson.Tool) string {
	if named, is := tool.(interface{ Verb() string }); is {
		return named.Verb()
	}
	return tool.Spec().Ref.Name
}

package gate

import (
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
)

// Field is a key of a policy file.
type Field struct {
	Key      string // dotted; [] after a list
	Type     string
	Required bool
	Doc      string
}

// Variable is a name in a when: expression.
type Variable struct {
	Name    string
	Type    string
	Doc     string
	celType *cel.Type
}

// Reference returns all keys of a policy file. The reader knows exactly these.
func Reference() []Field {
	return []Field{
		{"version", "1", false, "Version of the format."},
		{"rules", "list", false, "The rules, in order. Inside a layer the first that matches speaks."},
		{"rules[].name", "string", false, "A name of its own, shown in refusals, reviews and the audit trail. Default: file and line."},
		{"rules[].tools", "string or list", false, "Tools it speaks of: NAME for tools of Caisson, SERVER/NAME for an MCP server's; * stands for any text. Default: all. In an allow rule each must fit a tool that there is."},
		{"rules[].effects", "string or list", false, "Effects it speaks of: read, idempotent, reconcilable, unsafe. Default: all."},
		{"rules[].command", "string or list", false, "Command patterns: words, * for any text inside a word, a last ** for any further words. An allow rule needs every command of the line to match a pattern fully, the program bare or in a trusted directory, all words known, no variable set, nothing opaque, and no redirection into a file unless path covers it. Deny and review match a program's base name and the other words in order with anything between; a word that is not known matches anything."},
		{"rules[].path", "string or list", false, "Path patterns, segment by segment: * inside a segment, ** for any segments; relative to the workspace, or absolute; one that begins with ** fits anywhere. An allow rule needs every path of the call to match; deny and review, one. Targets of redirections are paths; links are not resolved."},
		{"rules[].write", "true or false", false, "With path: only writes. Default: reads and writes."},
		{"rules[].when", "string", false, "A CEL expression that must hold. If it cannot be evaluated, deny and review match and allow does not."},
		{"rules[].verdict", "allow, review or deny", true, "What it says. A repository's rule may not say allow."},
		{"rules[].reason", "string", false, "Why, for people and for the model."},
		{"rules[].again", "true or false", false, "With review: no grant stands for it, and an approval that another rule led to is asked anew. Default: false."},
		{"read_only_servers", "string or list", false, "User's policy only. MCP servers whose word is taken for which of their tools only read."},
		{"trusted_dirs", "string or list", false, "User's policy only. Directories beside " + strings.Join(trustedDirs, ", ") + " whose programs a bare program name in an allow pattern means."},
	}
}

// Variables returns all names in a when: expression.
func Variables() []Variable { return variables() }

// keysOf returns the keys directly below a parent.
func keysOf(parent string) []string {
	var keys []string
	for _, f := range Reference() {
		at := strings.LastIndexByte(f.Key, '.')
		above, key := "", f.Key
		if at >= 0 {
			above, key = f.Key[:at], f.Key[at+1:]
		}
		if above == parent {
			keys = append(keys, key)
		}
	}
	return slices.Clip(keys)
}

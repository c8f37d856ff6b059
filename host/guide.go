package host

import (
	"fmt"
	"strings"

	"github.com/caisson-run/caisson/control"
)

// guide is what an agent in the sandbox should know, as text that it can read:
// where it is, and how it asks for what its boundary does not allow.
func (s *session) guide() string {
	var b strings.Builder
	b.WriteString("# You work in a Caisson sandbox\n\n")
	fmt.Fprintf(&b, "What you can write is %s and your home; both are kept.", s.workDir())
	if branch := s.branch(); branch != "" {
		fmt.Fprintf(&b, " Commits on the branch %s are brought\nhome to the person's repository.", branch)
	}
	b.WriteString(` Nothing else outside can be reached, unless you ask for it:

    caisson-guest ctl VERB --json '{"field": "value"}'

prints an answer as JSON and ends with 0 when it was done, 1 when it failed, 75
when it may be tried again, 76 when nobody knows whether it was done (do not just
do it again), and 77 when it was refused. A person may have to be asked first:
then the command waits; with --detach it prints the request's id at once, and
"caisson-guest ctl wait ID" waits for the answer later. "caisson-guest ctl verbs VERB"
prints the schema of a verb's input.

| verb | what it does |
|---|---|
`)
	for _, t := range s.verbs() {
		fmt.Fprintf(&b, "| %s | %s |\n", control.VerbOf(t), strings.ReplaceAll(strings.Join(strings.Fields(t.Spec().Description), " "), "|", `\|`))
	}
	b.WriteString(s.taskGuide())
	return b.String()
}

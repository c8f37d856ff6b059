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
	b.WriteString(s.keptGuide())
	if branch := s.branch(); branch != "" {
		fmt.Fprintf(&b, " Commits on the branch %s are brought\nhome to the person's repository.", branch)
	}
	b.WriteString(s.reachGuide())
	b.WriteString(`, unless you ask for it:

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

// keptGuide says what can be written, and whether it stays.
func (s *session) keptGuide() string {
	kept := "both are kept"
	if s.ws == nil {
		kept = "neither is kept,\nboth end with the sandbox"
	}
	return fmt.Sprintf("What you can write is %s and your home; %s.", s.workDir(), kept)
}

// reachGuide says what can be reached outside without asking here.
func (s *session) reachGuide() string {
	if s.network == nil {
		return " Nothing else outside can be reached"
	}
	rules, _, err := s.networkRules(s.config)
	if err != nil || len(rules) == 0 { // each host is asked about
		return " A person may open a host that you try to\nreach over the network. Nothing else outside can be reached"
	}
	var b strings.Builder
	b.WriteString("\n\nOpen to the network, when this sandbox was opened, were these hosts; a person may open\nand close others:\n\n")
	for _, r := range rules {
		fmt.Fprintf(&b, "- %s\n", r)
	}
	return b.String() + "\nNothing else outside can be reached"
}

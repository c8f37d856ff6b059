package cli

import (
	"encoding/json"
	"fmt"

	"github.com/caisson-run/caisson"
	"github.com/spf13/cobra"
)

// harmless tells whether a command only lists or ends things: it goes on where a
// config cannot be read, as nothing that a config says could make it do more. A
// person whose config is broken can still see and stop what runs.
func harmless(cmd *cobra.Command) bool {
	switch cmd.Name() {
	case "ls", "log", "stop", "cancel":
		return true
	case "show":
		return cmd.Parent().Name() != "config" // what that shows is the config
	case "reject":
		return !cmd.Flags().Changed("resume")
	case "rm":
		return cmd.Parent().Name() == "sandbox" && !cmd.Flags().Changed("purge") // the workspace stays
	}
	return false
}

// sayUnread tells, once, that a config was not read, and what that means.
func (a *app) sayUnread(why error) {
	e := caisson.AsError(why)
	if a.unread[e.Error()] {
		return
	}
	a.unread = map[string]bool{e.Error(): true}
	if a.json {
		raw, _ := json.Marshal(map[string]any{"warning": e}) // as in fail
		fmt.Fprintf(a.err, "%s\n", raw)
		return
	}
	fmt.Fprintf(a.err, "caisson: the config was not read: %s [%s]\n  What this command does goes on without it. %s\n", printable(e.Error()), e.Code, printable(e.HintText()))
}

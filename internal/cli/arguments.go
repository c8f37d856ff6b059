package cli

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// texts is the annotation of a command whose arguments, from that one on, are text
// or a program's own, and may be empty.
const texts = "texts"

func textsFrom(n int) map[string]string { return map[string]string{texts: strconv.Itoa(n)} }

// mayBeEmpty are the flags that hold a text for people.
var mayBeEmpty = map[string]bool{"description": true, "source": true, "reason": true}

// miscounted says which argument is missing or too much, where check has not let
// them pass.
func miscounted(cmd *cobra.Command, check cobra.PositionalArgs, args []string) error {
	for n := len(args) - 1; n >= 0; n-- {
		if check(cmd, args[:n]) == nil {
			return fmt.Errorf("argument %q is one too many", args[n])
		}
	}
	return errors.New("an argument is missing")
}

// given refuses an argument or flag that is there and empty. It is a script's
// variable without a value: to go on as if it was not there would do the thing to
// something else, as to the only workspace, the whole tree or any digest.
func given(cmd *cobra.Command, args []string) error {
	from := len(args)
	if n, err := strconv.Atoi(cmd.Annotations[texts]); err == nil {
		from = n
	}
	if at := cmd.ArgsLenAtDash(); at >= 0 && at < from && cmd.Annotations[texts] != "" { // after -- it is a program's
		from = at
	}
	for i, arg := range args[:min(from, len(args))] {
		if arg == "" {
			return fmt.Errorf("argument %d is empty: has a variable no value?", i+1)
		}
	}
	var err error
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if f.Value.Type() == "string" && f.Value.String() == "" && !mayBeEmpty[f.Name] {
			err = errors.Join(err, fmt.Errorf("--%s is empty: give it a value, or leave it out", f.Name))
		}
	})
	return err
}

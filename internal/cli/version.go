package cli

import (
	"fmt"
	"io"
	"runtime"

	"github.com/caisson-run/caisson"
	"github.com/spf13/cobra"
)

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			v := struct {
				Version string `json:"version"`
				Go      string `json:"go"`
				System  string `json:"system"`
			}{caisson.Version, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
			return a.print(v, func(w io.Writer) { fmt.Fprintln(w, versionLine()) })
		},
	}
}

// versionLine is what "version" and --version print.
func versionLine() string {
	return fmt.Sprintf("caisson %s (%s, %s/%s)", caisson.Version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

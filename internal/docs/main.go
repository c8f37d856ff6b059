// Command docs writes the reference pages that are generated: they say what the
// program says, because they come from the same tables. `make docs` runs it and
// CI fails when a page differs.
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"github.com/caisson-run/caisson/internal/atomicfile"
)

func main() {
	if err := generate("docs"); err != nil {
		fmt.Fprintln(os.Stderr, "docs:", err)
		os.Exit(1) //nolint:forbidigo // this is main
	}
}

func generate(dir string) error {
	pages := map[string]func(*bytes.Buffer) error{
		"errors.md":    errorsPage,
		"states.md":    statesPage,
		"config.md":    configPage,
		"policy.md":    policyPage,
		"cli.md":       cliPage,
		"isolation.md": isolationPage,
	}
	for name, write := range pages {
		var out bytes.Buffer
		if err := write(&out); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
		if err := atomicfile.Write(filepath.Join(dir, name), out.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

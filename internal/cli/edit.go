package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/scratch"
)

// edit lets the person change an input in their editor. Nil means that it was
// left as it is.
func (a *app) edit(ctx context.Context, input json.RawMessage) (json.RawMessage, error) {
	dir, err := scratch.New()
	if err != nil {
		return nil, caisson.Errorf(caisson.CodeWriteFailed, "make a file to edit: %w", err)
	}
	defer dir.Close() //nolint:errcheck // what cannot be removed now, the next command removes
	path := filepath.Join(dir.Path(), "input.json")
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, input, "", "  "); err != nil {
		return nil, err
	}
	pretty.WriteByte('\n')
	if err := os.WriteFile(path, pretty.Bytes(), 0o600); err != nil { //nolint:forbidigo // a scratch file for the editor: a crash may lose it
		return nil, caisson.Errorf(caisson.CodeWriteFailed, "write the file to edit: %w", err)
	}
	editor := a.io.Env("VISUAL")
	if editor == "" {
		editor = a.io.Env("EDITOR")
	}
	if editor == "" {
		editor = "vi"
	}
	// The editor is the person's own program on the person's own terminal, and
	// may be a line with arguments: their shell reads it, as git's does.
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", editor+` "$1"`, "edit", path) //nolint:forbidigo // needs the terminal in this session
	cmd.Stdin, cmd.Stdout, cmd.Stderr = a.io.In, a.io.Out, a.io.Err
	if err := cmd.Run(); err != nil {
		return nil, caisson.Errorf(caisson.CodeUsage, "the editor %q: %w", editor, err).WithHint("Set EDITOR to a program that is there.")
	}
	edited, err := os.ReadFile(path)
	if err != nil {
		return nil, caisson.Errorf(caisson.CodeUsage, "read what was edited: %w", err)
	}
	if bytes.Equal(edited, pretty.Bytes()) {
		return nil, nil
	}
	if !json.Valid(edited) {
		return nil, caisson.Errorf(caisson.CodeUsage, "what was edited is not JSON; nothing was decided")
	}
	return edited, nil
}

package tool

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/caisson-run/caisson"
)

const shellSchema = `{
	"type": "object",
	"properties": {
		"command": {"type": "string", "minLength": 1, "description": "Shell line to run in the workspace."},
		"timeout": {"type": "integer", "minimum": 1, "maximum": 3600, "default": 120, "description": "Seconds until it is stopped."},
		"description": {"type": "string", "maxLength": 200, "default": "", "description": "What it does, in a few words, for the person who looks on."}
	},
	"required": ["command"],
	"additionalProperties": false
}`

// shellTool runs a shell line inside the boundary.
type shellTool struct{ Options }

type shellInput struct {
	Command     string `json:"command"`
	Timeout     int    `json:"timeout"`
	Description string `json:"description"`
}

func (t *shellTool) Spec() caisson.ToolSpec {
	return caisson.ToolSpec{
		Ref: caisson.ToolRef{Name: "shell"},
		Description: `Run a shell line in the workspace and wait for its end. There is no terminal and no input. ` +
			`Processes that it leaves running are ended with it. Long output is shown from its beginning and its end.`,
		Schema: json.RawMessage(shellSchema), Effect: caisson.EffectUnsafe, Reach: caisson.ReachInside,
	}
}

func (t *shellTool) Facets(input json.RawMessage) (caisson.Facets, error) {
	in, err := decode[shellInput](input)
	if err != nil {
		return caisson.Facets{}, err
	}
	if strings.ContainsRune(in.Command, 0) {
		return caisson.Facets{}, caisson.Errorf(caisson.CodeCallInvalid, "a command cannot hold a NUL byte")
	}
	return caisson.Facets{Lines: []string{in.Command}}, nil
}

func (t *shellTool) Hold(ctx context.Context, call caisson.Call, effect caisson.EffectID) (caisson.Executor, error) {
	in, err := decode[shellInput](call.Input)
	if err != nil {
		return nil, err
	}
	return HoldCommand(ctx, CommandOptions{
		Sandbox: t.Sandbox,
		Command: caisson.Command{Line: in.Command, Deadline: time.Duration(in.Timeout) * time.Second},
		Call:    call.ID, Effect: effect, Output: t.Output, SpillDir: t.SpillDir, SpillFloor: t.SpillFloor, Hide: t.Hide,
	})
}

// Package agent runs other people's agents inside a sandbox.
//
// A plain command is one recorded call: what it does inside is bounded by the
// sandbox, and what it wants of the world outside it asks for on the control
// channel, where each request is a call of its own. Its steps inside are not
// recorded one by one, which is what running an agent through the built-in
// loop gives beyond this.
package agent

import (
	"context"
	"encoding/json"
	"io"
	"strings"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/tool"
)

// CommandName is the tool's name in calls and policy.
const CommandName = "agent.command"

const commandSchema = `{
	"type": "object",
	"$defs": {
		"bytes": {
			"anyOf": [
				{"type": "string"},
				{"type": "object", "properties": {"$base64": {"type": "string"}}, "required": ["$base64"], "additionalProperties": false}
			]
		}
	},
	"properties": {
		"argv": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/bytes"}, "description": "The program and its arguments."},
		"pty": {"type": "boolean", "default": false, "description": "Run it on a terminal."}
	},
	"required": ["argv"],
	"additionalProperties": false
}`

// CommandInput is the input of the tool.
type CommandInput struct {
	Argv []caisson.Bytes `json:"argv"`
	PTY  bool            `json:"pty"`
}

// Options are what a command works with. Streams are passed through as they
// are; making a terminal raw, and undoing it, is its owner's part.
type Options struct {
	Sandbox caisson.Sandbox
	// Stdin is /dev/null unless given. It is read until it ends or the
	// command does; a read that is under way then is not waited for.
	Stdin io.Reader
	// Stdout and Stderr may be nil. With a terminal, Stderr is unused. One that
	// fails is no longer written to; the command goes on.
	Stdout, Stderr io.Writer
	// Size is the first size of the terminal, and Resize brings others until
	// it is closed. Both are unused without a terminal.
	Size   caisson.Winsize
	Resize <-chan caisson.Winsize
	Env    []string // KEY=value, over the sandbox's
	// Output, SpillDir, SpillFloor and Hide are as for the built-in tools: the record of
	// what went to the streams.
	Output     int
	SpillDir   string
	SpillFloor int64
	Hide       func(string) string
}

// Command is any program as the agent. It implements caisson.Tool.
type Command struct{ opts Options }

// NewCommand returns the tool.
func NewCommand(opts Options) *Command { return &Command{opts} }

// Spec implements caisson.Tool.
func (c *Command) Spec() caisson.ToolSpec {
	return caisson.ToolSpec{
		Ref:         caisson.ToolRef{Name: CommandName},
		Description: "Run a program as the agent.",
		Schema:      json.RawMessage(commandSchema), Effect: caisson.EffectUnsafe, Reach: caisson.ReachInside,
	}
}

// Facets implements caisson.Tool.
func (c *Command) Facets(input json.RawMessage) (caisson.Facets, error) {
	_, argv, err := decode(input)
	if err != nil {
		return caisson.Facets{}, err
	}
	return caisson.Facets{Argv: [][]string{argv}}, nil
}

func decode(input json.RawMessage) (in CommandInput, argv []string, err error) {
	if err := json.Unmarshal(input, &in); err != nil {
		return in, nil, caisson.Errorf(caisson.CodeCallInvalid, "the input is not valid: %w", err)
	}
	for _, arg := range in.Argv {
		if strings.ContainsRune(string(arg), 0) {
			return in, nil, caisson.Errorf(caisson.CodeCallInvalid, "an argument cannot hold a NUL byte")
		}
		argv = append(argv, string(arg))
	}
	if len(argv) == 0 || argv[0] == "" {
		return in, nil, caisson.Errorf(caisson.CodeCallInvalid, "there is no program to run")
	}
	return in, argv, nil
}

// Hold implements caisson.Tool.
func (c *Command) Hold(ctx context.Context, call caisson.Call, effect caisson.EffectID) (caisson.Executor, error) {
	in, argv, err := decode(call.Input)
	if err != nil {
		return nil, err
	}
	cmd := caisson.Command{Argv: argv, Env: c.opts.Env, Stdin: c.opts.Stdin, Stdout: c.opts.Stdout, Stderr: c.opts.Stderr}
	var resize <-chan caisson.Winsize
	if in.PTY {
		size := c.opts.Size
		if size.Rows == 0 || size.Cols == 0 {
			size = caisson.Winsize{Rows: 24, Cols: 80} // what terminals are before they say otherwise
		}
		cmd.PTY, resize = &size, c.opts.Resize
	}
	return tool.HoldCommand(ctx, tool.CommandOptions{
		Sandbox: c.opts.Sandbox, Command: cmd, Call: call.ID, Effect: effect,
		Output: c.opts.Output, SpillDir: c.opts.SpillDir, SpillFloor: c.opts.SpillFloor, Hide: c.opts.Hide, Resize: resize,
	})
}

package tool

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"

	"github.com/caisson-run/caisson"
)

// Options are what the built-in tools work with.
type Options struct {
	Sandbox caisson.Sandbox
	// Workspace is the absolute path of the tree inside the boundary, against
	// which paths are cleaned.
	Workspace string
	// Seen is what the run has seen of files. Its own for every run.
	Seen *Seen
	// SpillDir is a directory on the host for whole outputs; empty keeps none.
	SpillDir string
	// SpillFloor is how many bytes those leave free on their disk.
	SpillFloor int64
	// Hide is as of CommandOptions.
	Hide func(string) string
	// Output is the most bytes of text of one result; 0 means 40,000.
	Output int
}

// defaultOutput is about ten thousand tokens.
const defaultOutput = 40_000

func (o Options) output() int {
	if o.Output <= 0 {
		return defaultOutput
	}
	return o.Output
}

// Builtin returns the built-in tools in the order in which models see them.
func Builtin(o Options) []caisson.Tool {
	if o.Seen == nil {
		o.Seen = NewSeen()
	}
	return []caisson.Tool{
		&shellTool{o}, &readTool{o}, &writeTool{o}, &editTool{o}, &globTool{o}, &grepTool{o}, AskTool{},
	}
}

// resolve returns path absolute and cleaned. Links are not resolved: whether it
// stays inside is for the boundary to say.
func (o Options) resolve(path string) (string, error) {
	if path == "" {
		return "", caisson.Errorf(caisson.CodePathInvalid, "the path is empty")
	}
	if strings.ContainsRune(path, 0) {
		return "", caisson.Errorf(caisson.CodePathInvalid, "a path cannot hold a NUL byte")
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(o.Workspace, path)
	}
	return filepath.Clean(path), nil
}

// show returns a path as people and models read it: relative in the workspace.
func (o Options) show(path string) string {
	if rel, err := filepath.Rel(o.Workspace, path); err == nil && filepath.IsLocal(rel) {
		path = rel
	}
	return strings.ToValidUTF8(path, "\uFFFD")
}

// decode reads an input that was prepared against the tool's schema.
func decode[T any](input json.RawMessage) (T, error) {
	var v T
	if err := json.Unmarshal(input, &v); err != nil {
		return v, caisson.Errorf(caisson.CodeCallInvalid, "the input is not valid: %w", err)
	}
	return v, nil
}

// doing is an executor whose effect is a request to the guest: it cannot outlive
// the sandbox, whose end ends it, so it has no identity of its own.
type doing func(ctx context.Context) (caisson.Result, error)

func (doing) Identity() *caisson.ProcessIdentity { return nil }
func (doing) Drop()                              {}

func (do doing) Open(ctx context.Context) (caisson.Result, error) {
	result, err := do(ctx)
	if err != nil && ctx.Err() != nil {
		return stopped(ctx), nil
	}
	return result, err
}

// stopped is the result of what was stopped before it did anything.
func stopped(ctx context.Context) caisson.Result {
	cause := causeOf(ctx)
	if cause == caisson.CauseDeadline {
		err := caisson.Errorf(caisson.CodeDeadline, "its time was over before it was done")
		return caisson.Result{Outcome: caisson.OutcomeFailed, Cause: cause, Text: err.Error(), Summary: "out of time", Error: err}
	}
	err := caisson.Errorf(caisson.CodeCancelled, "it was stopped before it was done")
	return caisson.Result{Outcome: caisson.OutcomeCancelled, Cause: cause, Text: err.Error(), Summary: "stopped", Error: err}
}

// causeOf returns why ctx ended, which is never guessed.
func causeOf(ctx context.Context) caisson.Cause {
	var cause *caisson.CauseError
	if errors.As(context.Cause(ctx), &cause) {
		return cause.Cause
	}
	return caisson.CauseUnknown
}

// data marshals a result's data, which always can be.
func data(v any) json.RawMessage {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return raw
}

package tool

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/caisson-run/caisson"
)

const writeSchema = `{
	"type": "object",
	"properties": {
		"path": {"type": "string", "minLength": 1, "description": "File to write, relative to the workspace or absolute."},
		"content": {"type": "string", "description": "The whole new content, exactly."}
	},
	"required": ["path", "content"],
	"additionalProperties": false
}`

const editSchema = `{
	"type": "object",
	"properties": {
		"path": {"type": "string", "minLength": 1, "description": "File to edit, relative to the workspace or absolute."},
		"edits": {
			"type": "array", "minItems": 1, "maxItems": 100,
			"items": {
				"type": "object",
				"properties": {
					"old": {"type": "string", "minLength": 1, "description": "The text to replace, exactly as in the file, without line numbers."},
					"new": {"type": "string", "description": "The text in its place."},
					"all": {"type": "boolean", "default": false, "description": "Replace every occurrence. Otherwise old must occur exactly once."}
				},
				"required": ["old", "new"],
				"additionalProperties": false
			}
		}
	},
	"required": ["path", "edits"],
	"additionalProperties": false
}`

// writeTool creates a file, or replaces one that was read.
type writeTool struct{ Options }

type writeInput struct {
	Path    string `json:"path"`
	Content string `json:"content"`
}

// editTool replaces passages of a file that was read.
type editTool struct{ Options }

type editInput struct {
	Path  string `json:"path"`
	Edits []edit `json:"edits"`
}

// Writing again after a crash is safe only while nobody else has changed the
// file, and whether somebody has cannot be told from the outside: so both are
// reconcilable, by what the file holds, and not idempotent.

func (t *writeTool) Spec() caisson.ToolSpec {
	return caisson.ToolSpec{
		Ref: caisson.ToolRef{Name: "write"},
		Description: `Create a file, or replace one that was read before, with exactly this content. ` +
			`Missing directories are made. To change part of a file, use edit.`,
		Schema: json.RawMessage(writeSchema), Effect: caisson.EffectReconcilable, Reach: caisson.ReachInside,
	}
}

func (t *editTool) Spec() caisson.ToolSpec {
	return caisson.ToolSpec{
		Ref: caisson.ToolRef{Name: "edit"},
		Description: `Replace exact passages of a file that was read before. The edits are made one after another, ` +
			`all of them or none. Each old text must occur exactly once, unless all is set.`,
		Schema: json.RawMessage(editSchema), Effect: caisson.EffectReconcilable, Reach: caisson.ReachInside,
	}
}

func (t *writeTool) Facets(input json.RawMessage) (caisson.Facets, error) {
	in, err := decode[writeInput](input)
	if err != nil {
		return caisson.Facets{}, err
	}
	return t.pathFacets(in.Path, true)
}

func (t *editTool) Facets(input json.RawMessage) (caisson.Facets, error) {
	in, err := decode[editInput](input)
	if err != nil {
		return caisson.Facets{}, err
	}
	return t.pathFacets(in.Path, true)
}

// plan is a wanted change of one file.
type plan struct {
	path   string
	create bool // may make the file
	// next returns the new content.
	next func(before []byte) ([]byte, error)
	// made tells whether content is the change's, made of a file of this digest.
	made func(content []byte, before caisson.Digest) bool
}

func (t *writeTool) plan(input json.RawMessage) (plan, error) {
	in, err := decode[writeInput](input)
	if err != nil {
		return plan{}, err
	}
	path, err := t.resolve(in.Path)
	return plan{
		path: path, create: true,
		next: func([]byte) ([]byte, error) { return []byte(in.Content), nil },
		made: func(content []byte, _ caisson.Digest) bool { return string(content) == in.Content },
	}, err
}

func (t *editTool) plan(input json.RawMessage) (plan, error) {
	in, err := decode[editInput](input)
	if err != nil {
		return plan{}, err
	}
	path, err := t.resolve(in.Path)
	return plan{
		path: path,
		next: func(before []byte) ([]byte, error) { return apply(before, in.Edits) },
		made: func(content []byte, before caisson.Digest) bool { return undo(content, in.Edits, before) },
	}, err
}

func (t *writeTool) Hold(_ context.Context, call caisson.Call, _ caisson.EffectID) (caisson.Executor, error) {
	p, err := t.plan(call.Input)
	if err != nil {
		return nil, err
	}
	return doing(func(ctx context.Context) (caisson.Result, error) { return t.change(ctx, p) }), nil
}

func (t *editTool) Hold(_ context.Context, call caisson.Call, _ caisson.EffectID) (caisson.Executor, error) {
	p, err := t.plan(call.Input)
	if err != nil {
		return nil, err
	}
	return doing(func(ctx context.Context) (caisson.Result, error) { return t.change(ctx, p) }), nil
}

// Preview implements caisson.Previewer: the change as a unified diff, or why it
// could not be made as things are.
func (t *writeTool) Preview(ctx context.Context, call caisson.Call) (string, error) {
	p, err := t.plan(call.Input)
	if err != nil {
		return "", err
	}
	return t.preview(ctx, p)
}

// Preview implements caisson.Previewer, as for write.
func (t *editTool) Preview(ctx context.Context, call caisson.Call) (string, error) {
	p, err := t.plan(call.Input)
	if err != nil {
		return "", err
	}
	return t.preview(ctx, p)
}

// Reconcile implements caisson.Reconciler.
func (t *writeTool) Reconcile(ctx context.Context, call caisson.Call, _ caisson.EffectID) (caisson.Result, bool, error) {
	p, err := t.plan(call.Input)
	if err != nil {
		return caisson.Result{}, false, err
	}
	return t.reconcile(ctx, p)
}

// Reconcile implements caisson.Reconciler.
func (t *editTool) Reconcile(ctx context.Context, call caisson.Call, _ caisson.EffectID) (caisson.Result, bool, error) {
	p, err := t.plan(call.Input)
	if err != nil {
		return caisson.Result{}, false, err
	}
	return t.reconcile(ctx, p)
}

// current is a file before a change.
type current struct {
	data    []byte
	digest  caisson.Digest
	missing bool
}

// look reads a file that is to be changed and refuses where the run has not
// seen what is there now.
func (o Options) look(ctx context.Context, p plan) (current, error) {
	content, err := o.readFile(ctx, p.path)
	if caisson.CodeOf(err) == caisson.CodeNotFound && p.create {
		return current{missing: true}, nil
	}
	if err != nil {
		return current{}, err
	}
	if content.Info.Size > int64(len(content.Data)) {
		return current{}, caisson.Errorf(caisson.CodePathInvalid, "%s has %d bytes, more than can be changed at once", o.show(p.path), content.Info.Size).
			WithHint("Change it with a program, through shell.")
	}
	now := current{data: content.Data, digest: caisson.DigestOf(content.Data)}
	seen, ok := o.Seen.Digest(p.path)
	if !ok {
		return current{}, caisson.Errorf(caisson.CodeFileNotRead, "%s is there and was not read", o.show(p.path))
	}
	if seen != now.digest {
		return current{}, caisson.Errorf(caisson.CodeFileChanged, "%s was changed since it was read", o.show(p.path))
	}
	return now, nil
}

func (o Options) change(ctx context.Context, p plan) (caisson.Result, error) {
	now, err := o.look(ctx, p)
	if err != nil {
		return caisson.Result{}, err
	}
	next, err := p.next(now.data)
	if err != nil {
		return caisson.Result{}, err
	}
	opts := caisson.WriteOptions{Expect: now.digest}
	if now.missing {
		opts = caisson.WriteOptions{Create: true, Parents: true}
	}
	if _, err := o.Sandbox.Files().Write(ctx, p.path, next, opts); err != nil {
		if ctx.Err() != nil && o.holds(ctx, p.path, next) {
			return o.changed(p, now, next), nil
		}
		if caisson.CodeOf(err) == caisson.CodeSandboxLost {
			return caisson.Result{}, caisson.Errorf(caisson.CodeOutcomeUnknown, "whether %s was written cannot be told: %w", o.show(p.path), err)
		}
		return caisson.Result{}, err
	}
	return o.changed(p, now, next), nil
}

// holds tells whether a file has this content after a write whose answer was not
// waited for: a result that was produced before a cancel took effect is kept.
func (o Options) holds(ctx context.Context, path string, want []byte) bool {
	// Long enough to read 64 MiB from a busy sandbox, too short to hold up a cancel.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	content, err := o.readFile(ctx, path)
	return err == nil && bytes.Equal(content.Data, want)
}

// changed is the result of a change that was made, and notes it as seen.
func (o Options) changed(p plan, now current, next []byte) caisson.Result {
	digest := caisson.DigestOf(next)
	o.Seen.put(p.path, digest)
	c := compare(o.show(p.path), now.data, next, now.missing)
	text := fmt.Sprintf("Wrote %s (%d bytes, %s).", o.show(p.path), len(next), c.summary())
	if now.missing {
		text = fmt.Sprintf("Created %s (%d bytes, %s).", o.show(p.path), len(next), c.summary())
	}
	return caisson.Result{Text: text, Summary: c.summary(), Data: data(fileData{
		Path: p.path, Digest: digest, Before: now.digest, Size: int64(len(next)), Added: c.added, Removed: c.removed,
	})}
}

func (o Options) preview(ctx context.Context, p plan) (string, error) {
	now, err := o.look(ctx, p)
	if err == nil {
		var next []byte
		if next, err = p.next(now.data); err == nil {
			return compare(o.show(p.path), now.data, next, now.missing).unified, nil
		}
	}
	if ctx.Err() != nil {
		return "", err
	}
	return fmt.Sprintf("This would not be done: %v.\n", err), nil
}

// reconcile tells from the file whether a change was made. Writes are atomic, so
// it was made whole or not at all; and where the file is neither as it was seen
// nor as it would be, somebody else was there, and nothing can be told.
func (o Options) reconcile(ctx context.Context, p plan) (caisson.Result, bool, error) {
	before, seen := o.Seen.Digest(p.path)
	content, err := o.readFile(ctx, p.path)
	switch {
	case caisson.CodeOf(err) == caisson.CodeNotFound:
		if seen {
			return caisson.Result{}, false, nil // it was there, and somebody removed it
		}
		return notMade(o.show(p.path)), true, nil
	case err != nil:
		return caisson.Result{}, false, err
	case content.Info.Size > int64(len(content.Data)):
		return caisson.Result{}, false, nil
	}
	digest := caisson.DigestOf(content.Data)
	switch {
	case p.made(content.Data, before):
		o.Seen.put(p.path, digest)
		return caisson.Result{
			Text:    fmt.Sprintf("Wrote %s (%d bytes); found so after an interruption.", o.show(p.path), len(content.Data)),
			Summary: "found done after an interruption",
			Data:    data(fileData{Path: p.path, Digest: digest, Before: before, Size: int64(len(content.Data))}),
		}, true, nil
	case digest == before:
		return notMade(o.show(p.path)), true, nil
	default:
		return caisson.Result{}, false, nil
	}
}

func notMade(path string) caisson.Result {
	err := caisson.Errorf(caisson.CodeNotExecuted, "the change of %s was interrupted before it was made; the file is as it was", path)
	return caisson.Result{Outcome: caisson.OutcomeFailed, Text: err.Error() + ". It can be made again.", Summary: "not made", Error: err}
}

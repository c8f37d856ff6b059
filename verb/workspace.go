//go:build linux

package verb

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/workspace"
)

// Tree is the workspace of a sandbox, for verbs that act on it.
type Tree struct {
	Workspaces *workspace.Workspaces
	Workspace  caisson.Workspace
	Sandbox    caisson.Sandbox
	// Import brings home what was committed inside.
	Import func(ctx context.Context) error
	// Turn does work for which this process, and git outside, need time that no limit
	// of the sandbox bounds; nil does it at once.
	Turn func(ctx context.Context, do func() error) error
}

func (t Tree) turn(ctx context.Context, do func() error) error {
	if t.Turn == nil {
		return do()
	}
	return t.Turn(ctx, do)
}

// Push sends the branch to a remote. It implements caisson.Tool.
type Push struct {
	Tree Tree
	// Remotes are those that can be pushed to. Their addresses are values of the
	// input, so that what is approved is where it goes.
	Remotes []workspace.Remote
}

type pushInput struct {
	Commit  string `json:"commit"`
	Address string `json:"address"`
}

// Spec implements caisson.Tool.
func (p Push) Spec() caisson.ToolSpec {
	address := map[string]any{"type": "string", "description": "Where to: the address of a remote of the person's repository."}
	var all []string
	for _, r := range p.Remotes {
		if !slices.Contains(all, r.Address) {
			all = append(all, r.Address)
		}
	}
	if len(all) > 0 {
		address["enum"], address["default"] = all, all[0]
	}
	schema := data(map[string]any{
		"type": "object", "required": []string{"commit"}, "additionalProperties": false,
		"properties": map[string]any{
			"commit":  map[string]any{"type": "string", "pattern": "^[0-9a-f]{40}([0-9a-f]{24})?$", "description": "The commit that HEAD is at, in full: it is what is pushed."},
			"address": address,
		},
	})
	return caisson.ToolSpec{
		Ref:         caisson.ToolRef{Name: "git.push"},
		Description: "Have the host push the branch of this workspace, with the person's credentials. Nothing is forced.",
		Schema:      schema, Effect: caisson.EffectReconcilable, Reach: caisson.ReachOutside,
	}
}

// Facets implements caisson.Tool.
func (Push) Facets(json.RawMessage) (caisson.Facets, error) { return caisson.Facets{}, nil }

func (p Push) options(input json.RawMessage) (workspace.PushOptions, error) {
	var in pushInput
	if err := json.Unmarshal(input, &in); err != nil {
		return workspace.PushOptions{}, caisson.Errorf(caisson.CodeCallInvalid, "read the input: %w", err)
	}
	return workspace.PushOptions{Address: in.Address, Commit: in.Commit}, nil
}

// Preview implements caisson.Previewer.
func (p Push) Preview(ctx context.Context, call caisson.Call) (string, error) {
	plan, err := p.plan(ctx, call)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Pushes %s, with your credentials.\n", plan.Text())
	for _, c := range plan.Commits {
		fmt.Fprintf(&b, "  %.12s %s (%s)\n", c.ID, c.Subject, c.Author)
	}
	return b.String(), nil
}

func (p Push) plan(ctx context.Context, call caisson.Call) (workspace.Pushed, error) {
	opts, err := p.options(call.Input)
	if err != nil {
		return workspace.Pushed{}, err
	}
	var plan workspace.Pushed
	err = p.Tree.turn(ctx, func() (err error) {
		if err = p.Tree.Import(ctx); err == nil {
			plan, err = p.Tree.Workspaces.PlanPush(ctx, p.Tree.Workspace, opts)
		}
		return err
	})
	return plan, err
}

// Hold implements caisson.Tool.
func (p Push) Hold(ctx context.Context, call caisson.Call, _ caisson.EffectID) (caisson.Executor, error) {
	if _, err := p.plan(ctx, call); err != nil {
		return nil, err
	}
	return work(func(ctx context.Context) (caisson.Result, error) {
		opts, err := p.options(call.Input)
		if err != nil {
			return caisson.Result{}, err
		}
		done, err := p.Tree.Workspaces.Push(ctx, p.Tree.Workspace, opts)
		if err != nil {
			return caisson.Result{}, err
		}
		return pushed(done), nil
	}), nil
}

func pushed(p workspace.Pushed) caisson.Result {
	return caisson.Result{Text: "Pushed " + p.Text() + ".", Summary: "pushed", Data: data(p)}
}

// Reconcile implements caisson.Reconciler.
func (p Push) Reconcile(ctx context.Context, call caisson.Call, _ caisson.EffectID) (caisson.Result, bool, error) {
	opts, err := p.options(call.Input)
	if err != nil {
		return caisson.Result{}, false, err
	}
	there, err := p.Tree.Workspaces.IsPushed(ctx, p.Tree.Workspace, opts)
	if err != nil || !there {
		return caisson.Result{}, false, err // it may be under way still at the remote
	}
	return caisson.Result{Text: "The remote's branch is at that commit.", Summary: "pushed"}, true, nil
}

// Snapshot records the tree as it is. It implements caisson.Tool.
type Snapshot struct{ Tree Tree }

const snapshotSchema = `{
	"type": "object",
	"properties": {"why": {"type": "string", "maxLength": 200, "default": "asked from inside", "description": "What it is for, in a line."}},
	"required": [],
	"additionalProperties": false
}`

// Spec implements caisson.Tool.
func (Snapshot) Spec() caisson.ToolSpec {
	return caisson.ToolSpec{
		Ref:         caisson.ToolRef{Name: "workspace.snapshot"},
		Description: "Record the files of the workspace as they are now, also those that are not committed, so that they can be restored.",
		Schema:      json.RawMessage(snapshotSchema), Effect: caisson.EffectIdempotent, Reach: caisson.ReachInside,
	}
}

// Facets implements caisson.Tool.
func (Snapshot) Facets(json.RawMessage) (caisson.Facets, error) { return caisson.Facets{}, nil }

// Hold implements caisson.Tool.
func (s Snapshot) Hold(_ context.Context, call caisson.Call, _ caisson.EffectID) (caisson.Executor, error) {
	var in struct {
		Why string `json:"why"`
	}
	if err := json.Unmarshal(call.Input, &in); err != nil {
		return nil, caisson.Errorf(caisson.CodeCallInvalid, "read the input: %w", err)
	}
	return work(func(ctx context.Context) (caisson.Result, error) {
		var made workspace.Snapshot
		err := s.Tree.turn(ctx, func() (err error) {
			made, err = s.Tree.Workspaces.SnapshotNow(ctx, s.Tree.Workspace, s.Tree.Sandbox, in.Why)
			return err
		})
		if err != nil {
			return caisson.Result{}, err
		}
		return caisson.Result{Text: "The workspace is recorded as " + made.Commit + ".", Summary: "recorded", Data: data(made)}, nil
	}), nil
}

// work is an effect that ends with this process.
type work func(ctx context.Context) (caisson.Result, error)

// Identity implements caisson.Executor.
func (work) Identity() *caisson.ProcessIdentity { return nil }

// Open implements caisson.Executor.
func (w work) Open(ctx context.Context) (caisson.Result, error) { return w(ctx) }

// Drop implements caisson.Executor.
func (work) Drop() {}

func data(v any) json.RawMessage {
	raw, _ := json.Marshal(v) // of texts: cannot fail
	return raw
}

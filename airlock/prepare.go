package airlock

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/schema"
)

// skeleton is what is known of a request before its input was looked at; it
// stands in the record where preparing did not succeed.
func (d *Door) skeleton(r Request) caisson.Call {
	call := caisson.Call{
		ID: r.ID, Run: d.drive.Run, Turn: r.Turn, Parent: r.Parent, ProviderID: r.ProviderID, Binding: d.binding,
		Tool: caisson.ToolRef{Name: r.Name}, Effect: caisson.EffectUnsafe, Reach: caisson.ReachOutside,
	}
	if r.Tool == nil {
		return call
	}
	spec := r.Tool.Spec()
	call.Tool = spec.Ref
	if spec.Effect != "" && !spec.CallsTools {
		call.Effect = spec.Effect
	}
	if spec.Reach != "" {
		call.Reach = spec.Reach
	}
	return call
}

// invalid is the call as it stands in the record when its input is not valid:
// the input is then the text as written, as a JSON string, bounded.
func (d *Door) invalid(r Request) (caisson.Call, error) {
	call := d.skeleton(r)
	written, err := caisson.CanonicalOf(boundText(r.Input))
	if err != nil {
		return call, fmt.Errorf("write input: %w", err)
	}
	call.Input = written
	return sealed(call)
}

// sealed gives a call, whose input is canonical, its digests.
func sealed(call caisson.Call) (caisson.Call, error) {
	var err error
	if call.InputDigest, err = call.SumInput(); err != nil {
		return call, fmt.Errorf("sum input: %w", err)
	}
	if call.Digest, err = call.Sum(); err != nil {
		return call, fmt.Errorf("sum call: %w", err)
	}
	return call, nil
}

// prepare makes the exact value that judge, person and doer will see. An error
// says why the call cannot be made so; it is for whoever asked for it.
func (d *Door) prepare(ctx context.Context, r Request, input json.RawMessage) (caisson.Call, error) {
	call := d.skeleton(r)
	if r.Tool == nil {
		return call, caisson.Errorf(caisson.CodeToolUnknown, "there is no tool %q", r.Name)
	}
	s, err := d.lock.schema(r.Tool.Spec().Schema)
	if err != nil {
		return call, fmt.Errorf("compile schema of %s: %w", call.Tool, err)
	}
	call.SchemaDigest = s.Digest()
	made, err := s.Prepare(input)
	if err != nil {
		return call, err
	}
	if made.Repaired && r.Strict {
		return call, caisson.Errorf(caisson.CodeCallInvalid, "the input is not JSON")
	}
	if made.Cut && call.Effect != caisson.EffectRead {
		return call, caisson.Errorf(caisson.CodeCallInvalid, "the input was cut: its text ends in the middle of a value").
			WithHint("Send the whole call again; make its input shorter if it was cut for its length.")
	}
	if call.Input, err = d.hooked(ctx, s, call.Tool, made.Input); err != nil {
		return call, err
	}
	if call.Facets, err = r.Tool.Facets(call.Input); err != nil {
		return call, caisson.Errorf(caisson.CodeCallInvalid, "%w", err)
	}
	call, err = sealed(call)
	pass("airlock.prepared")
	return call, err
}

// hooked passes the input through the hooks. If one changed it, all see the new
// value once more, and none may then change it again.
func (d *Door) hooked(ctx context.Context, s *schema.Schema, tool caisson.ToolRef, input json.RawMessage) (json.RawMessage, error) {
	once, name, err := d.hookPass(ctx, s, tool, input)
	if err != nil || name == "" {
		return once, err
	}
	twice, name, err := d.hookPass(ctx, s, tool, once)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(once, twice) {
		return nil, caisson.Errorf(caisson.CodePrepareUnstable, "hook %q changes the call each time it sees it", name)
	}
	return once, nil
}

// hookPass returns the value after all hooks, and the last one that changed it.
func (d *Door) hookPass(ctx context.Context, s *schema.Schema, tool caisson.ToolRef, input json.RawMessage) (json.RawMessage, string, error) {
	changed := ""
	for _, h := range d.lock.o.Hooks {
		// A hook gets a copy: the value may change only through its answer.
		out, err := h.Before(ctx, tool, bytes.Clone(input))
		if err != nil {
			if ctx.Err() != nil {
				return nil, "", errNotLooked
			}
			return nil, "", caisson.Errorf(caisson.CodeRefused, "hook %q refuses it: %w", h.Name(), err)
		}
		if out == nil {
			continue
		}
		made, err := s.Prepare(out)
		if err == nil && made.Repaired {
			err = errors.New("it is not JSON")
		}
		if err != nil {
			return nil, "", caisson.Errorf(caisson.CodeCallInvalid, "hook %q made an input that is not valid: %w", h.Name(), err)
		}
		if !bytes.Equal(made.Input, input) {
			input, changed = made.Input, h.Name()
		}
	}
	return input, changed, nil
}

// errNotLooked says that the batch ended while a call was looked at: nothing is
// known of it, and nothing is recorded.
var errNotLooked = errors.New("the batch has ended")

// ValidateModified tells whether input can replace the input of a reviewed
// call: whether it is valid after the schema that the person was shown. To be
// asked before a decision of kind modify is recorded.
func ValidateModified(review caisson.Review, input json.RawMessage) error {
	s, err := schema.Compile(review.Schema)
	if err != nil {
		return fmt.Errorf("compile schema of review %s: %w", review.ID, err)
	}
	made, err := s.Prepare(input)
	if err == nil && made.Repaired {
		err = caisson.Errorf(caisson.CodeCallInvalid, "the replacement is not JSON")
	}
	return err
}

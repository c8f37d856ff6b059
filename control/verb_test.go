package control_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/caisson-run/caisson"
)

// policy is a judge: a ruling for each verb, allow where there is none.
type policy map[string]caisson.Ruling

func (policy) PolicyDigest() caisson.Digest { return "test" }

func (p policy) Judge(call caisson.Call, _ caisson.Subject) caisson.Verdict {
	ruling, is := p[call.Tool.Name]
	if !is {
		ruling = caisson.Allow
	}
	return caisson.Verdict{Ruling: ruling, Layer: "user", Rule: "rule-" + call.Tool.Name, Reason: "the test says so", PolicyDigest: "test"}
}

// verb is one whose effect is a line in a file: a counter outside of all that is
// tested.
type verb struct {
	name    string
	effect  caisson.Effect
	effects string
	open    func(ctx context.Context, call caisson.Call) (caisson.Result, error)
	process *caisson.ProcessIdentity
	holds   *atomic.Int64
}

const anySchema = `{"type":"object","properties":{"text":{"type":"string"}},"additionalProperties":false}`

func (v verb) Spec() caisson.ToolSpec {
	return caisson.ToolSpec{Ref: caisson.ToolRef{Name: v.name}, Description: "Counts.", Schema: json.RawMessage(anySchema), Effect: v.effect}
}

func (v verb) Facets(json.RawMessage) (caisson.Facets, error) { return caisson.Facets{}, nil }

func (v verb) Hold(_ context.Context, call caisson.Call, _ caisson.EffectID) (caisson.Executor, error) {
	if v.holds != nil {
		v.holds.Add(1)
	}
	return execution{v, call}, nil
}

type execution struct {
	verb verb
	call caisson.Call
}

func (e execution) Identity() *caisson.ProcessIdentity { return e.verb.process }
func (e execution) Drop()                              {}

func (e execution) Open(ctx context.Context) (caisson.Result, error) {
	f, err := os.OpenFile(e.verb.effects, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return caisson.Result{}, err
	}
	_, err = fmt.Fprintln(f, e.call.ID)
	if err := errors.Join(err, f.Close()); err != nil {
		return caisson.Result{}, err
	}
	if e.verb.open != nil {
		return e.verb.open(ctx, e.call)
	}
	return caisson.Result{Text: "did " + string(e.call.Input)}, nil
}

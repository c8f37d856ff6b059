package host

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/agent"
	"github.com/caisson-run/caisson/gate"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/schema"
	"github.com/caisson-run/caisson/tool"
	"github.com/caisson-run/caisson/verb"
	"github.com/caisson-run/caisson/verb/declared"
)

// PolicyAnswer is what policy says of a call that is not made.
type PolicyAnswer struct {
	Ruling      caisson.Ruling    `json:"ruling,omitempty"` // empty: no call was asked about
	Files       []string          `json:"files"`
	Preset      gate.Preset       `json:"preset"`
	Digest      caisson.Digest    `json:"policy_digest"`
	Explanation *gate.Explanation `json:"explanation,omitempty"`
	Text        string            `json:"-"`
}

// CheckPolicy loads the policy in force where the person stands and says what
// it says of a call: in the boundary that a run would have here.
func (h *Host) CheckPolicy(ctx context.Context, q PolicyQuestion) (PolicyAnswer, error) {
	repo, err := h.repository(ctx, h.dir, "")
	if err != nil {
		return PolicyAnswer{}, err
	}
	c, err := h.configWith(repo)
	if err != nil {
		return PolicyAnswer{}, err
	}
	policy, err := h.policyWith(cmp.Or(q.Preset, c.Preset), repo, c.Verbs)
	if err != nil {
		return PolicyAnswer{}, err
	}
	answer := PolicyAnswer{Files: policy.Files(), Preset: policy.Preset(), Digest: policy.PolicyDigest()}
	if q.Input == nil {
		answer.Text = fmt.Sprintf("Policy is valid: preset %s, %s.\nDigest %s", answer.Preset, filesText(answer.Files), answer.Digest)
		return answer, nil
	}
	call, err := h.askedCall(q, c.Verbs)
	if err != nil {
		return PolicyAnswer{}, err
	}
	_, iso, err := sandbox.Choose(ctx, h.engines, c.Engine, c.Require)
	if err != nil {
		return PolicyAnswer{}, err
	}
	explained := policy.Explain(call, caisson.Subject{Workspace: h.dir, Isolation: iso})
	answer.Explanation, answer.Ruling, answer.Text = &explained, explained.Verdict.Ruling, explained.Text()
	return answer, nil
}

func filesText(files []string) string {
	if len(files) == 0 {
		return "no policy files"
	}
	return strings.Join(files, ", ")
}

// askedCall prepares the call that a question is about, as the airlock would.
func (h *Host) askedCall(q PolicyQuestion, verbs []declared.Verb) (caisson.Call, error) {
	tools := append(allTools(tool.Options{Workspace: h.dir}), allVerbs(verbs, verb.Scene{Workspace: h.dir, Repo: h.dir})...)
	i := slices.IndexFunc(tools, func(t caisson.Tool) bool { return t.Spec().Ref.String() == q.Tool })
	if i < 0 {
		return caisson.Call{}, caisson.Errorf(caisson.CodeToolUnknown, "there is no tool %q", q.Tool)
	}
	spec := tools[i].Spec()
	s, err := schema.Compile(spec.Schema)
	if err != nil {
		return caisson.Call{}, err
	}
	prepared, err := s.Prepare(q.Input)
	if err != nil {
		return caisson.Call{}, err
	}
	call := caisson.Call{ID: "check.1.1", Tool: spec.Ref, Effect: spec.Effect, Reach: spec.Reach, SchemaDigest: s.Digest(), Input: prepared.Input}
	if call.Facets, err = tools[i].Facets(call.Input); err != nil {
		return call, err
	}
	if call.InputDigest, err = call.SumInput(); err != nil {
		return call, err
	}
	call.Digest, err = call.Sum()
	return call, err
}

// allTools are the tools of a run, the foreign agent's, and the network's.
func allTools(opts tool.Options) []caisson.Tool {
	return append(tool.Builtin(opts), agent.NewCommand(agent.Options{}), networkTool{})
}

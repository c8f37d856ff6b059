package tool

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/caisson-run/caisson"
)

const askSchema = `{
	"type": "object",
	"properties": {
		"question": {"type": "string", "minLength": 1, "maxLength": 4000, "description": "What to ask, so that it can be answered without more context."},
		"options": {"type": "array", "maxItems": 10, "uniqueItems": true, "default": [], "items": {"type": "string", "minLength": 1, "maxLength": 200}, "description": "Answers to choose from. The person may also write their own."},
		"multi": {"type": "boolean", "default": false, "description": "More than one option may be chosen."}
	},
	"required": ["question"],
	"additionalProperties": false
}`

// AskTool asks the person a question. The whole effect is the answer's row in
// the ledger, so it is never held and never run.
type AskTool struct{}

type askInput struct {
	Question string   `json:"question"`
	Options  []string `json:"options"`
	Multi    bool     `json:"multi"`
}

// Spec implements caisson.Tool.
func (AskTool) Spec() caisson.ToolSpec {
	return caisson.ToolSpec{
		Ref: caisson.ToolRef{Name: "ask"},
		Description: `Ask the person you work for, when what to do depends on something only they can decide. ` +
			`The work waits for the answer; ask rarely, and everything at once.`,
		Schema: json.RawMessage(askSchema), Effect: caisson.EffectIdempotent, Reach: caisson.ReachLedger,
	}
}

// Facets implements caisson.Tool: a question uses nothing.
func (AskTool) Facets(json.RawMessage) (caisson.Facets, error) { return caisson.Facets{}, nil }

// Hold implements caisson.Tool.
func (AskTool) Hold(context.Context, caisson.Call, caisson.EffectID) (caisson.Executor, error) {
	return nil, caisson.Errorf(caisson.CodeStateInvalid, "a question is answered, not run")
}

// Question implements caisson.Questioner.
func (AskTool) Question(input json.RawMessage) (caisson.Question, error) {
	in, err := decode[askInput](input)
	if err != nil {
		return caisson.Question{}, err
	}
	return caisson.Question{Text: in.Question, Options: in.Options, Multi: in.Multi}, nil
}

// Answer implements caisson.Questioner.
func (AskTool) Answer(_ json.RawMessage, decision caisson.Decision) caisson.Result {
	var parts []string
	if len(decision.Options) > 0 {
		parts = append(parts, "Chosen: "+strings.Join(decision.Options, "; "))
	}
	if decision.Text != "" {
		parts = append(parts, decision.Text)
	}
	text := strings.Join(parts, "\n")
	if text == "" {
		text = "The answer is empty."
	}
	text = strings.ToValidUTF8(text, "\uFFFD")
	return caisson.Result{
		Text: boundLines(text, defaultOutput), Summary: "answered by " + decision.By,
		Data: data(map[string]any{"options": decision.Options, "text": decision.Text, "by": decision.By}),
	}
}

package host

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/schema"
)

// Decide answers a review in the name of the person who runs this process.
func (h *Host) Decide(ctx context.Context, id caisson.ReviewID, digest caisson.Digest, d caisson.Decision) (caisson.Review, error) {
	d.By = Person()
	return h.Ledger.Decide(ctx, id, digest, d, h.Config.Review.UseFor)
}

// ModifyDecision makes the decision that puts input in place of a review's
// call. The input is validated against the schema that the review holds.
func ModifyDecision(r caisson.Review, input json.RawMessage, approve bool) (caisson.Decision, error) {
	d := caisson.Decision{Kind: caisson.Modify}
	if r.Kind != caisson.ReviewCall {
		return d, caisson.Errorf(caisson.CodeDecisionKindMismatch, "review %s is a question: answer it", r.ID)
	}
	s, err := schema.Compile(r.Schema)
	if err != nil {
		return d, err
	}
	prepared, err := s.Prepare(input)
	if err != nil {
		return d, err
	}
	d.Input = prepared.Input
	if approve {
		call := r.Call
		call.Input = prepared.Input
		if d.ApproveModified, err = call.Sum(); err != nil {
			return d, caisson.Errorf(caisson.CodeCallInvalid, "sum the new input: %w", err)
		}
	}
	return d, nil
}

// ChosenOptions turns texts or numbers into the options of a review's question.
func ChosenOptions(r caisson.Review, chosen []string) ([]string, error) {
	if len(chosen) == 0 {
		return nil, nil
	}
	if r.Question == nil {
		return nil, caisson.Errorf(caisson.CodeDecisionKindMismatch, "review %s is no question", r.ID)
	}
	if len(chosen) > 1 && !r.Question.Multi {
		return nil, caisson.Errorf(caisson.CodeUsage, "the question takes one option")
	}
	var options []string
	for _, text := range chosen {
		n, err := strconv.Atoi(text)
		switch {
		case slices.Contains(r.Question.Options, text):
			options = append(options, text)
		case err == nil && n >= 1 && n <= len(r.Question.Options):
			options = append(options, r.Question.Options[n-1])
		default:
			return nil, caisson.Errorf(caisson.CodeUsage, "%q is none of the options", text).With("options", r.Question.Options)
		}
	}
	return options, nil
}

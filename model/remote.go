package model

import (
	"context"
	"iter"

	"charm.land/fantasy"
	"github.com/caisson-run/caisson"
)

// remote is a provider's model.
type remote struct {
	ref      string
	provider provider
	lang     fantasy.LanguageModel
	price    caisson.Price
	priced   bool
	window   int64
	output   int64
}

func (m *remote) Ref() string                  { return m.ref }
func (m *remote) Price() (caisson.Price, bool) { return m.price, m.priced }
func (m *remote) Limits() (int64, int64)       { return m.window, m.output }

// outputUnlisted is asked of a model that must be told a bound and whose own
// is not known; every model of the last years allows it.
const outputUnlisted = 8192

// Stream implements caisson.Model.
func (m *remote) Stream(ctx context.Context, req caisson.ModelRequest) iter.Seq2[caisson.ModelEvent, error] {
	return func(yield func(caisson.ModelEvent, error) bool) {
		// fantasy leaves the connection open when its stream is left early.
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		call, err := m.request(req)
		if err != nil {
			yield(caisson.ModelEvent{}, err)
			return
		}
		parts, err := m.lang.Stream(ctx, call)
		if err != nil {
			yield(caisson.ModelEvent{}, m.fault(ctx, err))
			return
		}
		answer := assembly{ref: m.ref, speaks: m.provider.speaks}
		for part := range parts {
			event, err := answer.add(part)
			switch {
			case err != nil:
				yield(caisson.ModelEvent{}, m.fault(ctx, err))
				return
			case event.Kind == "":
				continue
			case !yield(event, nil), event.Kind == caisson.ModelDone:
				return
			}
		}
		yield(caisson.ModelEvent{}, m.fault(ctx, errCut))
	}
}

func (m *remote) request(req caisson.ModelRequest) (fantasy.Call, error) {
	prompt, err := promptOf(req, m.provider.speaks)
	if err != nil {
		return fantasy.Call{}, err
	}
	tools, err := toolsOf(req.Tools)
	if err != nil {
		return fantasy.Call{}, err
	}
	call := fantasy.Call{Prompt: prompt, Tools: tools}
	bound := req.MaxOutput
	if m.output > 0 && (bound == 0 || bound > m.output) {
		bound = m.output
	}
	if bound == 0 && m.provider.speaks == speakAnthropic {
		bound = outputUnlisted
	}
	if bound > 0 {
		call.MaxOutputTokens = &bound
	}
	return call, nil
}

package model

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"charm.land/fantasy"
	"github.com/caisson-run/caisson"
)

// errCut says that a stream ended before its provider said that it was finished.
var errCut = errors.New("the answer was cut off")

// maxAnswer bounds the bytes of one answer, as a provider could send for ever.
// It is ten times the largest answer that a model of today can give.
const maxAnswer = 16 << 20

// assembly makes one answer of a stream's parts.
type assembly struct {
	ref    string
	speaks protocol
	parts  []assembled
	open   map[string]int // open text and reasoning blocks → index in parts
	calls  int            // call parts so far
	// bytes are the arguments by call index as they came; only with chat
	// completions.
	bytes  map[string]string
	finish string // the provider's own word, where tap sees it
	size   int
}

type assembled struct {
	part caisson.Part
	own  fantasy.ProviderMetadata
}

// add takes one part and returns the event to pass on; Kind "" for none.
func (a *assembly) add(p fantasy.StreamPart) (caisson.ModelEvent, error) {
	a.size += len(p.Delta) + len(p.ToolCallInput)
	if a.size > maxAnswer {
		return caisson.ModelEvent{}, fmt.Errorf("the answer is larger than %d MiB", maxAnswer>>20)
	}
	switch p.Type {
	case fantasy.StreamPartTypeTextStart, fantasy.StreamPartTypeTextDelta, fantasy.StreamPartTypeTextEnd:
		a.grow(caisson.PartText, p, p.Type == fantasy.StreamPartTypeTextStart)
		return deltaEvent(caisson.ModelText, p.Delta), nil
	case fantasy.StreamPartTypeReasoningStart, fantasy.StreamPartTypeReasoningDelta, fantasy.StreamPartTypeReasoningEnd:
		a.grow(caisson.PartReasoning, p, p.Type == fantasy.StreamPartTypeReasoningStart)
		return deltaEvent(caisson.ModelReasoning, p.Delta), nil
	case fantasy.StreamPartTypeToolInputStart:
		return caisson.ModelEvent{Kind: caisson.ModelCallPart, Delta: p.ToolCallName}, nil
	case fantasy.StreamPartTypeToolInputDelta:
		return deltaEvent(caisson.ModelCallPart, p.Delta+p.ToolCallInput), nil
	case partCallBytes:
		if a.bytes == nil {
			a.bytes = map[string]string{}
		}
		a.bytes[p.ID] += p.Delta
		// A sign of life without text: fantasy shows the bytes that it keeps.
		return caisson.ModelEvent{Kind: caisson.ModelCallPart}, nil
	case partFinish:
		a.finish = p.Delta
	case fantasy.StreamPartTypeToolCall:
		a.call(p)
	case fantasy.StreamPartTypeError:
		if p.Error == nil {
			return caisson.ModelEvent{}, errCut
		}
		return caisson.ModelEvent{}, p.Error
	case fantasy.StreamPartTypeFinish:
		return a.done(p)
	default:
	}
	return caisson.ModelEvent{}, nil
}

func deltaEvent(kind caisson.ModelEventKind, delta string) caisson.ModelEvent {
	if delta == "" {
		return caisson.ModelEvent{}
	}
	return caisson.ModelEvent{Kind: kind, Delta: delta}
}

func (a *assembly) grow(kind caisson.PartKind, p fantasy.StreamPart, begins bool) {
	key := string(kind) + p.ID
	at, open := a.open[key]
	if !open || begins {
		if a.open == nil {
			a.open = map[string]int{}
		}
		at = len(a.parts)
		a.open[key] = at
		a.parts = append(a.parts, assembled{part: caisson.Part{Kind: kind}})
	}
	a.parts[at].part.Text += p.Delta
	if len(p.ProviderMetadata) > 0 {
		a.parts[at].own = p.ProviderMetadata
	}
}

// call takes a complete call. Calls are told apart by their place, never by the
// provider's id, which may repeat.
func (a *assembly) call(p fantasy.StreamPart) {
	if p.ProviderExecuted {
		return
	}
	a.parts = append(a.parts, assembled{
		part: caisson.Part{Kind: caisson.PartCall, ProviderID: p.ID, Tool: p.ToolCallName, Input: p.ToolCallInput},
		own:  p.ProviderMetadata,
	})
	a.calls++
}

func (a *assembly) done(p fantasy.StreamPart) (caisson.ModelEvent, error) {
	if a.tapped() && a.finish == "" {
		return caisson.ModelEvent{}, errCut
	}
	finish, err := a.finished(p.FinishReason)
	if err != nil {
		return caisson.ModelEvent{}, err
	}
	if err := a.restore(); err != nil {
		return caisson.ModelEvent{}, err
	}
	message := caisson.Message{Role: caisson.RoleAssistant, Parts: []caisson.Part{}}
	for _, entry := range a.parts {
		part := entry.part
		if len(entry.own) > 0 {
			if part.Opaque, err = json.Marshal(entry.own); err != nil {
				return caisson.ModelEvent{}, fmt.Errorf("keep what is the provider's own: %w", err)
			}
		}
		if part.Kind == caisson.PartCall || part.Text != "" || len(part.Opaque) > 0 {
			message.Parts = append(message.Parts, part)
		}
	}
	return caisson.ModelEvent{Kind: caisson.ModelDone, Answer: &caisson.ModelAnswer{
		Message: message, Usage: a.usage(p.Usage), Finish: finish, Model: a.ref,
	}}, nil
}

// tapped tells whether the stream is one that tap sees.
func (a *assembly) tapped() bool { return a.finish != "" || len(a.bytes) > 0 }

// restore gives every call the arguments that came under its own index.
func (a *assembly) restore() error {
	if len(a.bytes) == 0 {
		return nil
	}
	if len(a.bytes) != a.calls {
		return fmt.Errorf("the answer has %d calls and arguments for %d", a.calls, len(a.bytes))
	}
	indexes := make([]int64, 0, len(a.bytes))
	for id := range a.bytes {
		index, err := strconv.ParseInt(id, 10, 64)
		if err != nil {
			return fmt.Errorf("read call index: %w", err)
		}
		indexes = append(indexes, index)
	}
	slices.Sort(indexes)
	for i := range a.parts {
		if a.parts[i].part.Kind != caisson.PartCall {
			continue
		}
		input := a.bytes[strconv.FormatInt(indexes[0], 10)]
		indexes = indexes[1:]
		if input == "" {
			input = "{}" // a call without arguments
		}
		a.parts[i].part.Input = input
	}
	return nil
}

func (a *assembly) finished(reason fantasy.FinishReason) (caisson.Finish, error) {
	switch {
	case a.finish == "length":
		return caisson.FinishLength, nil // fantasy says calls where there is a call
	case a.finish == "content_filter":
		return caisson.FinishFilter, nil
	}
	switch reason {
	case fantasy.FinishReasonLength:
		return caisson.FinishLength, nil
	case fantasy.FinishReasonContentFilter:
		return caisson.FinishFilter, nil
	case fantasy.FinishReasonError:
		return "", errors.New("the provider ended the answer with an error")
	case fantasy.FinishReasonStop, fantasy.FinishReasonToolCalls:
		if a.calls > 0 {
			return caisson.FinishCalls, nil
		}
		return caisson.FinishStop, nil
	default:
		return caisson.FinishOther, nil
	}
}

// usage maps fantasy's counts: it takes cached tokens out of the input for all
// but Google, and leaves Google's reasoning out of the output.
func (a *assembly) usage(u fantasy.Usage) caisson.Usage {
	usage := caisson.Usage{
		Input: u.InputTokens + u.CacheReadTokens + u.CacheCreationTokens, Output: u.OutputTokens,
		CacheRead: u.CacheReadTokens, CacheWrite: u.CacheCreationTokens,
	}
	if a.speaks == speakGoogle {
		usage.Input, usage.Output = u.InputTokens, u.OutputTokens+u.ReasoningTokens
	}
	return usage
}

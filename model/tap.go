package model

import (
	"strconv"

	"charm.land/fantasy"
	openaisdk "github.com/openai/openai-go/v3"
)

// Kinds of stream part that tap adds to those of fantasy.
const (
	partCallBytes fantasy.StreamPartType = "caisson-call-bytes" // ID: the call's index; Delta: a piece of its arguments
	partFinish    fantasy.StreamPartType = "caisson-finish"     // Delta: the provider's own finish reason
)

// streamHook is fantasy's hook that sees every chunk of a chat completion.
type streamHook = func(openaisdk.ChatCompletionChunk, func(fantasy.StreamPart) bool, map[string]any) (map[string]any, bool)

// tap passes on what fantasy's assembly of chat completions loses: argument
// pieces of a call that arrive after a later call has begun (it drops them),
// and whether the provider said that the answer is finished (it takes any
// stream with a call in it for finished). next may be nil.
func tap(next streamHook) streamHook {
	return func(chunk openaisdk.ChatCompletionChunk, yield func(fantasy.StreamPart) bool, state map[string]any) (map[string]any, bool) {
		if len(chunk.Choices) > 1 {
			yield(fantasy.StreamPart{Type: fantasy.StreamPartTypeError, Error: &fantasy.Error{Message: "more than one choice in an answer"}})
			return state, false
		}
		for _, choice := range chunk.Choices {
			for _, call := range choice.Delta.ToolCalls {
				if call.Function.Name == "" && call.Function.Arguments == "" {
					continue
				}
				if !yield(fantasy.StreamPart{Type: partCallBytes, ID: strconv.FormatInt(call.Index, 10), Delta: call.Function.Arguments}) {
					return state, false
				}
			}
			if choice.FinishReason != "" && !yield(fantasy.StreamPart{Type: partFinish, Delta: choice.FinishReason}) {
				return state, false
			}
		}
		if next == nil {
			return state, true
		}
		return next(chunk, yield, state)
	}
}

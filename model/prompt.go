package model

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"

	"charm.land/fantasy"
	"charm.land/fantasy/providers/anthropic"
	"github.com/caisson-run/caisson"
)

// promptOf turns a transcript into fantasy's.
//
// Providers' call ids are data: where one is empty, repeated or of a form that
// another provider would refuse, both the call and its result get one of ours.
// Results belong to the calls of the last assistant message, in order.
func promptOf(req caisson.ModelRequest, speaks protocol) (fantasy.Prompt, error) {
	var prompt fantasy.Prompt
	if req.System != "" {
		prompt = append(prompt, fantasy.NewSystemMessage(req.System))
	}
	w := promptWriter{used: map[string]bool{}, valid: regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)}
	for i, message := range req.Messages {
		content, err := w.message(i, message)
		if err != nil {
			return nil, err
		}
		if len(content) > 0 {
			prompt = append(prompt, fantasy.Message{Role: fantasy.MessageRole(message.Role), Content: content})
		}
	}
	if speaks == speakAnthropic {
		markCache(prompt)
	}
	return prompt, nil
}

// markCache asks Anthropic to keep the prefix: the system text, and the last
// two messages, so that the next request finds this one's.
func markCache(prompt fantasy.Prompt) {
	keep := anthropic.NewProviderCacheControlOptions(&anthropic.ProviderCacheControlOptions{CacheControl: anthropic.CacheControl{Type: "ephemeral"}})
	for i := range prompt {
		if prompt[i].Role == fantasy.MessageRoleSystem || i >= len(prompt)-2 {
			prompt[i].ProviderOptions = keep
		}
	}
}

type promptWriter struct {
	used  map[string]bool
	valid *regexp.Regexp
	ids   []string // of the calls of the last assistant message without result yet
}

func (w *promptWriter) message(n int, message caisson.Message) ([]fantasy.MessagePart, error) {
	if message.Role == caisson.RoleAssistant {
		w.ids = nil
	}
	var content []fantasy.MessagePart
	for i, part := range message.Parts {
		own, err := optionsOf(part.Opaque)
		if err != nil {
			return nil, err
		}
		switch part.Kind {
		case caisson.PartText:
			if part.Text != "" {
				content = append(content, fantasy.TextPart{Text: part.Text, ProviderOptions: own})
			}
		case caisson.PartReasoning:
			content = append(content, fantasy.ReasoningPart{Text: part.Text, ProviderOptions: own})
		case caisson.PartCall:
			id := part.ProviderID
			if !w.valid.MatchString(id) || w.used[id] {
				id = fmt.Sprintf("call_%d_%d", n, i)
			}
			w.used[id] = true
			w.ids = append(w.ids, id)
			content = append(content, fantasy.ToolCallPart{ToolCallID: id, ToolName: part.Tool, Input: objectOf(part.Input), ProviderOptions: own})
		case caisson.PartResult:
			if len(w.ids) == 0 {
				return nil, caisson.Errorf(caisson.CodeInternal, "message %d has a result without a call", n)
			}
			content = append(content, fantasy.ToolResultPart{ToolCallID: w.ids[0], Output: outputOf(part)})
			w.ids = w.ids[1:]
		default:
			return nil, caisson.Errorf(caisson.CodeInternal, "message %d has a part of unknown kind %q", n, part.Kind)
		}
	}
	return content, nil
}

// objectOf returns input if it is a JSON object, else one that holds it:
// providers refuse a transcript whose arguments are not.
func objectOf(input string) string {
	var object map[string]json.RawMessage
	if json.Unmarshal([]byte(input), &object) == nil && object != nil {
		return input
	}
	raw, err := json.Marshal(map[string]string{"unparsed": input})
	if err != nil { // a map of strings always marshals
		panic(err)
	}
	return string(raw)
}

func outputOf(part caisson.Part) fantasy.ToolResultOutputContent {
	text := part.Text
	if text == "" {
		text = "(no output)" // some providers refuse an empty text
	}
	if part.Failed {
		return fantasy.ToolResultOutputContentError{Error: errors.New(text)}
	}
	return fantasy.ToolResultOutputContentText{Text: text}
}

func optionsOf(opaque json.RawMessage) (fantasy.ProviderOptions, error) {
	if len(opaque) == 0 {
		return nil, nil
	}
	var own map[string]json.RawMessage
	if err := json.Unmarshal(opaque, &own); err != nil {
		return nil, caisson.Errorf(caisson.CodeInternal, "read what is the provider's own: %w", err)
	}
	options, err := fantasy.UnmarshalProviderOptions(own)
	if err != nil {
		return nil, caisson.Errorf(caisson.CodeInternal, "read what is the provider's own: %w", err)
	}
	return options, nil
}

func toolsOf(tools []caisson.ModelTool) ([]fantasy.Tool, error) {
	out := make([]fantasy.Tool, 0, len(tools))
	for _, tool := range tools {
		var schema map[string]any
		if err := json.Unmarshal(tool.Schema, &schema); err != nil {
			return nil, caisson.Errorf(caisson.CodeInternal, "read schema of tool %s: %w", tool.Name, err)
		}
		if list, ok := schema["required"].([]any); ok {
			required := make([]string, 0, len(list)) // fantasy looks for strings and drops any other list
			for _, name := range list {
				required = append(required, fmt.Sprint(name))
			}
			schema["required"] = required
		}
		out = append(out, fantasy.FunctionTool{Name: tool.Name, Description: tool.Description, InputSchema: schema})
	}
	return out, nil
}

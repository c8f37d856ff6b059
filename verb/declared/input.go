package declared

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/caisson-run/caisson"
)

// Type is what a field of a verb's input can be.
type Type string

// Types.
const (
	String  Type = "string"
	Integer Type = "integer"
	Boolean Type = "boolean"
)

// Types returns all types.
func Types() []Type { return []Type{String, Integer, Boolean} }

// MostText is the most characters of a text that does not say.
const MostText = 16 << 10

// Field is one value that a request gives.
type Field struct {
	Name        string
	Type        Type
	Description string
	Optional    bool // it is empty, 0 or false where it is not given
	Max         int64
	Enum        []string
	Pattern     string // RE2, of the whole text
}

// Schema is the JSON Schema of the input.
func (v Verb) Schema() json.RawMessage {
	properties, required := map[string]any{}, []string{}
	for _, f := range v.Input {
		properties[f.Name] = f.schema()
		if !f.Optional {
			required = append(required, f.Name)
		}
	}
	raw, _ := json.Marshal(map[string]any{ // of texts and numbers: cannot fail
		"type": "object", "properties": properties, "required": required, "additionalProperties": false,
	})
	return raw
}

func (f Field) schema() map[string]any {
	s := map[string]any{"type": string(f.Type)}
	if f.Description != "" {
		s["description"] = f.Description
	}
	switch f.Type {
	case String:
		s["maxLength"] = f.Max
		if f.Pattern != "" {
			s["pattern"] = "^(?:" + f.Pattern + ")$"
		}
		if len(f.Enum) > 0 {
			s["enum"] = f.Enum
		}
		if f.Optional {
			s["default"] = ""
			if len(f.Enum) > 0 {
				s["enum"] = append(slices.Clone(f.Enum), "")
			}
			if f.Pattern != "" {
				s["pattern"] = "^(?:" + f.Pattern + ")?$"
			}
		}
	case Integer:
		if f.Optional {
			s["default"] = 0
		}
	case Boolean:
		if f.Optional {
			s["default"] = false
		}
	}
	return s
}

// Values are the texts of an input, which the schema has passed.
func (v Verb) Values(input json.RawMessage) (map[string]string, error) {
	var given map[string]json.RawMessage
	if err := json.Unmarshal(input, &given); err != nil {
		return nil, caisson.Errorf(caisson.CodeCallInvalid, "the input is not an object")
	}
	out := map[string]string{}
	for _, f := range v.Input {
		raw := given[f.Name]
		if f.Type != String {
			out[f.Name] = string(raw)
			continue
		}
		var text string
		if err := json.Unmarshal(raw, &text); err != nil {
			return nil, caisson.Errorf(caisson.CodeCallInvalid, "%s is not a text", f.Name)
		}
		if strings.ContainsRune(text, 0) {
			return nil, caisson.Errorf(caisson.CodeCallInvalid, "%s holds a NUL byte, which no argument can", f.Name)
		}
		out[f.Name] = text
	}
	return out, nil
}

// CheckPattern tells whether a pattern can be used.
func CheckPattern(text string) error {
	_, err := regexp.Compile("^(?:" + text + ")$")
	return err
}

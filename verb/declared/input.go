package declared

import (
	"encoding/json"
	"regexp"
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

// MostInteger bounds integers on both sides: beyond it, not every reader of JSON
// has the same number.
const MostInteger = 1<<53 - 1

// Field is one value that a request gives.
type Field struct {
	Name        string
	Type        Type
	Description string
	// Optional: it may be left out, and then every argument that it stands in is.
	Optional bool
	// Default, a string, int64 or bool as Type says, stands for it where it is left
	// out; nil is none.
	Default any
	Max     int64  // characters of a text
	Least   *int64 // of an integer; nil: -MostInteger
	Most    *int64 // of an integer; nil: MostInteger
	Enum    []string
	Pattern string // RE2, of the whole text
}

// mayLack tells whether a request need not say it, and nothing stands for it then.
func (f Field) mayLack() bool { return f.Optional && f.Default == nil }

// Schema is the JSON Schema of the input.
func (v Verb) Schema() json.RawMessage {
	properties, required := map[string]any{}, []string{}
	for _, f := range v.Input {
		properties[f.Name] = f.schema()
		if !f.Optional && f.Default == nil {
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
	if f.Default != nil {
		s["default"] = f.Default
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
	case Integer:
		s["minimum"], s["maximum"] = int64(-MostInteger), int64(MostInteger)
		if f.Least != nil {
			s["minimum"] = *f.Least
		}
		if f.Most != nil {
			s["maximum"] = *f.Most
		}
	case Boolean:
	}
	return s
}

// Values are the texts of an input, which the schema has passed. A field that
// was left out has none.
func (v Verb) Values(input json.RawMessage) (map[string]string, error) {
	var given map[string]json.RawMessage
	if err := json.Unmarshal(input, &given); err != nil {
		return nil, caisson.Errorf(caisson.CodeCallInvalid, "the input is not an object")
	}
	out := map[string]string{}
	for _, f := range v.Input {
		raw, is := given[f.Name]
		if !is {
			continue
		}
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

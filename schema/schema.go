// Package schema turns the input that someone wrote for a tool into an exact,
// validated value: parse, mend once if it was cut or malformed, apply defaults,
// validate, make canonical.
//
// Schemas and inputs may both come from strangers. Compiling refuses schemas
// that the validator could recurse into without end or multiply work with
// without bound, and never loads a remote schema. What is not promised: that a
// mended input is what its writer meant; see [Prepared].
package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/caisson-run/caisson"
)

// maxSchema bounds the text of a schema: the largest of real tools are some
// tens of kilobytes.
const maxSchema = 1 << 20

// Schema is a compiled JSON Schema (2020-12 or draft-07) of an object. Safe for
// concurrent use.
type Schema struct {
	raw      any // decoded, for defaults
	resolved *jsonschema.Resolved
	digest   caisson.Digest
	maxDepth int // of an input; bounds the work of a schema that refers to itself
}

// Prepared is an input made exact.
type Prepared struct {
	// Input is the canonical value, defaults applied. Preparing it again
	// gives the same bytes.
	Input json.RawMessage
	// Repaired says that the text was not JSON and was mended.
	Repaired bool
	// Cut says, with Repaired, that the text ended inside a string, a number
	// or a member: what is there is a true beginning of what was meant, and
	// more was to come. A command or a file's content may have lost its end,
	// so nothing but a read should be done with it.
	Cut bool
}

// Compile reads a schema strictly: its type must be "object", references must
// lead into the schema itself, defaults must be valid. Errors are CodeCallInvalid.
func Compile(raw json.RawMessage) (s *Schema, err error) {
	defer func() {
		// The validator asserts some of its rules; a stranger's schema must not
		// end the program with them.
		if r := recover(); r != nil {
			s, err = nil, caisson.Errorf(caisson.CodeCallInvalid, "the schema cannot be used: %v", r)
		}
	}()
	if len(raw) > maxSchema {
		return nil, caisson.Errorf(caisson.CodeCallInvalid, "the schema has %d bytes, more than %d", len(raw), maxSchema)
	}
	s, err = compile(raw)
	if err != nil {
		return nil, caisson.Errorf(caisson.CodeCallInvalid, "the schema cannot be used: %w", bounded(err))
	}
	return s, nil
}

func compile(raw json.RawMessage) (*Schema, error) {
	canonical, err := caisson.Canonical(raw)
	if err != nil {
		return nil, err
	}
	var root map[string]any
	if err := json.Unmarshal(canonical, &root); err != nil || root == nil {
		return nil, errors.New("it is not an object")
	}
	if root["type"] != "object" {
		return nil, errors.New(`its type is not "object"`)
	}
	if err := checkDraft(root); err != nil {
		return nil, err
	}
	maxDepth, err := checkWork(root)
	if err != nil {
		return nil, err
	}
	var parsed jsonschema.Schema
	if err := json.Unmarshal(canonical, &parsed); err != nil {
		return nil, err
	}
	resolved, err := parsed.Resolve(&jsonschema.ResolveOptions{ValidateDefaults: true})
	if err != nil {
		return nil, err
	}
	validating, err := caisson.CanonicalOf(validatingPart(root))
	if err != nil {
		return nil, err
	}
	return &Schema{raw: root, resolved: resolved, digest: caisson.DigestOf(validating), maxDepth: maxDepth}, nil
}

func checkDraft(root map[string]any) error {
	draft, given := root["$schema"]
	if !given {
		return nil
	}
	switch draft {
	case "https://json-schema.org/draft/2020-12/schema",
		"http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft-07/schema#":
		return nil
	default:
		return fmt.Errorf("its $schema %v is neither draft-07 nor 2020-12", draft)
	}
}

// Digest is the digest of the validating part: what says which inputs are valid
// and what their defaults are. Titles, descriptions, examples and keywords that
// nothing here acts on do not count, nor does the order in which required
// names, types or allowed values are listed.
func (s *Schema) Digest() caisson.Digest { return s.digest }

// Prepare makes input exact. Errors are CodeCallInvalid and say what is wrong
// where, bounded, for the model.
func (s *Schema) Prepare(input json.RawMessage) (p Prepared, err error) {
	defer func() {
		if r := recover(); r != nil {
			p, err = Prepared{}, caisson.Errorf(caisson.CodeCallInvalid, "the input cannot be validated: %v", r)
		}
	}()
	p, err = s.prepare(input)
	if err != nil {
		return Prepared{}, caisson.Errorf(caisson.CodeCallInvalid, "the input is not valid: %w", bounded(err)).
			WithHint("Correct the input and call again.")
	}
	return p, nil
}

func (s *Schema) prepare(input json.RawMessage) (Prepared, error) {
	var p Prepared
	if !json.Valid(input) {
		mended, cut, err := repair(input)
		if err != nil {
			return Prepared{}, err
		}
		input, p.Repaired, p.Cut = mended, true, cut
	}
	canonical, err := caisson.Canonical(input)
	if err != nil {
		return Prepared{}, err
	}
	if s.maxDepth > 0 && depth(canonical) > s.maxDepth {
		return Prepared{}, fmt.Errorf("it is nested deeper than %d, and its schema refers to itself", s.maxDepth)
	}
	var value any
	if err := json.Unmarshal(canonical, &value); err != nil {
		return Prepared{}, err
	}
	if err := s.applyDefaults(value); err != nil {
		return Prepared{}, err
	}
	if err := s.resolved.Validate(value); err != nil {
		return Prepared{}, err
	}
	p.Input, err = caisson.CanonicalOf(value)
	return p, err
}

// depth returns how deep a canonical text is nested.
func depth(canonical []byte) int {
	deepest, now := 0, 0
	for i := 0; i < len(canonical); i++ {
		switch canonical[i] {
		case '{', '[':
			now++
			deepest = max(deepest, now)
		case '}', ']':
			now--
		case '"':
			for i++; canonical[i] != '"'; i++ {
				if canonical[i] == '\\' {
					i++
				}
			}
		}
	}
	return deepest
}

// maxMessage keeps a message that quotes its input readable, and the input from
// being sent back whole.
const maxMessage = 500

type boundedError struct {
	text string
	err  error
}

func (e *boundedError) Error() string { return e.text }
func (e *boundedError) Unwrap() error { return e.err }

func bounded(err error) error {
	text := strings.TrimPrefix(err.Error(), "validating root: ")
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= maxMessage {
		return &boundedError{text, err}
	}
	cut := maxMessage
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return &boundedError{text[:cut] + "…", err}
}

// applyDefaults sets what is missing and not required: in objects, in those that
// are there below them, and in the elements of arrays. It makes no object only
// to hold defaults, and follows no alternatives (anyOf and the like), as which
// of them holds is known only afterwards.
func (s *Schema) applyDefaults(value any) error {
	left := maxDefaults
	return s.defaultsOf(value, s.raw, &left)
}

// maxDefaults bounds how many defaults complete one input: a default can hold an
// object that takes defaults itself, without end.
const maxDefaults = 10_000

func (s *Schema) defaultsOf(value, schema any, left *int) error {
	rules, ok := schema.(map[string]any)
	if !ok {
		return nil
	}
	if ref, ok := rules["$ref"].(string); ok {
		_, target, err := lookup(s.raw, ref)
		if err != nil {
			return err
		}
		if err := s.defaultsOf(value, target, left); err != nil {
			return err
		}
	}
	switch v := value.(type) {
	case map[string]any:
		return s.defaultsOfObject(v, rules, left)
	case []any:
		for _, element := range v {
			if err := s.defaultsOf(element, rules["items"], left); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Schema) defaultsOfObject(object, rules map[string]any, left *int) error {
	properties, _ := rules["properties"].(map[string]any)
	required, _ := rules["required"].([]any)
	for name, property := range properties {
		if _, there := object[name]; !there {
			p, _ := property.(map[string]any)
			def, has := p["default"]
			if !has || containsText(required, name) {
				continue
			}
			if *left--; *left < 0 {
				return fmt.Errorf("its schema wants more than %d defaults", maxDefaults)
			}
			// A copy: the caller's value must not share the schema's.
			raw, err := json.Marshal(def)
			if err != nil {
				return err
			}
			var fresh any
			if err := json.NewDecoder(bytes.NewReader(raw)).Decode(&fresh); err != nil {
				return err
			}
			object[name] = fresh
		}
		if err := s.defaultsOf(object[name], property, left); err != nil {
			return err
		}
	}
	return nil
}

func containsText(list []any, text string) bool {
	for _, v := range list {
		if v == text {
			return true
		}
	}
	return false
}

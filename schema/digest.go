package schema

import (
	"bytes"
	"slices"

	"github.com/caisson-run/caisson"
)

// role says what the value of a validating keyword is.
type role int

const (
	verbatim role = iota + 1
	set           // a list whose order does not matter
	one           // a schema
	list          // schemas
	named         // schemas by name
	either        // a schema, or a list of them
)

// roleOf returns the role of a keyword that decides which inputs are valid or
// how they are completed, and 0 for every other.
func roleOf(keyword string) role {
	switch keyword {
	case "$schema", "$id", "$ref", "$anchor", "default", "const", "multipleOf", "minimum", "maximum",
		"exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength", "pattern", "minItems", "maxItems",
		"uniqueItems", "minContains", "maxContains", "minProperties", "maxProperties", "dependentRequired":
		return verbatim
	case "required", "enum", "type":
		return set
	case "additionalProperties", "additionalItems", "contains", "unevaluatedItems", "unevaluatedProperties",
		"propertyNames", "not", "if", "then", "else":
		return one
	case "allOf", "anyOf", "oneOf", "prefixItems":
		return list
	case "properties", "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions":
		return named
	case "items":
		return either
	default:
		return 0
	}
}

// inPlace tells whether the schemas of a keyword apply to the same value as the
// schema that holds it, rather than to a part of it.
func inPlace(keyword string) bool {
	switch keyword {
	case "allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies":
		return true
	default:
		return false
	}
}

// validatingPart returns schema without what only describes.
func validatingPart(schema any) any {
	rules, ok := schema.(map[string]any)
	if !ok {
		return schema
	}
	kept := map[string]any{}
	for keyword, value := range rules {
		switch roleOf(keyword) {
		case verbatim:
			kept[keyword] = value
		case set:
			kept[keyword] = sorted(value)
		case one:
			kept[keyword] = validatingPart(value)
		case list, either, named:
			kept[keyword] = eachPart(value, roleOf(keyword))
		}
	}
	return kept
}

func eachPart(value any, r role) any {
	switch v := value.(type) {
	case []any:
		parts := make([]any, len(v))
		for i := range v {
			parts[i] = validatingPart(v[i])
		}
		return parts
	case map[string]any:
		if r != named {
			return validatingPart(v)
		}
		parts := map[string]any{}
		for name, schema := range v {
			parts[name] = validatingPart(schema)
		}
		return parts
	default:
		return value
	}
}

func sorted(value any) any {
	values, ok := value.([]any)
	if !ok {
		return value
	}
	values = slices.Clone(values)
	slices.SortFunc(values, func(a, b any) int {
		// Both come from canonical text, so neither can fail.
		rawA, _ := caisson.CanonicalOf(a)
		rawB, _ := caisson.CanonicalOf(b)
		return bytes.Compare(rawA, rawB)
	})
	return values
}

// Package strictyaml reads settings and policy: one YAML document of mappings,
// lists and scalars, in which everything must be meant.
//
// An unknown key, a key twice, a value of another type, an alias, a merge key or
// a second document is an [Error] that names file and line. It does not promise
// to read every YAML file: what it cannot read for certain, it refuses.
package strictyaml

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// MaxSize is the largest file that is read: a person's file is never so large.
const MaxSize = 1 << 20

// Error says what is wrong where.
type Error struct {
	File    string
	Line    int // from 1; 0 where the whole file is meant
	Message string
}

// Error returns "file:line: message".
func (e *Error) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %s", e.File, e.Message)
	}
	return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Message)
}

// Value is one value of a document.
type Value struct {
	File string
	Key  string // dotted, from the top; empty at the top
	node *yaml.Node
}

var yamlLine = regexp.MustCompile(`^yaml: line (\d+): `)

// Parse reads the one document of a file. An empty file is an empty mapping.
func Parse(file string, raw []byte) (Value, error) {
	if len(raw) > MaxSize {
		return Value{}, &Error{File: file, Message: fmt.Sprintf("larger than %d bytes", MaxSize)}
	}
	if !utf8.Valid(raw) {
		return Value{}, &Error{File: file, Message: "not valid UTF-8"}
	}
	dec := yaml.NewDecoder(bytes.NewReader(raw))
	var doc yaml.Node
	err := dec.Decode(&doc)
	if errors.Is(err, io.EOF) {
		return Value{File: file, node: &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: 1}}, nil
	}
	if err != nil {
		return Value{}, syntaxError(file, err)
	}
	var second yaml.Node
	switch err := dec.Decode(&second); {
	case errors.Is(err, io.EOF):
	case err != nil:
		return Value{}, syntaxError(file, err)
	default:
		return Value{}, &Error{File: file, Line: second.Line, Message: "a second document; one is read"}
	}
	root := doc.Content[0]
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		root = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: root.Line}
	}
	return Value{File: file, node: root}, nil
}

func syntaxError(file string, err error) error {
	text := err.Error()
	line := 0
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		line, _ = strconv.Atoi(m[1])
		text = text[len(m[0]):]
	}
	return &Error{File: file, Line: line, Message: strings.TrimPrefix(text, "yaml: ")}
}

// Line is where the value stands, from 1.
func (v Value) Line() int { return v.node.Line }

// TextLine is where the first line of a string's text stands, from 1: for a
// block it is the line after the one that begins it.
func (v Value) TextLine() int {
	if v.node.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		return v.node.Line + 1
	}
	return v.node.Line
}

// Errorf returns an error at this value.
func (v Value) Errorf(format string, args ...any) error {
	message := fmt.Sprintf(format, args...)
	if v.Key != "" {
		message = v.Key + ": " + message
	}
	return &Error{File: v.File, Line: v.node.Line, Message: message}
}

// IsList tells whether the value is a list.
func (v Value) IsList() bool { return v.node.Kind == yaml.SequenceNode }

// IsMap tells whether the value is a mapping.
func (v Value) IsMap() bool { return v.node.Kind == yaml.MappingNode }

// Field is one entry of a mapping.
type Field struct {
	Name  string
	Value Value
}

// Fields returns the entries of a mapping in file order. Keys beyond allowed
// are an error; without allowed, any key is.
func (v Value) Fields(allowed ...string) ([]Field, error) {
	if err := v.want(yaml.MappingNode, "!!map", "a mapping"); err != nil {
		return nil, err
	}
	var fields []Field
	seen := map[string]int{}
	for i := 0; i+1 < len(v.node.Content); i += 2 {
		key := Value{File: v.File, node: v.node.Content[i]}
		name, err := key.String()
		if err != nil {
			return nil, v.at(key).Errorf("a key is not a plain string")
		}
		if first, twice := seen[name]; twice {
			return nil, v.at(key).Errorf("key %q is given twice (first in line %d)", name, first)
		}
		seen[name] = key.Line()
		if len(allowed) > 0 && !slices.Contains(allowed, name) {
			return nil, v.at(key).Errorf("unknown key %q; known are %s", name, strings.Join(allowed, ", "))
		}
		dotted := name
		if v.Key != "" {
			dotted = v.Key + "." + name
		}
		fields = append(fields, Field{name, Value{v.File, dotted, v.node.Content[i+1]}})
	}
	return fields, nil
}

func (v Value) at(key Value) Value { return Value{v.File, v.Key, key.node} }

// List returns the items of a list.
func (v Value) List() ([]Value, error) {
	if err := v.want(yaml.SequenceNode, "!!seq", "a list"); err != nil {
		return nil, err
	}
	items := make([]Value, len(v.node.Content))
	for i, n := range v.node.Content {
		items[i] = Value{v.File, v.Key + "[" + strconv.Itoa(i) + "]", n}
	}
	return items, nil
}

// Items returns the items of a list, or a scalar as the only one. An empty list
// is an error: it would say nothing, and look as if it did.
func (v Value) Items() ([]Value, error) {
	if v.node.Kind == yaml.ScalarNode {
		return []Value{v}, nil
	}
	items, err := v.List()
	if err == nil && len(items) == 0 {
		err = v.Errorf("an empty list")
	}
	return items, err
}

// Strings returns a string, or a list of at least one, as a list.
func (v Value) Strings() ([]string, error) {
	items, err := v.Items()
	if err != nil {
		return nil, err
	}
	out := make([]string, len(items))
	for i, item := range items {
		if out[i], err = item.String(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// String returns a string. What YAML reads as a number, a boolean or nothing is
// not one unless it is quoted.
func (v Value) String() (string, error) {
	if err := v.want(yaml.ScalarNode, "!!str", "a string"); err != nil {
		return "", err
	}
	if strings.ContainsRune(v.node.Value, 0) {
		return "", v.Errorf("holds a NUL")
	}
	return v.node.Value, nil
}

// Bool returns a boolean: true or false.
func (v Value) Bool() (bool, error) {
	if err := v.want(yaml.ScalarNode, "!!bool", "true or false"); err != nil {
		return false, err
	}
	switch v.node.Value {
	case "true":
		return true, nil
	case "false":
		return false, nil
	default:
		return false, v.Errorf("must be true or false, not %s", v.node.Value)
	}
}

// Int returns a whole number in decimal digits.
func (v Value) Int() (int64, error) {
	if err := v.want(yaml.ScalarNode, "!!int", "a whole number"); err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(v.node.Value, 10, 64)
	if err != nil {
		return 0, v.Errorf("must be a whole number in decimal digits, not %s", v.node.Value)
	}
	return n, nil
}

// Text returns a string, or a whole number as it is written.
func (v Value) Text() (string, error) {
	if v.node.Kind == yaml.ScalarNode && v.node.Tag == "!!int" {
		return v.node.Value, nil
	}
	return v.String()
}

func (v Value) want(kind yaml.Kind, tag, what string) error {
	switch n := v.node; {
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		return v.Errorf("anchors and aliases are not read")
	case n.Kind != kind || n.Tag != tag:
		return v.Errorf("must be %s, not %s", what, kindName(n))
	}
	return nil
}

func kindName(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	default:
	}
	switch n.Tag {
	case "!!str":
		return "a string"
	case "!!int", "!!float":
		return "the number " + n.Value
	case "!!bool":
		return n.Value
	case "!!null":
		return "nothing"
	default:
		return n.Tag
	}
}

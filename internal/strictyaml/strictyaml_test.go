package strictyaml_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/internal/strictyaml"
)

func read(raw string) error {
	root, err := strictyaml.Parse("f.yaml", []byte(raw))
	if err != nil {
		return err
	}
	fields, err := root.Fields("text", "list", "flag", "number", "map")
	if err != nil {
		return err
	}
	for _, f := range fields {
		switch f.Name {
		case "text":
			_, err = f.Value.String()
		case "list":
			_, err = f.Value.Strings()
		case "flag":
			_, err = f.Value.Bool()
		case "number":
			_, err = f.Value.Int()
		case "map":
			_, err = f.Value.Fields("a")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func TestRead(t *testing.T) {
	for _, raw := range []string{"", "# only a comment\n", "---\ntext: a\n", "list: one", "list: [a, b]", "flag: true", "number: -3", "map: {a: 1}", `text: "12"`, "null"} {
		if err := read(raw); err != nil {
			t.Errorf("%q: %v", raw, err)
		}
	}
	for raw, want := range map[string]string{
		"\nother: 1":                   `f.yaml:2: unknown key "other"`,
		"text: a\ntext: b":             `f.yaml:2: key "text" is given twice (first in line 1)`,
		"text: 12":                     "f.yaml:1: text: must be a string, not the number 12",
		"text: no\nflag: yes":          "f.yaml:2: flag: must be true or false",
		"text:":                        "must be a string, not nothing",
		"list: []":                     "list: an empty list",
		"list: [a, 1]":                 "list[1]: must be a string",
		"flag: \"true\"":               "must be true or false, not a string",
		"flag: True":                   "must be true or false, not True",
		"number: 0x10":                 "decimal digits",
		"number: 1.5":                  "must be a whole number",
		"number: 99999999999999999999": "whole number",
		"text: a\n---\ntext: b":        "a second document",
		"text: &a b":                   "anchors and aliases",
		"list: [&a b, *a]":             "anchors and aliases",
		"map: {<<: {a: 1}}":            "a key is not a plain string",
		"map: {a: 1, b: 2}":            `map: unknown key "b"`,
		"- a":                          "must be a mapping, not a list",
		"text: [":                      "f.yaml:",
		"text: \"\\0\"":                "NUL",
		"text: !!binary aGk=":          "must be a string",
		"text: \xff":                   "UTF-8",
		"1: a":                         "a key is not a plain string",
	} {
		err := read(raw)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", raw, err, want)
		}
		var e *strictyaml.Error
		if err != nil && !errors.As(err, &e) {
			t.Errorf("%q: %T", raw, err)
		}
	}
	if err := read(strings.Repeat("#", strictyaml.MaxSize+1)); err == nil {
		t.Error("a file over the size is read")
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"a: b", "list: [a, *b]", "? a\n: b", "- - - -", "a: |\n b\n", "%YAML 1.1\n---\n", "a: {b: {c: [1, 2]}}"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(_ *testing.T, raw []byte) {
		_ = read(string(raw))
	})
}

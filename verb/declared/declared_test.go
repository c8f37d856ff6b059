package declared

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/schema"
)

func TestTemplate(t *testing.T) {
	for _, c := range []struct{ text, value, want string }{
		{"plain", "", "plain"},
		{"--title={title}", "-x", "--title=-x"},
		{"{title}", "a b; $(id) `x` \"", "a b; $(id) `x` \""},
		{"{title}", "{branch}", "{branch}"}, // a value is never read again
		{"{{title}}", "x", "{title}"},
		{"{title}{branch}", "", "caisson/x"},
		{"a{title}b{title}", "-", "a-b-"},
		{"{title}\nline", "é", "é\nline"},
	} {
		tm, err := ParseTemplate(c.text, []string{"title"}, false)
		if err != nil {
			t.Fatal(err)
		}
		got, err := tm.Fill(map[string]string{"title": c.value, "branch": "caisson/x"})
		if err != nil || got != c.want {
			t.Errorf("%q of %q: %q, %v", c.text, c.value, got, err)
		}
		if tm.String() != c.text {
			t.Errorf("%q is shown as %q", c.text, tm)
		}
	}
	for _, text := range []string{"{title}", "{title}x", "{branch}"} {
		tm, err := ParseTemplate(text, []string{"title"}, false)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := tm.Fill(map[string]string{"title": "--repo=evil", "branch": "-b"}); caisson.CodeOf(err) != caisson.CodeCallInvalid {
			t.Errorf("%q took an option: %q, %v", text, got, err)
		}
	}
	for _, text := range []string{"{", "}", "{title", "title}", "{who}", "{ title }", "{}", "{{}", "a\x00"} {
		if _, err := ParseTemplate(text, []string{"title"}, false); err == nil {
			t.Errorf("%q was read", text)
		}
	}
	if _, err := ParseTemplate("{title}", []string{"title"}, true); err == nil {
		t.Error("the program has a value in it")
	}
}

func TestInput(t *testing.T) {
	v := Verb{Input: []Field{
		{Name: "title", Type: String, Max: 5},
		{Name: "kind", Type: String, Max: 10, Enum: []string{"a", "b"}, Optional: true},
		{Name: "tag", Type: String, Max: 10, Pattern: "v[0-9]+|x", Optional: true},
		{Name: "n", Type: Integer},
		{Name: "draft", Type: Boolean, Optional: true},
	}}
	s, err := schema.Compile(v.Schema())
	if err != nil {
		t.Fatal(err)
	}
	for input, want := range map[string]string{
		`{"title":"t","n":3}`: "t|||3|false",
		`{"title":"t","n":-3,"kind":"a","tag":"v12","draft":true}`: "t|a|v12|-3|true",
	} {
		p, err := s.Prepare(json.RawMessage(input))
		if err != nil {
			t.Errorf("%s: %v", input, err)
			continue
		}
		values, err := v.Values(p.Input)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range v.Input {
			got = append(got, values[f.Name])
		}
		if strings.Join(got, "|") != want {
			t.Errorf("%s: %q", input, got)
		}
	}
	for _, input := range []string{
		`{"n":1}`, `{"title":"t","n":1,"more":1}`, `{"title":"toolong","n":1}`, `{"title":"t","n":1.5}`, `{"title":"t","n":"1"}`,
		`{"title":"t","n":1,"kind":"c"}`, `{"title":"t","n":1,"tag":"v12x"}`, `{"title":"t","n":1,"tag":"av1"}`, `{"title":1,"n":1}`, `[]`,
	} {
		if _, err := s.Prepare(json.RawMessage(input)); err == nil {
			t.Errorf("%s was taken", input)
		}
	}
	if _, err := v.Values(json.RawMessage(`{"title":"a\u0000b","n":1,"kind":"","tag":"","draft":false}`)); caisson.CodeOf(err) != caisson.CodeCallInvalid {
		t.Errorf("a NUL byte was taken: %v", err)
	}
	if ValidField("branch") || ValidField("A") || ValidField("") || ValidField("a-b") || !ValidField("a_1") {
		t.Error("names of fields")
	}
}

func FuzzTemplate(f *testing.F) {
	for _, seed := range []string{"{title}", "--a={title}", "{{}}", "{", "x{branch}{title}"} {
		f.Add(seed, "value")
	}
	f.Fuzz(func(t *testing.T, text, value string) {
		tm, err := ParseTemplate(text, []string{"title"}, false)
		if err != nil {
			return
		}
		got, err := tm.Fill(map[string]string{"title": value})
		if err != nil {
			return
		}
		if strings.HasPrefix(got, "-") && !strings.HasPrefix(text, "-") {
			t.Fatalf("%q of %q became the option %q", text, value, got)
		}
		again, err := ParseTemplate(tm.String(), []string{"title"}, false)
		if err != nil || again.String() != tm.String() {
			t.Fatalf("%q is shown as %q, which is not the same", text, tm)
		}
	})
}

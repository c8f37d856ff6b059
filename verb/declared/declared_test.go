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
		{Name: "of", Type: Integer, Least: new(int64(2)), Most: new(int64(9)), Default: int64(5)},
		{Name: "by", Type: String, Max: 3, Default: "me"},
		{Name: "yes", Type: Boolean, Default: true},
	}}
	s, err := schema.Compile(v.Schema())
	if err != nil {
		t.Fatal(err)
	}
	for input, want := range map[string]string{
		`{"title":"t","n":3}`: "t|<none>|<none>|3|<none>|5|me|true",
		`{"title":"t","n":-3,"kind":"a","tag":"v12","draft":true,"of":9,"by":"","yes":false}`: "t|a|v12|-3|true|9||false",
		`{"title":"t","n":9007199254740991}`:                                                  "t|<none>|<none>|9007199254740991|<none>|5|me|true",
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
			value, is := values[f.Name]
			if !is {
				value = "<none>"
			}
			got = append(got, value)
		}
		if strings.Join(got, "|") != want {
			t.Errorf("%s: %q", input, got)
		}
	}
	for _, input := range []string{
		`{"n":1}`, `{"title":"t","n":1,"more":1}`, `{"title":"toolong","n":1}`, `{"title":"t","n":1.5}`, `{"title":"t","n":"1"}`,
		`{"title":"t","n":1,"kind":"c"}`, `{"title":"t","n":1,"tag":"v12x"}`, `{"title":"t","n":1,"tag":"av1"}`, `{"title":1,"n":1}`, `[]`,
		`{"title":"t","n":1,"of":1}`, `{"title":"t","n":1,"of":10}`, `{"title":"t","n":1,"kind":""}`, `{"title":"t","n":1,"draft":null}`, `{"title":"t","n":1e17}`,
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

// An argument that a value is lacking for is left out, with those of its group.
func TestArgv(t *testing.T) {
	v := Verb{Input: []Field{
		{Name: "title", Type: String, Max: 9}, {Name: "label", Type: String, Max: 9, Optional: true}, {Name: "by", Type: String, Max: 9, Optional: true, Default: "me"},
	}}
	for i, arg := range []struct {
		text  string
		group int
	}{{"prog", 0}, {"{title}", 0}, {"--label", 1}, {"{label}", 1}, {"--by={by}", 0}, {"--label={label}", 0}, {"--task", 2}, {"{task}{label}", 2}, {"end", 0}} {
		tm, err := ParseTemplate(arg.text, []string{"title", "label", "by"}, i == 0)
		if err != nil {
			t.Fatal(err)
		}
		v.Run = append(v.Run, tm.Grouped(arg.group))
	}
	for values, want := range map[string]string{
		"title=t by=me":               "prog t --by=me end",
		"title=t by=me label=l":       "prog t --label l --by=me --label=l end",
		"title=t by=me label= task=k": "prog t --label  --by=me --label= --task k end",
		"title=t by=me task=k":        "prog t --by=me end",
		"title= by= label=a task=b":   "prog  --label a --by= --label=a --task ba end",
	} {
		given := map[string]string{}
		for _, pair := range strings.Fields(values) {
			name, value, _ := strings.Cut(pair, "=")
			given[name] = value
		}
		if got, err := v.Argv(given); err != nil || strings.Join(got, " ") != want {
			t.Errorf("%s: %q, %v", values, got, err)
		}
	}
	for name, may := range map[string]bool{"title": false, "label": true, "by": false, "task": true, "branch": false} {
		if v.MayLack(name) != may {
			t.Errorf("MayLack(%s) is %v", name, !may)
		}
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

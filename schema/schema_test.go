package schema_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/schema"
)

const shell = `{
	"type": "object",
	"title": "Shell",
	"properties": {
		"command": {"type": "string", "minLength": 1, "description": "a line"},
		"timeout": {"type": "integer", "minimum": 1, "maximum": 3600, "default": 120},
		"mode": {"enum": ["a", "b"]},
		"list": {"type": "array", "items": {"type": "object", "properties": {"all": {"type": "boolean", "default": false}}, "additionalProperties": false}}
	},
	"required": ["command"],
	"additionalProperties": false
}`

func compile(t testing.TB, raw string) *schema.Schema {
	t.Helper()
	s, err := schema.Compile(json.RawMessage(raw))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestPrepare(t *testing.T) {
	s := compile(t, shell)
	for _, c := range []struct {
		name, in, want string
		repaired, cut  bool
	}{
		{"whole", ` {"timeout":5, "command":"ls"} `, `{"command":"ls","timeout":5}`, false, false},
		{"default", `{"command":"ls"}`, `{"command":"ls","timeout":120}`, false, false},
		{"defaults in elements", `{"command":"ls","list":[{},{"all":true}]}`, `{"command":"ls","list":[{"all":false},{"all":true}],"timeout":120}`, false, false},
		{"integral float", `{"command":"ls","timeout":1e1}`, `{"command":"ls","timeout":10}`, false, false},
		{"no closer", `{"command":"ls"`, `{"command":"ls","timeout":120}`, true, false},
		{"trailing comma", `{"command":"ls",}`, `{"command":"ls","timeout":120}`, true, false},
		{"surplus closer", `{"command":"ls"}}`, `{"command":"ls","timeout":120}`, true, false},
		{"tag", "{\"command\":\"ls\"}\n</tool_call>", `{"command":"ls","timeout":120}`, true, false},
		{"cut string", `{"command":"ls /tm`, `{"command":"ls /tm","timeout":120}`, true, true},
		{"cut key", `{"command":"ls","tim`, `{"command":"ls","timeout":120}`, true, true},
		{"cut number", `{"command":"ls","timeout":12`, `{"command":"ls","timeout":12}`, true, true},
	} {
		got, err := s.Prepare(json.RawMessage(c.in))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if string(got.Input) != c.want || got.Repaired != c.repaired || got.Cut != c.cut {
			t.Errorf("%s: got %s repaired=%t cut=%t, want %s %t %t", c.name, got.Input, got.Repaired, got.Cut, c.want, c.repaired, c.cut)
		}
		again, err := s.Prepare(got.Input)
		if err != nil || string(again.Input) != string(got.Input) || again.Repaired {
			t.Errorf("%s: preparing again gave %s, %v", c.name, again.Input, err)
		}
	}
}

func TestPrepareRefuses(t *testing.T) {
	s := compile(t, shell)
	for name, in := range map[string]string{
		"unknown key":      `{"command":"ls","sudo":true}`,
		"missing":          `{"timeout":5}`,
		"empty":            ``,
		"type":             `{"command":["ls"]}`,
		"bound":            `{"command":"ls","timeout":0}`,
		"fraction":         `{"command":"ls","timeout":1.5}`,
		"enum":             `{"command":"ls","mode":"c"}`,
		"beyond 2^53":      `{"command":"ls","timeout":9007199254740993}`,
		"not an object":    `["ls"]`,
		"text":             `ls -la`,
		"duplicate key":    `{"command":"ls","command":"rm"}`,
		"two values":       `{"command":"ls"}{"command":"rm"}`,
		"interleaved":      `{"comm{"command":"lsand":"rm"}`,
		"value after end":  `{"command":"ls"} "rm"`,
		"wrong closer":     `{"command":"ls"]`,
		"bad escape":       `{"command":"l\s`,
		"not UTF-8":        "{\"command\":\"l\xff\"}",
		"comma, then more": `{"list":[{},],"command":"ls"}`,
	} {
		got, err := s.Prepare(json.RawMessage(in))
		if caisson.CodeOf(err) != caisson.CodeCallInvalid {
			t.Errorf("%s: got %s, %v; want %s", name, got.Input, err, caisson.CodeCallInvalid)
		}
	}
}

// Arguments of a model that were cut off or interleaved with another call's.
// Origin: charmbracelet/fantasy PR 294.
func TestCase_R15(t *testing.T) {
	s := compile(t, `{"type":"object","properties":{"path":{"type":"string"},"content":{"type":"string"}},"required":["path","content"],"additionalProperties":false}`)
	whole := `{"path":"a/b.txt","content":"one\ntwo \u00e9 \ud83d\ude00"}`
	for cut := range len(whole) {
		got, err := s.Prepare(json.RawMessage(whole[:cut]))
		if err != nil {
			continue
		}
		var value struct{ Path, Content string }
		if err := json.Unmarshal(got.Input, &value); err != nil {
			t.Fatal(err)
		}
		if value.Path != "a/b.txt" || !strings.HasPrefix("one\ntwo é 😀", value.Content) {
			t.Errorf("cut at %d: %s is no beginning of what was meant", cut, got.Input)
		}
		if !got.Repaired || (cut < len(whole)-1 && !got.Cut) {
			t.Errorf("cut at %d: repaired=%t cut=%t", cut, got.Repaired, got.Cut)
		}
	}
	other := `{"path":"c/d.txt","content":"other"}`
	for at := 1; at < len(whole)-1; at++ {
		if whole[at-1] == '\\' {
			continue
		}
		mixed := whole[:at] + other[:at%len(other)] + whole[at:] + other[at%len(other):]
		got, err := s.Prepare(json.RawMessage(mixed))
		if err != nil {
			continue
		}
		t.Errorf("interleaved at %d: %s was taken as %s", at, mixed, got.Input)
	}
}

func TestErrorsAreBounded(t *testing.T) {
	s := compile(t, shell)
	_, err := s.Prepare(json.RawMessage(`{"command":"ls","timeout":"` + strings.Repeat("é", 100_000) + `"}`))
	if err == nil || len(err.Error()) > 700 {
		t.Fatalf("got %d bytes of error", len(err.Error()))
	}
}

func TestDigest(t *testing.T) {
	base := compile(t, shell).Digest()
	same := strings.NewReplacer(`"title": "Shell",`, `"title": "Other", "examples": [1], "x-order": 3,`,
		`"description": "a line"`, `"description": "a shell line"`, `["a", "b"]`, `["b", "a"]`).Replace(shell)
	if got := compile(t, same).Digest(); got != base {
		t.Error("describing text changed the digest")
	}
	for _, change := range [][2]string{
		{`"minLength": 1`, `"minLength": 2`},
		{`"default": 120`, `"default": 60`},
		{`["a", "b"]`, `["a", "b", "c"]`},
		{`"required": ["command"]`, `"required": []`},
		{`"maximum": 3600`, `"maximum": 36000`},
		{`"default": false`, `"default": true`},
		{`"mode":`, `"title":`},
	} {
		changed := strings.Replace(shell, change[0], change[1], 1)
		if changed == shell {
			t.Fatalf("nothing changed: %v", change)
		}
		if compile(t, changed).Digest() == base {
			t.Errorf("%s for %s did not change the digest", change[1], change[0])
		}
	}
}

func TestCompileRefuses(t *testing.T) {
	wide := `{"type":"object","properties":{"x":{"$ref":"#/$defs/n0"}},"$defs":{`
	for i := range 30 {
		next := `{"$ref":"#/$defs/n` + string(rune('a'+i)) + `"}`
		name := "n0"
		if i > 0 {
			name = "n" + string(rune('a'+i-1))
		}
		wide += `"` + name + `":{"anyOf":[` + next + `,` + next + `]},`
	}
	wide += `"n` + string(rune('a'+29)) + `":{}}}`
	for name, raw := range map[string]string{
		"no JSON":         `{`,
		"no object":       `{"type":"string"}`,
		"no type":         `{"properties":{}}`,
		"old draft":       `{"type":"object","$schema":"http://json-schema.org/draft-04/schema#"}`,
		"self reference":  `{"type":"object","$ref":"#"}`,
		"loop":            `{"type":"object","allOf":[{"$ref":"#/$defs/a"}],"$defs":{"a":{"anyOf":[{"$ref":"#/$defs/b"}]},"b":{"$ref":"#/$defs/a"}}}`,
		"remote":          `{"type":"object","properties":{"a":{"$ref":"https://example.com/s.json"}}}`,
		"nowhere":         `{"type":"object","properties":{"a":{"$ref":"#/$defs/none"}}}`,
		"dynamic":         `{"type":"object","properties":{"a":{"$dynamicRef":"#x"}}}`,
		"bad pattern":     `{"type":"object","properties":{"a":{"pattern":"("}}}`,
		"invalid default": `{"type":"object","properties":{"a":{"type":"string","default":1}}}`,
		"exponential":     wide,
	} {
		if _, err := schema.Compile(json.RawMessage(raw)); caisson.CodeOf(err) != caisson.CodeCallInvalid {
			t.Errorf("%s: got %v, want %s", name, err, caisson.CodeCallInvalid)
		}
	}
}

func TestRecursiveSchema(t *testing.T) {
	s := compile(t, `{"type":"object","properties":{"next":{"$ref":"#"},"n":{"type":"integer","default":1}},"additionalProperties":false}`)
	got, err := s.Prepare(json.RawMessage(`{"next":{"next":{}}}`))
	if err != nil || string(got.Input) != `{"n":1,"next":{"n":1,"next":{"n":1}}}` {
		t.Fatalf("got %s, %v", got.Input, err)
	}
	// Each level tries its sub-schema four times over.
	s = compile(t, `{"type":"object","$defs":{"t":{"properties":{"a":{"anyOf":[{"$ref":"#/$defs/t"},{"$ref":"#/$defs/t"},{"$ref":"#/$defs/t"}]}}}},"properties":{"a":{"$ref":"#/$defs/t"}}}`)
	if _, err := s.Prepare(json.RawMessage(strings.Repeat(`{"a":`, 60) + `1` + strings.Repeat(`}`, 60))); err == nil {
		t.Error("an input that takes 3^60 steps was tried")
	}
	// A default that wants defaults without end.
	s = compile(t, `{"type":"object","properties":{"a":{"$ref":"#","default":{}},"b":{"$ref":"#","default":{}}}}`)
	if _, err := s.Prepare(json.RawMessage(`{}`)); err == nil {
		t.Error("defaults without end were applied")
	}
}

func FuzzCompilePrepare(f *testing.F) {
	f.Add(shell, `{"command":"ls"`)
	f.Add(`{"type":"object","properties":{"a":{"$ref":"#","default":{}}}}`, `{}`)
	f.Add(`{"type":"object","dependencies":{"a":["b"],"c":{"items":[{},{"not":{}}]}}}`, `{"a":1,}`)
	f.Fuzz(func(t *testing.T, raw, input string) {
		s, err := schema.Compile(json.RawMessage(raw))
		if err != nil {
			return
		}
		first, err := s.Prepare(json.RawMessage(input))
		if err != nil {
			if caisson.CodeOf(err) != caisson.CodeCallInvalid {
				t.Fatalf("code %s", caisson.CodeOf(err))
			}
			return
		}
		again, err := s.Prepare(first.Input)
		if err != nil || string(again.Input) != string(first.Input) || again.Repaired {
			t.Fatalf("%s, prepared again: %s, %v", first.Input, again.Input, err)
		}
	})
}

package config

import "testing"

func TestSalvage(t *testing.T) {
	for text, want := range map[string]string{
		"":                                     "",
		"state_dir: /a\nnonsense: 1\n":         "/a",
		"nonsense: 1\nstate_dir: '/a b'\n":     "/a b",
		"verbs: {a.b: {}}\nstate_dir: /a\n":    "/a",
		"limits: [\nstate_dir: /a\n":           "/a",
		"x: {\n\"state_dir\": /a # mine\ny\n":  "/a",
		"limits: {memory: lots}\n":             "",
		"state_dir: relative\n":                "",
		"state_dir: [\n":                       "",
		"x: {\nstate_dir: /a\nstate_dir: /b\n": "",
		"x: {\n  state_dir: /a\n":              "", // of something else
		"- a\n":                                "",
	} {
		c := Salvage(user(text))
		if c.StateDir != want {
			t.Errorf("%q: %q", text, c.StateDir)
		}
		if c.Preset != "sandboxed" || c.TrashDays != 14 || len(c.Verbs) != 0 {
			t.Errorf("%q: not the built-in settings: %+v", text, c)
		}
	}
}

func FuzzSalvage(f *testing.F) {
	f.Add("state_dir: /a\nx: [")
	f.Fuzz(func(t *testing.T, text string) {
		if c := Salvage(user(text)); c.Preset != "sandboxed" {
			t.Fatal(c.Preset)
		}
	})
}

package cli

import "testing"

// What turns the direction of text shows as what it is: something else.
func TestPrintable(t *testing.T) {
	for raw, want := range map[string]string{
		"a\tb\nc":        "a\tb\nc",
		"a\x1b[2Jb":      "a\ufffd[2Jb",
		"\u202eevil":     "\ufffdevil",
		"a\u061c\u200fb": "a\ufffd\ufffdb",
		"日本 é 😀":         "日本 é 😀",
	} {
		if got := printable(raw); got != want {
			t.Errorf("%q is shown as %q, want %q", raw, got, want)
		}
	}
}

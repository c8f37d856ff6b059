package tool

import (
	"bytes"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/caisson-run/caisson"
)

func TestApply(t *testing.T) {
	for _, c := range []struct {
		name, in string
		edits    []edit
		want     string
		code     caisson.Code
	}{
		{"one", "a b c", []edit{{Old: "b", New: "x"}}, "a x c", ""},
		{"each in what the last left", "a", []edit{{Old: "a", New: "b"}, {Old: "b", New: "c"}}, "c", ""},
		{"all", "a a", []edit{{Old: "a", New: "b", All: true}}, "b b", ""},
		{"deletion", "a\nb\n", []edit{{Old: "b\n"}}, "a\n", ""},
		{"twice", "a a", []edit{{Old: "a", New: "b"}}, "", caisson.CodeEditMismatch},
		{"none", "a", []edit{{Old: "b", New: "c"}}, "", caisson.CodeEditMismatch},
		{"all of none", "a", []edit{{Old: "b", New: "c", All: true}}, "", caisson.CodeEditMismatch},
		{"no change", "a", []edit{{Old: "a", New: "a"}}, "", caisson.CodeEditMismatch},
		{"second fails", "a b", []edit{{Old: "a", New: "x"}, {Old: "q", New: "y"}}, "", caisson.CodeEditMismatch},
		{"other bytes stay", "\xff\xfe a \x80", []edit{{Old: "a", New: "é"}}, "\xff\xfe é \x80", ""},
		{"line ends are the file's", "a\r\nb\r\nc\r\n", []edit{{Old: "a\nb", New: "x\ny\nz"}}, "x\r\ny\r\nz\r\nc\r\n", ""},
		{"mixed line ends are exact", "a\r\nb\nc\n", []edit{{Old: "a\nb", New: "x"}}, "", caisson.CodeEditMismatch},
		{"explicit CR", "a\r\nb\r\n", []edit{{Old: "a\r\n", New: "a\n"}}, "a\nb\r\n", ""},
	} {
		in := []byte(c.in)
		got, err := apply(in, c.edits)
		if caisson.CodeOf(err) != c.code || (err == nil && string(got) != c.want) {
			t.Errorf("%s: got %q, %v; want %q, %s", c.name, got, err, c.want, c.code)
		}
		if string(in) != c.in {
			t.Errorf("%s: the content given was changed", c.name)
		}
		if err == nil && !undo(got, c.edits, caisson.DigestOf(in)) {
			t.Errorf("%s: the way back was not found", c.name)
		}
		if err == nil && undo(append(got, '!'), c.edits, caisson.DigestOf(in)) {
			t.Errorf("%s: another content was taken for the result", c.name)
		}
	}
}

func TestMismatchSaysWhere(t *testing.T) {
	for in, want := range map[string]string{
		"one\n\tif  x {\n\t}\n":     "begins at line 2",
		"one\nif x {\xff\n":         "not UTF-8",
		"something else altogether": "without line numbers",
	} {
		old := "if x {\n}"
		if strings.Contains(in, "\xff") {
			old = "if x {\uFFFD"
		}
		_, err := apply([]byte(in), []edit{{Old: old, New: "y"}})
		if hint := caisson.AsError(err).HintText(); !strings.Contains(hint, want) {
			t.Errorf("%q: hint %q does not say %q", in, hint, want)
		}
	}
}

// A file is a list of words, each its own; an edit renames one, or all of a kind.
func TestApplyProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringMatching(`[a-c]{1,2}`)
		words := rapid.SliceOfN(word, 1, 12).Draw(t, "words")
		text := func() string { return "<" + strings.Join(words, "><") + ">" }
		before := text()
		var edits []edit
		valid := true
		for range rapid.IntRange(1, 4).Draw(t, "edits") {
			from := word.Draw(t, "from")
			to := rapid.StringMatching(`[a-c]{1,3}`).Draw(t, "to")
			all := rapid.Bool().Draw(t, "all")
			edits = append(edits, edit{Old: "<" + from + ">", New: "<" + to + ">", All: all})
			n := 0
			for _, w := range words {
				if w == from {
					n++
				}
			}
			valid = valid && from != to && (n == 1 || (all && n > 0))
			if !valid {
				break
			}
			for i := range words {
				if words[i] == from {
					words[i] = to
				}
			}
		}
		got, err := apply([]byte(before), edits)
		if valid != (err == nil) {
			t.Fatalf("%s with %+v: %v, want valid=%t", before, edits, err, valid)
		}
		if err != nil {
			return
		}
		if string(got) != text() {
			t.Fatalf("%s with %+v: got %s, want %s", before, edits, got, text())
		}
		if undo(got, edits, caisson.DigestOf([]byte(before+" "))) {
			t.Fatal("a way was found to what never was")
		}
	})
}

func TestUndoIsBounded(t *testing.T) {
	content := bytes.Repeat([]byte("x"), 1<<16)
	edits := []edit{{Old: "y", New: "x"}, {Old: "z", New: "x"}, {Old: "w", New: "x"}}
	if undo(content, edits, caisson.DigestOf([]byte("none"))) {
		t.Error("a way was found to what never was")
	}
}

func TestCompare(t *testing.T) {
	c := compare("f.txt", []byte("a\nb\nc\n"), []byte("a\nx\ny\nc\n"), false)
	if c.summary() != "+2 −1" {
		t.Errorf("got %s", c.summary())
	}
	want := "--- a/f.txt\n+++ b/f.txt\n@@ -1,3 +1,4 @@\n a\n-b\n+x\n+y\n c\n"
	if c.unified != want {
		t.Errorf("got %q, want %q", c.unified, want)
	}
	if c := compare("f", nil, []byte("a\n"), true); !strings.HasPrefix(c.unified, "--- /dev/null\n+++ b/f\n") || c.summary() != "+1 −0" {
		t.Errorf("got %q %s", c.unified, c.summary())
	}
	if c := compare("f", nil, []byte(strings.Repeat("--- long line ---\n", 1<<14)), true); len(c.unified) > maxPreview || !strings.Contains(c.unified, "more") || c.added != 1<<14 {
		t.Errorf("got %d bytes, +%d", len(c.unified), c.added)
	}
	if c := compare("f", []byte("a\x00b"), []byte("c"), false); !strings.Contains(c.unified, "3 bytes become 1 bytes") {
		t.Errorf("got %q", c.unified)
	}
}

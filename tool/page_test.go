package tool

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestNumber(t *testing.T) {
	long := strings.Repeat("é", 3_000)
	for _, c := range []struct {
		name, in      string
		offset, limit int
		text, notes   string
	}{
		{"whole", "a\nb\n", 1, 10, "     1\ta\n     2\tb\n", ""},
		{"empty", "", 1, 10, "", "the file is empty"},
		{"part", "a\nb\nc\n", 2, 1, "     2\tb\n", "lines 2 to 2 of 3; go on with offset 3"},
		{"after the end", "a\n", 5, 1, "", "the file has 1 line"},
		{"unfinished", "a\nb", 1, 10, "     1\ta\n     2\tb\n", "no newline at the end of the file"},
		{"CR LF", "a\r\nb\r\n", 1, 10, "     1\ta\n     2\tb\n", "lines end in CR LF"},
		{"CR here and there", "a\r\nb\n", 1, 10, "     1\ta\r\n     2\tb\n", ""},
		{"not UTF-8", "a\xff\xfeb\n", 1, 10, "     1\ta\uFFFDb\n", "bytes that are not UTF-8 are shown as \uFFFD"},
		{"long line", long + "\n", 1, 10, "     1\t" + strings.Repeat("é", 980) + "… [cut, 6000 bytes]\n", "1 long line cut where it says so"},
	} {
		p := number([]byte(c.in), c.offset, c.limit, 40_000)
		if p.text != c.text || strings.Join(p.notes(), "; ") != c.notes {
			t.Errorf("%s: got %q, %q", c.name, p.text, p.notes())
		}
	}
}

func TestNumberKeepsItsRoom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		content := rapid.SliceOfN(rapid.SampledFrom([]byte("ab\xff\xc3\xa9\n\n\r\x00")), 0, 5_000).Draw(t, "content")
		room := rapid.IntRange(100, 3_000).Draw(t, "room")
		p := number(content, 1, 5_000, room)
		if len(p.text) > room || !utf8.ValidString(p.text) {
			t.Fatalf("%d bytes in room %d, valid=%t", len(p.text), room, utf8.ValidString(p.text))
		}
		if len(content) > 0 && p.shown == 0 {
			t.Fatalf("nothing of %q was shown in %d bytes", content, room)
		}
		if want := strings.Count(p.text, "\n"); p.shown != want {
			t.Fatalf("%d lines are there, %d said", want, p.shown)
		}
	})
}

// Every line of a large file can be reached by going on where a page says.
func TestPagesReachEverything(t *testing.T) {
	var content strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&content, "line %d\n", i+1)
	}
	next, pages := 1, 0
	for next <= 20_000 {
		p := number([]byte(content.String()), next, 2_000, 39_600)
		for i, line := range strings.Split(strings.TrimSuffix(p.text, "\n"), "\n") {
			if want := fmt.Sprintf("line %d", next+i); !strings.HasSuffix(line, "\t"+want) {
				t.Fatalf("got %q, want %q", line, want)
			}
		}
		next += p.shown
		pages++
	}
	if pages < 10 || pages > 20 {
		t.Errorf("%d pages", pages)
	}
}

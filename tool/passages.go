package tool

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/caisson-run/caisson"
)

// edit is one replacement of an exact passage.
type edit struct {
	Old string `json:"old"`
	New string `json:"new"`
	All bool   `json:"all"`
}

// apply makes the edits one after another, each in what those before it left,
// or none of them. Each passage must occur exactly once, or with All at least
// once. Bytes outside the passages stay as they are, whatever they are.
//
// Where every line of content ends in CR LF and an edit has no CR, its line ends
// are taken as CR LF: a reader is shown lines without them.
func apply(content []byte, edits []edit) ([]byte, error) {
	crlf := allCRLF(content)
	for i, e := range edits {
		if crlf && !strings.Contains(e.Old+e.New, "\r") {
			e.Old, e.New = strings.ReplaceAll(e.Old, "\n", "\r\n"), strings.ReplaceAll(e.New, "\n", "\r\n")
		}
		if e.Old == "" {
			return nil, mismatch(i, edits, "the text to replace is empty")
		}
		if e.Old == e.New {
			return nil, mismatch(i, edits, "the text to replace and the new text are the same")
		}
		n := bytes.Count(content, []byte(e.Old))
		switch {
		case n == 0:
			err := mismatch(i, edits, "the text to replace does not occur")
			return nil, err.WithHint("%s", missing(content, e.Old))
		case n > 1 && !e.All:
			err := mismatch(i, edits, "the text to replace occurs %d times", n)
			return nil, err.WithHint("Give more of the lines around it, or set all.")
		}
		content = bytes.ReplaceAll(content, []byte(e.Old), []byte(e.New))
		if len(content) > maxFile {
			return nil, mismatch(i, edits, "the file would grow over 64 MiB")
		}
	}
	return content, nil
}

func mismatch(i int, edits []edit, format string, args ...any) *caisson.Error {
	if len(edits) > 1 {
		format = "edit %d of %d: " + format
		args = append([]any{i + 1, len(edits)}, args...)
	}
	return caisson.Errorf(caisson.CodeEditMismatch, format, args...).With("edit", i+1)
}

// missing says what may be wrong with a passage that does not occur.
func missing(content []byte, old string) string {
	const again = "Read the file again and give the text exactly, without line numbers."
	if !utf8.Valid(content) && strings.ContainsRune(old, utf8.RuneError) {
		return "The file has bytes that are not UTF-8, shown as \uFFFD; a passage cannot go across them. Choose one beside them, or use a program through shell."
	}
	// Only of files of a size that people write: the search is quadratic at worst.
	if len(content) > 1<<20 || len(old) > 1<<14 {
		return again
	}
	want := plainLines(strings.TrimSpace(old))
	have := plainLines(string(content))
	for at := 0; at+len(want) <= len(have); at++ {
		if slices.Equal(have[at:at+len(want)], want) {
			return fmt.Sprintf("A passage that differs only in white space begins at line %d. %s", at+1, again)
		}
	}
	return again
}

// plainLines returns lines with their white space made alike.
func plainLines(text string) []string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = strings.Join(strings.Fields(lines[i]), " ")
	}
	return lines
}

// maxUndo bounds the search of undo, each step of which hashes a file.
const maxUndo = 200

// undo tells whether content is what the edits made of a file of digest before:
// it looks for a way back that leads to it, and goes forward again to be sure.
// False means that no way was found, not that there is none.
func undo(content []byte, edits []edit, before caisson.Digest) bool {
	crlf := allCRLF(content)
	steps := maxUndo
	var back func(now []byte, left int) bool
	back = func(now []byte, left int) bool {
		if left == 0 {
			steps--
			if caisson.DigestOf(now) != before {
				return false
			}
			again, err := apply(now, edits)
			return err == nil && bytes.Equal(again, content)
		}
		e := edits[left-1]
		if crlf && !strings.Contains(e.Old+e.New, "\r") {
			e.Old, e.New = strings.ReplaceAll(e.Old, "\n", "\r\n"), strings.ReplaceAll(e.New, "\n", "\r\n")
		}
		if e.All {
			return e.New != "" && back(bytes.ReplaceAll(now, []byte(e.New), []byte(e.Old)), left-1)
		}
		for at := 0; at <= len(now) && steps > 0; at++ {
			next := bytes.Index(now[at:], []byte(e.New))
			if next < 0 {
				return false
			}
			at += next
			if back(slices.Concat(now[:at], []byte(e.Old), now[at+len(e.New):]), left-1) {
				return true
			}
		}
		return false
	}
	return back(content, len(edits))
}

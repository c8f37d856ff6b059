package tool

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
)

const (
	maxDiff    = 8 << 20  // of both texts: beyond it a diff says nothing to a person
	maxPreview = 64 << 10 // of a diff that is shown
)

// change is the difference of two contents of a file.
type change struct {
	unified        string // bounded, valid UTF-8
	added, removed int    // lines
}

func compare(name string, before, after []byte, created bool) change {
	from, to := "a/"+name, "b/"+name
	if created {
		from = "/dev/null"
	}
	if binary(before) || binary(after) || len(before)+len(after) > maxDiff {
		return change{unified: fmt.Sprintf("--- %s\n+++ %s\n%d bytes become %d bytes\n", from, to, len(before), len(after))}
	}
	text := diff.Diff(from, before, to, after)
	if first := bytes.IndexByte(text, '\n'); first >= 0 {
		text = text[first+1:] // "diff a b" says nothing more than the two lines after it
	}
	var c change
	for i, line := range bytes.Split(text, []byte("\n")) {
		switch {
		case i < 2 || len(line) == 0:
		case line[0] == '+':
			c.added++
		case line[0] == '-':
			c.removed++
		}
	}
	c.unified = boundLines(strings.ToValidUTF8(string(text), "\uFFFD"), maxPreview)
	return c
}

// summary is "+14 −2".
func (c change) summary() string { return fmt.Sprintf("+%d −%d", c.added, c.removed) }

// boundLines cuts text at a line's end so that it has at most limit bytes, its
// notice included; a first line that is longer is cut inside.
func boundLines(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	head := text[:limit-80]
	if end := strings.LastIndexByte(head, '\n'); end >= 0 {
		head = head[:end+1]
	} else {
		head = strings.ToValidUTF8(head, "") + "\n"
	}
	return head + fmt.Sprintf("[%s more, %d bytes]\n", count(strings.Count(text[len(head):], "\n"), "line"), len(text)-len(head))
}

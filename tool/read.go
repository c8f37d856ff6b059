package tool

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/caisson-run/caisson"
)

const (
	maxFile   = 64 << 20 // what Files.Read returns at most
	lineBytes = 2_000    // of a line that is shown: longer ones are data, not text
)

const readSchema = `{
	"type": "object",
	"properties": {
		"path": {"type": "string", "minLength": 1, "description": "File to read, relative to the workspace or absolute."},
		"offset": {"type": "integer", "minimum": 1, "default": 1, "description": "First line, from 1."},
		"limit": {"type": "integer", "minimum": 1, "maximum": 5000, "default": 2000, "description": "Number of lines at most."}
	},
	"required": ["path"],
	"additionalProperties": false
}`

type readInput struct {
	Path   string `json:"path"`
	Offset int    `json:"offset"`
	Limit  int    `json:"limit"`
}

// readTool shows lines of a text file with their numbers. Bytes that are not
// UTF-8 are shown as U+FFFD, and the result says so; a binary file is refused.
type readTool struct{ Options }

func (t *readTool) Spec() caisson.ToolSpec {
	return caisson.ToolSpec{
		Ref: caisson.ToolRef{Name: "read"},
		Description: `Read a text file of the workspace. Lines come with their numbers, a tab, and the text. ` +
			`A file must be read before it is changed. Very long lines are cut, and say so.`,
		Schema: json.RawMessage(readSchema), Effect: caisson.EffectRead, Reach: caisson.ReachInside, Parallel: true,
	}
}

func (t *readTool) Facets(input json.RawMessage) (caisson.Facets, error) {
	in, err := decode[readInput](input)
	if err != nil {
		return caisson.Facets{}, err
	}
	return t.pathFacets(in.Path, false)
}

func (o Options) pathFacets(path string, write bool) (caisson.Facets, error) {
	path, err := o.resolve(path)
	if err != nil {
		return caisson.Facets{}, err
	}
	return caisson.Facets{Paths: []caisson.PathUse{{Path: path, Write: write}}}, nil
}

func (t *readTool) Hold(_ context.Context, call caisson.Call, _ caisson.EffectID) (caisson.Executor, error) {
	in, err := decode[readInput](call.Input)
	if err != nil {
		return nil, err
	}
	path, err := t.resolve(in.Path)
	if err != nil {
		return nil, err
	}
	return doing(func(ctx context.Context) (caisson.Result, error) { return t.read(ctx, path, in) }), nil
}

func (t *readTool) read(ctx context.Context, path string, in readInput) (caisson.Result, error) {
	content, err := t.readFile(ctx, path)
	if err != nil {
		return caisson.Result{}, err
	}
	if binary(content.Data) {
		return caisson.Result{}, caisson.Errorf(caisson.CodePathInvalid, "%s is a binary file of %d bytes", t.show(path), content.Info.Size).
			WithHint("Look at it with a program, through shell.")
	}
	page := number(content.Data, max(in.Offset, 1), in.Limit, t.output()-noticeRoom)
	file := fileData{Path: path, Size: content.Info.Size, Invalid: page.invalid}
	notes := page.notes()
	if content.Info.Size > int64(len(content.Data)) {
		notes = append(notes, fmt.Sprintf("only the first %d of %d bytes can be read; the file cannot be changed with edit or write", len(content.Data), content.Info.Size))
	} else {
		// Of the bytes that were shown, not of what the boundary says they are.
		file.Digest = caisson.DigestOf(content.Data)
		t.Seen.put(path, file.Digest)
	}
	text := page.text
	if len(notes) > 0 {
		text += "[" + strings.Join(notes, "; ") + "]\n"
	}
	return caisson.Result{
		Text: text, Summary: fmt.Sprintf("%d of %s", page.shown, count(page.total, "line")),
		Data: data(file), Bytes: content.Info.Size,
	}, nil
}

// readFile reads a regular file whole, up to 64 MiB.
func (o Options) readFile(ctx context.Context, path string) (caisson.FileContent, error) {
	info, err := o.Sandbox.Files().Stat(ctx, path)
	if err != nil {
		return caisson.FileContent{}, err
	}
	switch info.Kind {
	case "dir":
		return caisson.FileContent{}, caisson.Errorf(caisson.CodePathInvalid, "%s is a directory", o.show(path)).
			WithHint("List it with glob.")
	case "other":
		return caisson.FileContent{}, caisson.Errorf(caisson.CodePathInvalid, "%s is not a regular file", o.show(path))
	}
	return o.Sandbox.Files().Read(ctx, path, 0, 0)
}

// binary tells whether content is no text, as git does: a NUL early on.
func binary(content []byte) bool {
	return bytes.IndexByte(content[:min(len(content), 8_000)], 0) >= 0
}

// noticeRoom is kept free in a result for what is said about it.
const noticeRoom = 400

// page is some lines of a file as they are shown.
type page struct {
	text                      string
	first, shown, total       int
	cut                       int // lines that were cut
	invalid, crlf, unfinished bool
}

func number(content []byte, offset, limit, room int) page {
	p := page{first: offset, crlf: allCRLF(content)}
	var out strings.Builder
	full := false
	for len(content) > 0 {
		line, rest, ended := bytes.Cut(content, []byte("\n"))
		content = rest
		p.total++
		p.unfinished = !ended
		if p.total < offset || p.shown == limit || full {
			continue
		}
		if p.crlf {
			line = bytes.TrimSuffix(line, []byte("\r"))
		}
		shown, cut, invalid := showLine(line, min(lineBytes, room-20))
		entry := fmt.Sprintf("%6d\t%s\n", p.total, shown)
		if out.Len()+len(entry) > room {
			full = true
			continue
		}
		out.WriteString(entry)
		p.shown++
		p.invalid = p.invalid || invalid
		if cut {
			p.cut++
		}
	}
	p.text = out.String()
	return p
}

func (p page) notes() []string {
	var notes []string
	switch {
	case p.total == 0:
		notes = append(notes, "the file is empty")
	case p.first > p.total:
		notes = append(notes, fmt.Sprintf("the file has %s", count(p.total, "line")))
	case p.first+p.shown-1 < p.total:
		notes = append(notes, fmt.Sprintf("lines %d to %d of %d; go on with offset %d", p.first, p.first+p.shown-1, p.total, p.first+p.shown))
	case p.unfinished:
		notes = append(notes, "no newline at the end of the file")
	}
	if p.crlf {
		notes = append(notes, "lines end in CR LF")
	}
	if p.cut > 0 {
		notes = append(notes, fmt.Sprintf("%s cut where it says so", count(p.cut, "long line")))
	}
	if p.invalid {
		notes = append(notes, "bytes that are not UTF-8 are shown as \uFFFD")
	}
	return notes
}

// showLine returns a line as valid UTF-8 of at most limit bytes and a note of
// how long it is where it was cut.
func showLine(line []byte, limit int) (text string, cut, invalid bool) {
	whole := len(line)
	if len(line) > limit {
		line = line[:max(limit-40, 0)]
		for i := 1; i <= utf8.UTFMax && i <= len(line); i++ {
			if tail := line[len(line)-i:]; utf8.RuneStart(tail[0]) {
				if !utf8.FullRune(tail) {
					line = line[:len(line)-i]
				}
				break
			}
		}
		cut = true
	}
	text = strings.ToValidUTF8(string(line), "\uFFFD")
	invalid = text != string(line)
	if len(text) > limit { // replacing made it longer
		text = strings.ToValidUTF8(text[:max(limit-40, 0)], "")
		cut = true
	}
	if cut {
		text += fmt.Sprintf("… [cut, %d bytes]", whole)
	}
	return text, cut, invalid
}

// allCRLF tells whether every line that ends does so in CR LF.
func allCRLF(content []byte) bool {
	lines := bytes.Count(content, []byte("\n"))
	return lines > 0 && lines == bytes.Count(content, []byte("\r\n"))
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

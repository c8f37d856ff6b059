package tool

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/caisson-run/caisson"
)

const globSchema = `{
	"type": "object",
	"properties": {
		"pattern": {"type": "string", "minLength": 1, "description": "Such as **/*.go; ** crosses directories."},
		"path": {"type": "string", "default": ".", "minLength": 1, "description": "Directory to look in."},
		"limit": {"type": "integer", "minimum": 1, "maximum": 1000, "default": 200, "description": "Number of paths at most."}
	},
	"required": ["pattern"],
	"additionalProperties": false
}`

const grepSchema = `{
	"type": "object",
	"properties": {
		"pattern": {"type": "string", "minLength": 1, "description": "Regular expression (RE2) that a line must match."},
		"path": {"type": "string", "default": ".", "minLength": 1, "description": "Directory to look in."},
		"include": {"type": "string", "default": "", "description": "Only files whose names match, such as *.go."},
		"context": {"type": "integer", "minimum": 0, "maximum": 10, "default": 0, "description": "Lines to show around a match."},
		"limit": {"type": "integer", "minimum": 1, "maximum": 500, "default": 100, "description": "Number of matches at most."}
	},
	"required": ["pattern"],
	"additionalProperties": false
}`

// globTool lists files by name.
type globTool struct{ Options }

type globInput struct {
	Pattern string `json:"pattern"`
	Path    string `json:"path"`
	Limit   int    `json:"limit"`
}

func (t *globTool) Spec() caisson.ToolSpec {
	return caisson.ToolSpec{
		Ref:         caisson.ToolRef{Name: "glob"},
		Description: `List files whose paths match a pattern, those changed last first.`,
		Schema:      json.RawMessage(globSchema), Effect: caisson.EffectRead, Reach: caisson.ReachInside, Parallel: true,
	}
}

func (t *globTool) Facets(input json.RawMessage) (caisson.Facets, error) {
	in, err := decode[globInput](input)
	if err != nil {
		return caisson.Facets{}, err
	}
	return t.pathFacets(in.Path, false)
}

func (t *globTool) Hold(_ context.Context, call caisson.Call, _ caisson.EffectID) (caisson.Executor, error) {
	in, err := decode[globInput](call.Input)
	if err != nil {
		return nil, err
	}
	dir, err := t.resolve(in.Path)
	if err != nil {
		return nil, err
	}
	return doing(func(ctx context.Context) (caisson.Result, error) {
		found, err := t.Sandbox.Files().Glob(ctx, dir, in.Pattern, in.Limit)
		if err != nil {
			return caisson.Result{}, err
		}
		return t.globbed(found), nil
	}), nil
}

func (t *globTool) globbed(found caisson.GlobResult) caisson.Result {
	l := listing{room: t.output() - noticeRoom}
	for _, path := range found.Paths {
		if !l.add(t.show(path)) {
			break
		}
	}
	return l.result(found.Total, "path", map[string]any{"total": found.Total})
}

// grepTool lists lines by what they hold.
type grepTool struct{ Options }

type grepInput struct {
	Pattern string `json:"pattern"`
	Path    string `json:"path"`
	Include string `json:"include"`
	Context int    `json:"context"`
	Limit   int    `json:"limit"`
}

func (t *grepTool) Spec() caisson.ToolSpec {
	return caisson.ToolSpec{
		Ref: caisson.ToolRef{Name: "grep"},
		Description: `Search the contents of files for a regular expression. Matches are shown as path:line: text, ` +
			`lines around them as path-line- text. Binary and very large files are left out, and counted.`,
		Schema: json.RawMessage(grepSchema), Effect: caisson.EffectRead, Reach: caisson.ReachInside, Parallel: true,
	}
}

func (t *grepTool) Facets(input json.RawMessage) (caisson.Facets, error) {
	in, err := decode[grepInput](input)
	if err != nil {
		return caisson.Facets{}, err
	}
	if _, err := regexp.Compile(in.Pattern); err != nil {
		return caisson.Facets{}, caisson.Errorf(caisson.CodeCallInvalid, "the pattern is not valid: %w", err)
	}
	return t.pathFacets(in.Path, false)
}

func (t *grepTool) Hold(_ context.Context, call caisson.Call, _ caisson.EffectID) (caisson.Executor, error) {
	in, err := decode[grepInput](call.Input)
	if err != nil {
		return nil, err
	}
	dir, err := t.resolve(in.Path)
	if err != nil {
		return nil, err
	}
	query := caisson.GrepQuery{Dir: dir, Pattern: in.Pattern, Include: in.Include, Context: in.Context, Limit: in.Limit}
	return doing(func(ctx context.Context) (caisson.Result, error) {
		found, err := t.Sandbox.Files().Grep(ctx, query)
		if err != nil {
			return caisson.Result{}, err
		}
		return t.grepped(found), nil
	}), nil
}

const matchBytes = 500 // of a line that matches: enough to recognise it

func (t *grepTool) grepped(found caisson.GrepResult) caisson.Result {
	l := listing{room: t.output() - noticeRoom}
	context := slices.ContainsFunc(found.Matches, func(m caisson.GrepMatch) bool { return m.Context })
	var path string
	var last int
	for _, m := range found.Matches {
		if last > 0 && (m.Path != path || m.Line > last+1) && context {
			l.lines.WriteString("--\n")
		}
		path, last = m.Path, m.Line
		text, _, _ := showLine([]byte(strings.TrimSuffix(m.Text, "\r")), matchBytes)
		mark := ":"
		if m.Context {
			mark = "-"
		}
		if !l.add(fmt.Sprintf("%s%s%d%s %s", t.show(m.Path), mark, m.Line, mark, text)) {
			break
		}
		if m.Context {
			l.shown--
		}
	}
	if found.Skipped > 0 {
		l.notes = append(l.notes, count(found.Skipped, "binary or very large file")+" left out")
	}
	return l.result(found.Total, "matching line", map[string]any{"total": found.Total, "skipped": found.Skipped})
}

// listing is a list of found things that keeps within its room.
type listing struct {
	room  int
	lines strings.Builder
	shown int
	notes []string
}

func (l *listing) add(line string) bool {
	// A name can hold a line break; in a list it would look like two.
	line = strings.NewReplacer("\n", `\n`, "\r", `\r`).Replace(line)
	if l.lines.Len()+len(line)+4 > l.room {
		return false
	}
	l.lines.WriteString(line + "\n")
	l.shown++
	return true
}

func (l *listing) result(total int, noun string, values map[string]any) caisson.Result {
	summary := count(total, noun)
	if l.shown < total {
		l.notes = append([]string{fmt.Sprintf("%d of %s shown; narrow the search to see others", l.shown, count(total, noun))}, l.notes...)
	}
	text := l.lines.String()
	if total == 0 {
		text = "Nothing found.\n"
	}
	if len(l.notes) > 0 {
		text += "[" + strings.Join(l.notes, "; ") + "]\n"
	}
	values["shown"] = l.shown
	return caisson.Result{Text: text, Summary: summary, Data: data(values)}
}

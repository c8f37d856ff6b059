package flow

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"text/template/parse"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/strictyaml"
)

// MaxRendered is the most that a prompt may be: what a task may hold, and room
// for the words around it.
const MaxRendered = 512 << 10

// Prompt is what a stage's template can use, and nothing else.
type Prompt struct {
	ID          string
	Title       string
	Type        string
	Branch      string
	Base        string
	Description string
	Facts       []string
	Constraints []string
	Criteria    []string
	Stage       string
	Artifact    string    // that the stage is to produce
	Round       int       // of that artifact, from 1
	Needs       []Need    // that the stage reads
	Findings    []Finding // that are open
	Mirror      string    // directory of the task's mirror inside
}

// Need is an artifact that a stage reads, in its last round.
type Need struct {
	Name  string
	Round int
	Path  string
}

// Finding is an open finding.
type Finding struct {
	N        int
	Severity string
	Text     string
}

// functions are what a template can call. None makes text longer than what it
// is given.
var functions = []string{"and", "or", "not", "eq", "ne", "len"}

var templateLine = regexp.MustCompile(`^template: prompt:(\d+)(?::\d+)?: (?:executing .*?: )?`)

// prompt reads a template.
func prompt(v strictyaml.Value) (string, error) {
	text, err := v.String()
	if err != nil {
		return "", err
	}
	if strings.TrimSpace(text) == "" {
		return "", v.Errorf("is empty")
	}
	if len(text) > MaxPrompt {
		return "", v.Errorf("%d bytes long; at most %d", len(text), MaxPrompt)
	}
	at := func(line int, message string) error {
		return &strictyaml.Error{File: v.File, Line: v.TextLine() + line - 1, Message: v.Key + ": " + message}
	}
	t, err := template.New("prompt").Parse(text)
	if err != nil {
		m := templateLine.FindStringSubmatch(err.Error())
		if m == nil {
			return "", v.Errorf("%v", err)
		}
		line, _ := strconv.Atoi(m[1]) // digits
		return "", at(line, strings.TrimPrefix(err.Error(), m[0]))
	}
	if len(t.Templates()) > 1 {
		return "", v.Errorf("templates are not defined in one")
	}
	if t.Tree == nil {
		return text, nil
	}
	c := checker{root: reflect.TypeFor[Prompt]()}
	if err := c.list(t.Root, c.root, false); err != nil {
		var bad *misuse
		if errors.As(err, &bad) {
			return "", at(1+strings.Count(text[:min(int(bad.at), len(text))], "\n"), bad.message)
		}
		return "", v.Errorf("%v", err)
	}
	return text, nil
}

// misuse is something in a template that is not allowed.
type misuse struct {
	at      parse.Pos
	message string
}

func (m *misuse) Error() string { return m.message }

func bad(n parse.Node, format string, args ...any) error {
	return &misuse{n.Position(), fmt.Sprintf(format, args...)}
}

// checker walks a template with the types that it would see: what it passes
// uses nothing but the fields of Prompt, and its work is bounded, since a list
// is gone through, and never within another.
type checker struct{ root reflect.Type }

func (c checker) list(l *parse.ListNode, dot reflect.Type, inRange bool) error {
	if l == nil {
		return nil
	}
	for _, n := range l.Nodes {
		if err := c.node(n, dot, inRange); err != nil {
			return err
		}
	}
	return nil
}

func (c checker) node(n parse.Node, dot reflect.Type, inRange bool) error {
	switch n := n.(type) {
	case *parse.TextNode, *parse.CommentNode:
		return nil
	case *parse.ActionNode:
		_, err := c.pipe(n.Pipe, dot)
		return err
	case *parse.IfNode:
		if _, err := c.pipe(n.Pipe, dot); err != nil {
			return err
		}
		return errors.Join(c.list(n.List, dot, inRange), c.list(n.ElseList, dot, inRange))
	case *parse.RangeNode:
		if inRange {
			return bad(n, "a range within a range")
		}
		over, err := c.pipe(n.Pipe, dot)
		if err != nil {
			return err
		}
		if over == nil || over.Kind() != reflect.Slice {
			return bad(n, "range goes through a list")
		}
		return errors.Join(c.list(n.List, over.Elem(), true), c.list(n.ElseList, dot, inRange))
	default:
		return bad(n, "%s is not used in a prompt", n)
	}
}

// pipe returns the type of what a pipeline gives; nil where that can be several.
func (c checker) pipe(p *parse.PipeNode, dot reflect.Type) (reflect.Type, error) {
	if len(p.Decl) > 0 {
		return nil, bad(p, "variables are not used in a prompt")
	}
	if len(p.Cmds) != 1 {
		return nil, bad(p, "one value at a time, without |")
	}
	args := p.Cmds[0].Args
	if f, ok := args[0].(*parse.IdentifierNode); ok {
		if !slices.Contains(functions, f.Ident) {
			return nil, bad(f, "function %q is not used in a prompt; %s are", f.Ident, strings.Join(functions, ", "))
		}
		var types []reflect.Type
		for _, arg := range args[1:] {
			of, err := c.arg(arg, dot)
			if err != nil {
				return nil, err
			}
			types = append(types, of)
		}
		return call(f, types)
	}
	if len(args) > 1 {
		return nil, bad(args[1], "%s is no function", args[0])
	}
	return c.arg(args[0], dot)
}

// call returns the type of what a function gives for values of these types.
func call(f *parse.IdentifierNode, of []reflect.Type) (reflect.Type, error) {
	takes, fits := "", false
	switch f.Ident {
	case "and", "or":
		takes, fits = "values", len(of) > 0
		if fits {
			return nil, nil // any of them
		}
	case "not":
		takes, fits = "one value", len(of) == 1
	case "len":
		takes = "a text or a list"
		fits = len(of) == 1 && of[0] != nil && (of[0].Kind() == reflect.String || of[0].Kind() == reflect.Slice)
		if fits {
			return reflect.TypeFor[int](), nil
		}
	default: // eq, ne
		takes, fits = "two values of one type", len(of) == 2
		for _, t := range of {
			fits = fits && t == of[0] && t != nil && t.Comparable() && t.Kind() != reflect.Struct
		}
	}
	if !fits {
		return nil, bad(f, "%s takes %s", f.Ident, takes)
	}
	return reflect.TypeFor[bool](), nil
}

func (c checker) arg(n parse.Node, dot reflect.Type) (reflect.Type, error) {
	switch n := n.(type) {
	case *parse.DotNode:
		if dot == c.root {
			return nil, bad(n, "name a field")
		}
		return dot, nil
	case *parse.FieldNode:
		return c.field(n, dot, n.Ident)
	case *parse.VariableNode:
		if n.Ident[0] != "$" || len(n.Ident) == 1 {
			return nil, bad(n, "%s is not used in a prompt", n)
		}
		return c.field(n, c.root, n.Ident[1:])
	case *parse.PipeNode:
		return c.pipe(n, dot)
	case *parse.StringNode:
		return reflect.TypeFor[string](), nil
	case *parse.BoolNode:
		return reflect.TypeFor[bool](), nil
	case *parse.NumberNode:
		if !n.IsInt || n.IsComplex && !n.IsFloat {
			return nil, bad(n, "%s is no whole number", n)
		}
		return reflect.TypeFor[int](), nil
	default:
		return nil, bad(n, "%s is not used in a prompt", n)
	}
}

func (c checker) field(n parse.Node, of reflect.Type, path []string) (reflect.Type, error) {
	for _, name := range path {
		if of == nil || of.Kind() != reflect.Struct {
			return nil, bad(n, "unknown field %s", n)
		}
		f, ok := of.FieldByName(name)
		if !ok {
			return nil, bad(n, "unknown field .%s; known are %s", name, strings.Join(fieldNames(of), ", "))
		}
		of = f.Type
	}
	return of, nil
}

func fieldNames(of reflect.Type) []string {
	var names []string
	for f := range of.Fields() {
		names = append(names, "."+f.Name)
	}
	return names
}

// PromptOf is what the prompt of a stage of a task is made from.
func PromptOf(s Stage, t caisson.Task) Prompt {
	mirror := caisson.ControlDir + "/" + caisson.ControlTasks + "/" + string(t.ID)
	p := Prompt{
		ID: string(t.ID), Title: t.Title, Type: string(t.Type), Branch: t.Branch, Base: t.Base, Description: t.Description,
		Facts: t.Facts, Constraints: t.Constraints, Stage: s.Name, Artifact: s.Artifact, Round: 1, Mirror: mirror,
	}
	for _, c := range t.Criteria {
		p.Criteria = append(p.Criteria, c.Text)
	}
	for _, f := range t.Findings {
		if f.State == caisson.FindingOpen {
			p.Findings = append(p.Findings, Finding{f.N, string(f.Severity), f.Text})
		}
	}
	rounds := map[string]int{}
	for _, a := range t.Artifacts {
		rounds[a.Name] = max(rounds[a.Name], a.Round)
	}
	p.Round = rounds[s.Artifact] + 1
	for _, need := range s.Needs {
		path := fmt.Sprintf("%s/artifacts/%s.%d.md", mirror, need, rounds[need])
		p.Needs = append(p.Needs, Need{need, rounds[need], path})
	}
	return p
}

// Render writes the prompt of a stage of a loaded workflow.
func (s Stage) Render(p Prompt) (string, error) {
	t, err := template.New("prompt").Parse(s.Prompt)
	if err != nil {
		return "", fmt.Errorf("read prompt of %s: %w", s.Name, err)
	}
	out := &bounded{left: MaxRendered}
	if err := t.Execute(out, p); err != nil {
		if out.left < 0 {
			return "", caisson.Errorf(caisson.CodeLimitInvalid, "the prompt of %s is longer than %d bytes", s.Name, MaxRendered)
		}
		return "", caisson.Errorf(caisson.CodeWorkflowInvalid, "the prompt of %s: %w", s.Name, err)
	}
	return out.String(), nil
}

// bounded stops a template that writes too much.
type bounded struct {
	bytes.Buffer
	left int
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.left -= len(p); b.left < 0 {
		return 0, errors.New("too long")
	}
	return b.Buffer.Write(p)
}

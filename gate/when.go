package gate

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/gate/shell"
)

// costLimit bounds an expression, in CEL's units of about one operation each:
// enough for every word of the longest line, some milliseconds at most.
const costLimit = 200_000

// maxExpression bounds the text of one expression.
const maxExpression = 8 << 10

// variables are what an expression can look at, with CEL's type and what it
// holds. docs/policy.md is made from this table.
func variables() []Variable {
	return []Variable{
		{"tool", "string", "the tool: NAME or SERVER/NAME", cel.StringType},
		{"effect", "string", "read, idempotent, reconcilable or unsafe", cel.StringType},
		{"reach", "string", "inside, outside or ledger", cel.StringType},
		{"input", "map", "the call's input", cel.DynType},
		{"commands", "list", "the simple commands that lines and programs were read as, each {program, words, via}; what is not known makes an expression that needs it unknown", cel.ListType(cel.DynType)},
		{"opaque", "bool", "whether there may be more commands than could be read", cel.BoolType},
		{"paths", "list", "paths used, each {path, write}; a path that is not known is unknown", cel.ListType(cel.DynType)},
		{"run", "string", "the run's id", cel.StringType},
		{"workspace", "string", "absolute path of the workspace; empty without one", cel.StringType},
		{"isolation", "map", "engine (a string), and true or false by control: files, network, processes, memory, pids, cpu, disk, privileges, syscalls", cel.MapType(cel.StringType, cel.DynType)},
	}
}

// conditions compiles expressions.
type conditions struct{ env *cel.Env }

func newConditions() (*conditions, error) {
	var options []cel.EnvOption
	for _, v := range variables() {
		options = append(options, cel.Variable(v.Name, v.celType))
	}
	env, err := cel.NewEnv(options...)
	if err != nil {
		return nil, fmt.Errorf("make environment: %w", err)
	}
	return &conditions{env}, nil
}

// condition is a compiled expression.
type condition struct {
	program cel.Program
	lines   bool // it looks at what was read of command lines
}

func (c *conditions) compile(text string) (*condition, error) {
	if len(text) > maxExpression {
		return nil, fmt.Errorf("longer than %d bytes", maxExpression)
	}
	ast, issues := c.env.Compile(text)
	if err := issues.Err(); err != nil {
		first, _, _ := strings.Cut(err.Error(), "\n")
		return nil, errors.New(strings.TrimPrefix(first, "ERROR: <input>:"))
	}
	if t := ast.OutputType(); !t.IsExactType(cel.BoolType) && !t.IsExactType(cel.DynType) {
		return nil, fmt.Errorf("must be true or false, not of type %s", ast.OutputType())
	}
	program, err := c.env.Program(ast, cel.CostLimit(costLimit))
	if err != nil {
		return nil, fmt.Errorf("plan expression: %w", err)
	}
	out := &condition{program: program}
	for _, reference := range ast.NativeRep().ReferenceMap() {
		out.lines = out.lines || reference.Name == "commands" || reference.Name == "paths"
	}
	return out, nil
}

// truth is what an expression came to.
type truth int

const (
	no truth = iota
	yes
	unsure // an error, or it needs what is not known
)

func (c *condition) eval(in map[string]any) (result truth, why string) {
	defer func() {
		if p := recover(); p != nil { // a fault of the library on a hostile input
			result, why = unsure, "the expression could not be evaluated"
		}
	}()
	out, _, err := c.program.Eval(in)
	switch {
	case err != nil:
		return unsure, err.Error()
	case types.IsUnknown(out):
		return unsure, "it needs a word or path that is not known"
	case out == types.True:
		return yes, ""
	case out == types.False:
		return no, ""
	default:
		return unsure, "it is neither true nor false"
	}
}

// activation is what expressions see of a call. Values are made when an
// expression first asks for them.
func activation(call caisson.Call, subject caisson.Subject, readings []shell.Reading, all []use) map[string]any {
	lazily := func(value func() any) func() any {
		var once any
		return func() any {
			if once == nil {
				once = value()
			}
			return once
		}
	}
	opaque := false
	for _, r := range readings {
		opaque = opaque || len(r.Opaque) > 0
	}
	return map[string]any{
		"tool": call.Tool.String(), "effect": string(call.Effect), "reach": string(call.Reach),
		"opaque": opaque, "run": string(subject.Run), "workspace": subject.Workspace,
		"input":     lazily(func() any { return inputValue(call.Input) }),
		"commands":  lazily(func() any { return commandValues(readings) }),
		"paths":     lazily(func() any { return pathValues(all) }),
		"isolation": lazily(func() any { return isolationValue(subject.Isolation) }),
	}
}

func inputValue(raw json.RawMessage) any {
	var value any
	if len(raw) == 0 {
		return map[string]any{}
	}
	if err := json.Unmarshal(raw, &value); err != nil {
		return types.WrapErr(fmt.Errorf("read input: %w", err))
	}
	return value
}

// unknownValue makes every expression that depends on it unknown, while one
// that is decided without it is decided.
func unknownValue() ref.Val { return types.NewUnknown(1, nil) }

func wordValue(w shell.Word) any {
	if !w.Known || w.Tilde {
		return unknownValue()
	}
	return w.Text
}

func commandValues(readings []shell.Reading) any {
	list := []any{}
	for _, r := range readings {
		for _, c := range r.Commands {
			words := make([]any, len(c.Words))
			for i, w := range c.Words {
				words[i] = wordValue(w)
			}
			list = append(list, map[string]any{"program": words[0], "words": words, "via": c.Via})
		}
	}
	return list
}

func pathValues(all []use) any {
	list := make([]any, len(all))
	for i, u := range all {
		var p any = u.Path
		if !u.known {
			p = unknownValue()
		}
		list[i] = map[string]any{"path": p, "write": u.Write}
	}
	return list
}

func isolationValue(i caisson.Isolation) any {
	out := map[string]any{"engine": i.Engine}
	for _, c := range caisson.Controls() {
		out[string(c)] = i.Enforces(c)
	}
	return out
}

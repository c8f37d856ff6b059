// Package tool holds the tools that an agent is given: the registry by name, and
// the built-in ones that work on the files of a sandbox and run commands in it.
//
// Every built-in tool acts through [caisson.Sandbox] alone, so what it can
// reach is what the boundary lets it reach; no path is opened on the host. A
// tool judges nothing: whether a call may happen was decided before it is held.
package tool

import (
	"regexp"
	"slices"
	"strings"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/schema"
)

// Registry is a set of tools by the name that a model calls them by. It does
// not change, so it is safe for concurrent use.
type Registry struct {
	order  []string
	byName map[string]caisson.Tool
}

// modelNames are the names that every model provider takes.
var modelNames = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// NewRegistry makes a registry. Two tools of one name, a name that providers do
// not take, and a schema that cannot be used are errors: a tool is never left
// out in silence.
func NewRegistry(tools ...caisson.Tool) (*Registry, error) {
	r := &Registry{byName: map[string]caisson.Tool{}}
	for _, t := range tools {
		spec := t.Spec()
		name := ModelName(spec.Ref)
		if !modelNames.MatchString(name) {
			return nil, caisson.Errorf(caisson.CodeConfigInvalid, "a tool cannot be called %q", name).
				WithHint("Use 1 to 64 letters, digits, - and _.")
		}
		if _, taken := r.byName[name]; taken {
			return nil, caisson.Errorf(caisson.CodeAlreadyExists, "there are two tools called %q", name)
		}
		if _, err := schema.Compile(spec.Schema); err != nil {
			return nil, caisson.Errorf(caisson.CodeConfigInvalid, "tool %s: %w", name, err)
		}
		r.byName[name] = t
		r.order = append(r.order, name)
	}
	return r, nil
}

// ModelName is the name that a model calls a tool by: its own, and that of an
// MCP server's tool with the server's before it.
func ModelName(ref caisson.ToolRef) string {
	if ref.Server == "" {
		return ref.Name
	}
	return ref.Server + "__" + ref.Name
}

// Get returns the tool that a model calls by name, or nil.
func (r *Registry) Get(name string) caisson.Tool { return r.byName[name] }

// Names returns the names in the order in which the tools were given.
func (r *Registry) Names() []string { return slices.Clone(r.order) }

// Specs returns what the tools are, in the same order.
func (r *Registry) Specs() []caisson.ToolSpec {
	specs := make([]caisson.ToolSpec, len(r.order))
	for i, name := range r.order {
		specs[i] = r.byName[name].Spec()
	}
	return specs
}

// ModelTools returns the tools as a model sees them, in the same order, so that
// a provider's cache of the prompt holds from turn to turn.
func (r *Registry) ModelTools() []caisson.ModelTool {
	tools := make([]caisson.ModelTool, len(r.order))
	for i, spec := range r.Specs() {
		tools[i] = caisson.ModelTool{
			Name:        r.order[i],
			Description: strings.TrimSpace(spec.Description),
			Schema:      spec.Schema,
		}
	}
	return tools
}

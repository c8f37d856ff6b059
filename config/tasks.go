package config

import (
	"strings"

	"github.com/caisson-run/caisson/internal/strictyaml"
)

// Tasks say who does the stages of tasks.
type Tasks struct {
	Executor TaskRole
	Reviewer TaskRole // empty: as Executor
}

// TaskRole is who does a stage: somebody else's agent, or Caisson's own on a
// model. Empty: Caisson's own on the model of the settings.
type TaskRole struct {
	Agent []string // program and arguments, PromptPlace where the prompt goes, else as the last
	Model string   // provider/model
}

// PromptPlace stands for the prompt in the arguments of an agent.
const PromptPlace = "{prompt}"

// Argv is the command of the role's agent for a prompt; nil where it has none.
func (r TaskRole) Argv(prompt string) []string {
	if len(r.Agent) == 0 {
		return nil
	}
	placed := false
	var argv []string
	for _, arg := range r.Agent {
		placed = placed || strings.Contains(arg, PromptPlace)
		argv = append(argv, strings.ReplaceAll(arg, PromptPlace, prompt))
	}
	if !placed {
		argv = append(argv, prompt)
	}
	return argv
}

func (r TaskRole) empty() bool { return len(r.Agent) == 0 && r.Model == "" }

func (r TaskRole) String() string {
	if len(r.Agent) > 0 {
		return "agent " + strings.Join(r.Agent, " ")
	}
	return r.Model
}

// Review is who reviews.
func (t Tasks) Review() TaskRole {
	if t.Reviewer.empty() {
		return t.Executor
	}
	return t.Reviewer
}

func readRole(at func(*Config) *TaskRole) func(*Config, strictyaml.Value) error {
	return func(c *Config, v strictyaml.Value) error {
		var role TaskRole
		fields, err := v.Fields("agent", "model")
		if err != nil {
			return err
		}
		if len(fields) != 1 {
			return v.Errorf("it is either agent (a program and its arguments) or model (provider/model)")
		}
		switch f := fields[0]; f.Name {
		case "agent":
			items, err := f.Value.List()
			if err != nil {
				return err
			}
			for _, item := range items {
				arg, err := item.String()
				if err != nil {
					return err
				}
				role.Agent = append(role.Agent, arg)
			}
			if len(role.Agent) == 0 || role.Agent[0] == "" || strings.Contains(role.Agent[0], PromptPlace) {
				return f.Value.Errorf("it begins with the name of a program")
			}
		case "model":
			if role.Model, err = f.Value.String(); err != nil {
				return err
			}
			if !modelText.MatchString(role.Model) {
				return f.Value.Errorf("%q is not provider/model", role.Model)
			}
		}
		*at(c) = role
		return nil
	}
}

package host

import (
	"context"
	_ "embed"
	"fmt"
	"path/filepath"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/kernel"
)

// system is what the built-in agent is told of where it is.
//
//go:embed system.md
var system string

// work drives the run with the boundary open. A pause that comes before anything
// has begun is one like any other: what is read to begin with is read all the same.
func (s *session) work(given context.Context, opts DriveOptions) error {
	ctx, stop := pausable(given, opts.Pause)
	defer stop()
	if s.served != nil {
		return s.keepOpen(ctx)
	}
	if len(s.run.Spec.Argv) > 0 {
		return s.foreign(given, ctx, opts)
	}
	m, err := s.host.openModel(given, s.run.Spec, s.config)
	if err != nil {
		return err
	}
	instructions, err := s.instructions(given)
	if err != nil {
		return err
	}
	tools := map[string]caisson.Tool{}
	for _, name := range s.tools.Names() {
		tools[name] = s.tools.Get(name)
	}
	k := kernel.New(kernel.Options{
		Ledger: s.host.Ledger, Model: m, Door: s.door, Tools: tools, System: s.systemText(),
		Instructions: instructions, TurnEnd: s.turnEnd, Ending: s.endChannel, Redact: redact(s.config), Observe: opts.Observe,
	})
	s.notice = k.Notice
	_, err = k.Run(ctx, s.drive)
	return err
}

func (s *session) systemText() string {
	text := system + "\nYou work in " + s.workDir() + "."
	if s.ws != nil {
		kind := "worktree"
		if s.ws.Mode == caisson.WorkspaceClone {
			kind = "clone"
		}
		text += fmt.Sprintf(" It is a git %s on branch %s. Commit what should be kept.", kind, s.ws.Branch)
		for _, m := range s.ws.Submodules {
			if m.Empty != "" {
				text += fmt.Sprintf(" The submodule %q is empty: %s.", m.Path, m.Empty)
			}
		}
	}
	return text
}

// maxInstructions bounds each file of instructions: a repository is not trusted
// to leave room for the prompt.
const maxInstructions = 64 << 10

// instructions reads the files that a repository has for agents, inside the
// boundary. They are told as the repository's words, not as the person's.
func (s *session) instructions(ctx context.Context) ([]kernel.Instruction, error) {
	var found []kernel.Instruction
	for _, name := range s.config.Instructions {
		if filepath.IsAbs(name) { // the person's own: a repository cannot name one
			text, err := readOwn(name)
			if err != nil {
				return nil, err
			}
			if text != nil {
				found = append(found, kernel.Instruction{Name: name, Text: string(text)})
			}
			continue
		}
		if s.ws == nil {
			continue
		}
		content, err := s.box.Files().Read(ctx, name, 0, maxInstructions)
		switch caisson.CodeOf(err) {
		case "":
			found = append(found, kernel.Instruction{Name: name, Text: string(content.Data)})
		case caisson.CodeNotFound, caisson.CodePathOutside, caisson.CodePathInvalid:
			// The repository has none, or one that leads elsewhere.
		default:
			return nil, err
		}
	}
	return found, nil
}

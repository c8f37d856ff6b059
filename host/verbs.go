package host

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/process"
	"github.com/caisson-run/caisson/task"
	"github.com/caisson-run/caisson/tool"
	"github.com/caisson-run/caisson/verb"
	"github.com/caisson-run/caisson/verb/declared"
)

// verbs are what the sandbox of a session can ask for, by what it has.
func (s *session) verbs() []caisson.Tool {
	scene := verb.Scene{
		Outside: s.host.outside, Sandbox: s.box, Workspace: s.workDir(), Run: s.run.ID,
		Env: s.outer, Lookup: s.host.env, SpillDir: s.spillDir(), SpillFloor: s.config.Floors.Disk, Hide: redact(s.config),
	}
	out := []caisson.Tool{tool.AskTool{}}
	if s.ws != nil {
		scene.Branch, scene.Repo = s.ws.Branch, s.repoTop()
		if s.mirror != nil {
			scene.Task = s.mirror.bound()
		}
		tree := verb.Tree{Workspaces: s.host.workspaces, Workspace: *s.ws, Sandbox: s.box, Import: s.importWork, Turn: s.looks.do}
		if len(s.remotes) > 0 {
			out = append(out, verb.Push{Tree: tree, Remotes: s.remotes})
		}
		out = append(out, verb.Snapshot{Tree: tree})
		out = append(out, s.taskVerbs()...)
	}
	if s.network != nil {
		out = append(out, netAllow{networkTool{s.network.proxy}})
	}
	return append(out, declaredVerbs(s.config.Verbs, scene)...)
}

// declaredVerbs are those of the config that can work in a scene.
func declaredVerbs(verbs []declared.Verb, scene verb.Scene) []caisson.Tool {
	var out []caisson.Tool
	for _, d := range verbs {
		if d.Dir != declared.DirHostRepo || scene.Repo != "" {
			out = append(out, verb.NewDeclared(d, scene))
		}
	}
	return out
}

// checkPrograms tells of declared verbs whose programs are not there, or cannot
// be executed.
func checkPrograms(ctx context.Context, verbs []caisson.Tool) error {
	var missing []string
	for _, t := range verbs {
		d, is := t.(*verb.Declared)
		if !is {
			continue
		}
		if err := d.Look(ctx); caisson.CodeOf(err) == caisson.CodeProgramMissing {
			missing = append(missing, caisson.AsError(err).Error())
		} else if err != nil {
			return err
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return caisson.Errorf(caisson.CodeProgramMissing, "%s", strings.Join(missing, "; "))
}

// netAllow is the network's tool as a verb. Its calls are those of the tool, so
// that policy speaks of both at once.
type netAllow struct{ networkTool }

// Verb is what it is called inside.
func (netAllow) Verb() string { return "net.allow" }

// Spec implements caisson.Tool. What a request has opened is not opened again in
// another life of the sandbox.
func (n netAllow) Spec() caisson.ToolSpec {
	spec := n.networkTool.Spec()
	spec.Description = "Reach a host and port from inside the sandbox, until that is stopped."
	return spec
}

// Preview implements caisson.Previewer.
func (netAllow) Preview(_ context.Context, call caisson.Call) (string, error) {
	t, err := targetOf(call.Input)
	return fmt.Sprintf("A program inside asks to connect to %s. If you approve, everything in this sandbox may, until it is stopped.", t), err
}

// repoTop is the person's checkout that the workspace was made from; empty for
// a bare repository.
func (s *session) repoTop() string {
	if common := s.ws.Binding.CommonDir; filepath.Base(common) == ".git" {
		return filepath.Dir(common)
	}
	return ""
}

// passed are the variables that every program of a declared verb gets.
func passed() []string {
	return []string{"HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR"}
}

// programEnv is the environment of programs that verbs run outside. They begin
// in the person's checkout, whose files may be anybody's: no program is looked
// for there.
func (h *Host) programEnv() []string {
	env := []string{"PATH=" + process.SafePath(h.env("PATH"), h.Paths.State)}
	for _, name := range passed() {
		if value := h.env(name); value != "" {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// checkVerbs looks for the programs of the declared verbs that run on the host,
// for the doctor: what those inside find there is looked at in a sandbox.
func (h *Host) checkVerbs(ctx context.Context, verbs []declared.Verb) (says string, err error) {
	outside := slices.DeleteFunc(slices.Clone(verbs), func(d declared.Verb) bool { return d.Dir != declared.DirHostRepo })
	scene := verb.Scene{Outside: h.outside, Repo: h.dir, Env: h.programEnv(), Lookup: h.env}
	says = fmt.Sprintf("the programs of %d are there", len(outside))
	if inside := len(verbs) - len(outside); inside > 0 {
		says += fmt.Sprintf("; for those of %d that run inside, `caisson sandbox start` looks", inside)
	}
	if err = checkPrograms(ctx, declaredVerbs(outside, scene)); caisson.CodeOf(err) == caisson.CodeProgramMissing {
		err = caisson.AsError(err).WithHint("Install it, or correct `run` of the verb in your config.")
	}
	return says, err
}

// rulings are what the config says of the verbs that it declares.
func rulings(verbs []declared.Verb) map[string]caisson.Ruling {
	out := map[string]caisson.Ruling{}
	for _, d := range verbs {
		out[d.Name] = d.Verdict
	}
	return out
}

// allVerbs are the verbs that policy can speak of, at a scene that only
// says where.
func allVerbs(declaredOnes []declared.Verb, scene verb.Scene) []caisson.Tool {
	all := append([]caisson.Tool{verb.Push{}, verb.Snapshot{}}, task.Verbs(task.VerbOptions{})...)
	for _, d := range declaredOnes {
		all = append(all, verb.NewDeclared(d, scene))
	}
	return all
}

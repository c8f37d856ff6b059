//go:build linux

package verb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/tool"
	"github.com/caisson-run/caisson/verb/declared"
)

// Scene is what a declared verb works with, beside its input.
type Scene struct {
	Outside   *Outside
	Sandbox   caisson.Sandbox
	Repo      string // top of the person's checkout; empty: there is none
	Workspace string // path of the workspace's tree
	Branch    string
	Run       caisson.RunID
	Task      caisson.TaskID
	// Env is the environment of programs of the host without what a declaration
	// names; Lookup finds that.
	Env        []string
	Lookup     func(name string) string
	SpillDir   string
	SpillFloor int64
	Hide       func(string) string // as of tool.CommandOptions
}

// values are those that a template can use beside the input's. The task has none
// where the sandbox is bound to none.
func (s Scene) values() map[string]string {
	values := map[string]string{declared.SceneBranch: s.Branch, declared.SceneWorkspace: s.Workspace, declared.SceneRun: string(s.Run)}
	if s.Task != "" {
		values[declared.SceneTask] = string(s.Task)
	}
	return values
}

// Declared is a verb of the user's config. It implements caisson.Tool.
type Declared struct {
	is    declared.Verb
	scene Scene
}

// NewDeclared returns the tool.
func NewDeclared(d declared.Verb, scene Scene) *Declared { return &Declared{d, scene} }

// Spec implements caisson.Tool.
func (d *Declared) Spec() caisson.ToolSpec {
	reach := caisson.ReachOutside
	if d.is.Dir == declared.DirWorkspace {
		reach = caisson.ReachInside
	}
	return caisson.ToolSpec{
		Ref: caisson.ToolRef{Name: d.is.Name}, Description: d.is.Description, Schema: d.is.Schema(),
		Effect: caisson.EffectUnsafe, Reach: reach, Timeout: d.is.Timeout,
	}
}

// Facets implements caisson.Tool: policy sees the program with its arguments.
func (d *Declared) Facets(input json.RawMessage) (caisson.Facets, error) {
	argv, err := d.argv(input)
	if err != nil {
		return caisson.Facets{}, err
	}
	dir, err := d.dir()
	return caisson.Facets{Argv: [][]string{argv}, Dir: dir}, err
}

// Preview implements caisson.Previewer.
func (d *Declared) Preview(_ context.Context, call caisson.Call) (string, error) {
	argv, err := d.argv(call.Input)
	if err != nil {
		return "", err
	}
	dir, err := d.dir()
	if err != nil {
		return "", err
	}
	where := "on this machine, outside of the sandbox, in " + dir
	if d.is.Dir == declared.DirWorkspace {
		where = "inside the sandbox"
	}
	text := fmt.Sprintf("Runs %s, with these arguments, one a line:\n", where)
	for _, arg := range argv {
		text += fmt.Sprintf("  %q\n", arg)
	}
	return text, nil
}

func (d *Declared) dir() (string, error) {
	dir := d.scene.Workspace
	if d.is.Dir == declared.DirHostRepo {
		dir = d.scene.Repo
	}
	if dir == "" {
		return "", caisson.Errorf(caisson.CodeNoRepository, "the verb %s works in a repository, and this sandbox has none", d.is.Name).WithHint("Ask from a sandbox that has a workspace.")
	}
	return dir, nil
}

func (d *Declared) argv(input json.RawMessage) ([]string, error) {
	values, err := d.is.Values(input)
	if err != nil {
		return nil, err
	}
	maps.Copy(values, d.scene.values())
	return d.is.Argv(values)
}

// Hold implements caisson.Tool.
func (d *Declared) Hold(ctx context.Context, call caisson.Call, effect caisson.EffectID) (caisson.Executor, error) {
	argv, err := d.argv(call.Input)
	if err != nil {
		return nil, err
	}
	return d.hold(ctx, argv, call, effect)
}

// Look looks whether the verb's program is there, where it would run: it is held
// without its arguments and dropped, so that nothing of it begins.
// CodeProgramMissing where it is not, or cannot be executed.
func (d *Declared) Look(ctx context.Context) error {
	program, err := d.is.Run[0].Fill(nil) // it has no values in it
	if err != nil {
		return err
	}
	executor, err := d.hold(ctx, []string{program}, caisson.Call{}, "")
	if err != nil {
		return err
	}
	executor.Drop()
	return nil
}

func (d *Declared) hold(ctx context.Context, argv []string, call caisson.Call, effect caisson.EffectID) (caisson.Executor, error) {
	dir, err := d.dir()
	if err != nil {
		return nil, err
	}
	o := tool.CommandOptions{
		Sandbox: d.scene.Sandbox, Command: caisson.Command{Argv: argv, Dir: dir},
		Call: call.ID, Effect: effect, Output: int(d.is.Output), SpillDir: d.scene.SpillDir, SpillFloor: d.scene.SpillFloor, Hide: d.scene.Hide, Kept: kept(call.ID),
	}
	if d.is.Dir == declared.DirWorkspace {
		executor, err := tool.HoldCommand(ctx, o)
		if err != nil {
			return nil, d.missing(argv[0], err)
		}
		return executor, nil
	}
	env := append([]string{}, d.scene.Env...)
	for _, name := range d.is.Env {
		if value := d.scene.Lookup(name); value != "" {
			env = append(env, name+"="+value)
		}
	}
	if _, err := os.Stat(dir); err != nil {
		return nil, caisson.Errorf(caisson.CodeNoRepository, "the directory that the verb %s works in is not there any more", d.is.Name).WithHint("A person puts it back: nothing was done.")
	}
	out, err := d.scene.Outside.open(ctx, place{dir: dir, env: env, memory: d.is.Memory})
	if err != nil {
		return nil, err
	}
	o.Sandbox = out.client
	executor, err := tool.HoldCommand(ctx, o)
	if err != nil {
		return nil, errors.Join(d.missing(argv[0], err), out.close())
	}
	return &held{executor, out}, nil
}

// missing tells the program that is not there from any other thing that is not.
func (d *Declared) missing(program string, err error) error {
	// Where it runs inside, the doctor, which has no sandbox, cannot look for it.
	where, hint := "inside the sandbox", "Nothing was done. A person makes it be there inside, as with `mounts:` in their config, or corrects `run` of the verb; `caisson sandbox start` looks for it there."
	if d.is.Dir == declared.DirHostRepo {
		where, hint = "on this machine", ""
	}
	wrong := "is not there"
	switch caisson.CodeOf(err) {
	case caisson.CodeNotFound:
	case caisson.CodePathInvalid:
		wrong = "cannot be executed"
	default:
		return err
	}
	return caisson.Errorf(caisson.CodeProgramMissing, "the program %q of the verb %s %s %s", program, d.is.Name, wrong, where).WithHint("%s", hint)
}

// kept says to who asked where the whole output is. They are not on the host, so
// that they are not told its path there.
func kept(call caisson.CallID) string {
	if _, id, is := call.Request(); is {
		return fmt.Sprintf("responses/%s.payload beside the answer has it, up to %d bytes", id, caisson.ControlPayload)
	}
	return ""
}

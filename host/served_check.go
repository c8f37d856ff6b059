package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/gate"
	"github.com/caisson-run/caisson/process"
	"github.com/caisson-run/caisson/sandbox/landlock"
)

// Finding is one thing that was looked at in a sandbox that is kept open.
type Finding struct {
	What     string `json:"what"` // state, identity, workspace, limits, mounts, settings, verbs, channel
	OK       bool   `json:"ok"`   // it is as it should be, now
	Says     string `json:"says"`
	Repaired bool   `json:"repaired,omitempty"` // it was not before
	Fix      string `json:"fix,omitempty"`
}

// checkBound is how long a look at an open sandbox may take.
const checkBound = 10 * time.Second

// baseline is how a box was when it was proved and nobody had worked in it.
type baseline struct {
	mounts map[string]string // by their place inside; nil: they say nothing of the box
	limits map[string]string // by file
	spec   string            // what was asked for, without values of variables
}

// measure takes the baseline of the session's box.
func (s *session) measure(ctx context.Context) (baseline, error) {
	b := baseline{limits: limitsOf(s.record), spec: describe(s.asked)}
	var err error
	if s.record.Engine != landlock.Name { // which has the host's
		b.mounts, err = s.mountsInside(ctx)
	}
	return b, err
}

// mountsInside lists the mounts that a program in the box sees, as the kernel
// tells it.
func (s *session) mountsInside(ctx context.Context) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, checkBound)
	defer cancel()
	var out bytes.Buffer
	p, err := s.box.Hold(ctx, caisson.Command{Argv: []string{"cat", "/proc/self/mountinfo"}, Dir: s.workDir(), Stdout: &limited{to: &out, left: 1 << 20}})
	if err != nil {
		return nil, err
	}
	if err := p.Release(); err != nil {
		p.Drop()
		return nil, err
	}
	exit, err := p.Wait(ctx)
	if err == nil && exit.Code != 0 {
		err = caisson.Errorf(caisson.CodeInternal, "list the mounts of sandbox %s: status %d", s.record.ID, exit.Code)
	}
	if err != nil {
		return nil, err
	}
	mounts := map[string]string{}
	for line := range strings.Lines(out.String()) { // format: proc(5)
		own, kind, _ := strings.Cut(strings.TrimSpace(line), " - ")
		// What is hidden in the workspace changes with its files.
		if f := strings.Fields(own); len(f) >= 6 && (!below(f[4], s.workDir()) || filepath.Base(f[4]) == ".git") {
			mounts[f[4]] = f[3] + " " + f[5] + " " + kind
		}
	}
	return mounts, nil
}

// limitFiles are where the kernel is told the limits of a cgroup.
var limitFiles = [...]string{"memory.max", "memory.limit_in_bytes", "pids.max", "cpu.max", "cpu.cfs_quota_us"}

// limitsOf reads the limits of a box's cgroups.
func limitsOf(record caisson.SandboxRecord) map[string]string {
	found := map[string]string{}
	for _, dir := range record.Leftovers {
		for _, name := range limitFiles {
			path := filepath.Join(dir, name)
			if raw, err := os.ReadFile(path); err == nil { // another engine's, or version of cgroups
				found[path] = strings.TrimSpace(string(raw))
			}
		}
	}
	return found
}

// describe tells specs of boundaries apart. Two that read the same are.
func describe(spec caisson.SandboxSpec) string {
	names := make([]string, len(spec.Env))
	for i, entry := range spec.Env {
		names[i] = nameOf(entry)
	}
	slices.Sort(names)
	return fmt.Sprintf("%v %v %v %v %v %v", spec.Mounts, spec.Limits, spec.Hide, spec.Ptrace, spec.Require, names)
}

// channelFinding is what the finding is called that says how the channel is.
const channelFinding = "channel"

// check looks at an open box, and mends what can be mended in it.
func (s *session) check(ctx context.Context) []Finding {
	found := []Finding{s.checkIdentity()}
	if s.ws != nil {
		f := Finding{What: "workspace", OK: true, Says: "it is the one on record"}
		if err := s.host.workspaces.Check(ctx, *s.ws); err != nil {
			f.OK, f.Says, f.Fix = false, caisson.AsError(err).Error(), caisson.AsError(err).HintText()
		}
		found = append(found, f)
	}
	found = append(found, s.checkMounts(ctx), s.checkLimits(), s.checkSettings())
	if len(s.config.Verbs) > 0 {
		found = append(found, s.checkPrograms(ctx))
	}
	if s.broker != nil {
		status := s.broker.Status()
		f := Finding{What: channelFinding, OK: status.State == caisson.BrokerHealthy, Says: string(status.State)}
		if status.Reason != "" {
			f.Says += ": " + string(status.Reason) + ", " + status.Text
			f.Fix = status.Reason.Info().Hint
		}
		if n := s.broker.Unmovable(); n > 0 {
			f.Says += fmt.Sprintf("; %d requests cannot be moved, and are ignored", n)
		}
		found = append(found, f)
	}
	return found
}

// again is what mends a boundary that is not what it should be.
func (s *session) again() string {
	return "`caisson sandbox start --recreate " + string(s.run.ID) + "` makes the boundary anew around the same workspace."
}

func (s *session) checkIdentity() Finding {
	f := Finding{What: "identity", OK: true, Says: "its first process is the one on record, and lives"}
	guest := s.record.Guest
	switch {
	case guest == nil:
		f.Says = "it is kept by its stream"
	case process.Alive(*guest) == caisson.Dead:
		f.OK, f.Says, f.Fix = false, fmt.Sprintf("its first process, %d, has ended", guest.PID), s.again()
	}
	return f
}

func (s *session) checkMounts(ctx context.Context) Finding {
	f := Finding{What: "mounts", OK: true}
	if s.measured.mounts == nil {
		f.Says = "this engine mounts nothing"
		return f
	}
	now, err := s.mountsInside(ctx)
	if err != nil {
		f.OK, f.Says, f.Fix = false, "they cannot be seen: "+caisson.AsError(err).Error(), caisson.AsError(err).HintText()
		return f
	}
	for _, at := range slices.Sorted(maps.Keys(s.measured.mounts)) {
		if now[at] != s.measured.mounts[at] {
			f.OK, f.Says, f.Fix = false, fmt.Sprintf("at %s is no longer what was mounted there", at), s.again()
			return f
		}
	}
	f.Says = fmt.Sprintf("all %d are as they were made", len(s.measured.mounts))
	return f
}

// setLimit tells the kernel a limit.
func setLimit(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

func (s *session) checkLimits() Finding {
	f := Finding{What: "limits", OK: true, Says: "as they were set"}
	if len(s.measured.limits) == 0 {
		f.Says = "they are the engine's to keep, or are not enforced here"
		return f
	}
	now := limitsOf(s.record)
	for _, path := range slices.Sorted(maps.Keys(s.measured.limits)) {
		want := s.measured.limits[path]
		if now[path] == want {
			continue
		}
		f.Says = fmt.Sprintf("%s was %q and not %q", filepath.Base(path), now[path], want)
		if err := setLimit(path, want); err != nil {
			f.OK, f.Fix = false, s.again()
			return f
		}
		f.Repaired = true
	}
	return f
}

// checkSettings tells whether another boundary would be made today, or its
// requests be judged otherwise.
func (s *session) checkSettings() Finding {
	f := Finding{What: "settings", OK: true, Says: "a boundary made now would be the same"}
	c, err := s.host.configWith(s.repo)
	var policy *gate.Policy
	if err == nil {
		policy, err = s.host.policyWith(s.run.Spec.Preset, s.repo, c.Verbs)
	}
	if err != nil {
		f.OK, f.Says, f.Fix = false, caisson.AsError(err).Error(), caisson.AsError(err).HintText()
		return f
	}
	var others []string
	if describe(s.boxSpec(c)) != s.measured.spec {
		others = append(others, "the boundary")
	}
	if !reflect.DeepEqual(c.Verbs, s.config.Verbs) {
		others = append(others, "the verbs")
	}
	if policy.PolicyDigest() != s.policy.PolicyDigest() {
		others = append(others, "the policy")
	}
	if len(others) > 0 {
		f.OK, f.Fix = false, s.again()
		f.Says = fmt.Sprintf("the settings have changed since it was opened, and it has the old ones: others hold now for %s", strings.Join(others, ", "))
	}
	return f
}

// checkPrograms tells whether the programs of the verbs that it is offered are
// where they would run.
func (s *session) checkPrograms(ctx context.Context) Finding {
	f := Finding{What: "verbs", OK: true, Says: "the programs of those that the config declares are there"}
	all := s.verbs()
	if err := checkPrograms(ctx, all); err != nil {
		f.OK, f.Says, f.Fix = false, caisson.AsError(err).Error(), caisson.AsError(err).HintText()
		if caisson.CodeOf(err) == caisson.CodeProgramMissing {
			f.Fix = "Make it be there inside, as with `mounts:` in your config, or correct `run` of the verb; then " + s.again()
		}
	}
	outside := slices.DeleteFunc(all, func(t caisson.Tool) bool { return t.Spec().Reach != caisson.ReachOutside })
	if !f.OK && caisson.CodeOf(checkPrograms(ctx, outside)) == caisson.CodeProgramMissing {
		pid := os.Getpid()
		f.Says += fmt.Sprintf("; process %d, which serves the sandbox, looks on this machine in the PATH that it was started with: %s", pid, pathOf(s.outer))
		f.Fix = fmt.Sprintf("Install the program there, or correct `run` of the verb. If `caisson doctor` finds it, your PATH is another: `kill %d` ends that process and the sessions in its sandboxes, "+
			"and `caisson sandbox start %s` starts one with your PATH.", pid, s.run.ID)
	}
	return f
}

// pathOf is the PATH of an environment.
func pathOf(env []string) string {
	for _, entry := range env {
		if path, is := strings.CutPrefix(entry, "PATH="); is {
			return path
		}
	}
	return ""
}

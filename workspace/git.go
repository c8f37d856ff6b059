package workspace

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/process"
)

const (
	// gitDeadline bounds one git command that has no bound of its own: long
	// enough for a checkout of a large tree on a slow disk.
	gitDeadline = 10 * time.Minute
	// maxOutput bounds what is collected of one command: a listing of a
	// million paths fits.
	maxOutput = 256 << 20
	// gitMemory bounds the memory of the host's git. Objects come from a box: a
	// few kilobytes of them can unpack to any size, and a few trees that hold
	// each other many times to any number of paths.
	gitMemory = 2 << 30
	// gitDrain is how long the output of a git that has ended is waited for: this
	// process may be kept from reading it on a loaded machine.
	gitDrain = 20 * time.Second
	// silentDrain is that of a command whose status is all of its answer: a filter
	// of the person may leave a process that holds its pipes, and a box may keep
	// what it is to read open.
	silentDrain = 200 * time.Millisecond
	// maxComplaint is how much of a command's standard error is kept.
	maxComplaint = 8 << 10
)

// overrides hold for every command, also where no configuration but ours is
// read: a second wall behind the view.
var overrides = [...]string{
	"core.hooksPath=/dev/null",
	"core.fsmonitor=false",
	"core.pager=cat",
	"core.sshCommand=",
	"core.askPass=",
	"core.untrackedCache=false",
	"credential.helper=",
	"diff.external=",
	"diff.ignoreSubmodules=all",
	"merge.renormalize=false",
	"protocol.allow=never",
	"protocol.ext.allow=never",
	"submodule.recurse=false",
	"fetch.recurseSubmodules=false",
	"fetch.writeCommitGraph=false",
	"transfer.fsckObjects=true",
	"gc.auto=0",
	"maintenance.auto=false",
	"log.showSignature=false",
	"color.ui=false",
	"advice.detachedHead=false",
}

// program is the git program of the host.
type program struct {
	path   string   // absolute
	env    []string // of the person, without GIT_*
	empty  string   // an empty directory of ours: work tree and cwd where none is wanted
	memory int64    // that a command may have
	drain  time.Duration
}

// invocation is one git command.
type invocation struct {
	gitDir string // "" discovers from dir
	common string // in place of the git directory's own: whose references, objects and configuration hold
	dir    string // cwd; "" is the empty directory
	tree   string // work tree; "" is the empty directory
	index  string // index file; "" is the git directory's
	person bool   // read the system's and the person's own configuration
	config []string
	env    []string
	args   []string
	stdin  io.Reader
	stdout io.Writer  // nil collects
	files  []*os.File // that the command holds open too
	bound  time.Duration
}

// silent tells of a command that its status is all of its answer.
func (inv invocation) silent() bool {
	switch inv.args[0] {
	case "read-tree", "unpack-objects", "index-pack":
		return true
	}
	return inv.args[0] == "diff" && slices.Contains(inv.args, "--quiet")
}

// exitError is a git command that ended with another status than 0.
type exitError struct {
	args      []string
	status    int
	complaint string
}

func (e *exitError) Error() string {
	return fmt.Sprintf("git %s: status %d: %s", e.args[0], e.status, e.complaint)
}

// statusOf returns the exit status that err tells of; −1 for another error.
func statusOf(err error) int {
	if err == nil {
		return 0
	}
	var exit *exitError
	if errors.As(err, &exit) {
		return exit.status
	}
	return -1
}

// command is the one place where a git command is built.
func (p *program) command(inv invocation) process.Command {
	args := []string{"--no-pager", "--literal-pathspecs", "--no-replace-objects"}
	for _, c := range overrides {
		args = append(args, "-c", c)
	}
	for _, c := range append(waiting(), inv.config...) {
		args = append(args, "-c", c)
	}
	env := append([]string{}, p.env...)
	env = append(env,
		"LC_ALL=C",
		"GIT_OPTIONAL_LOCKS=0", "GIT_TERMINAL_PROMPT=0", "GIT_ASKPASS=", "SSH_ASKPASS=",
		"GIT_ALLOW_PROTOCOL=none", "GIT_PROTOCOL_FROM_USER=0", "GIT_NO_LAZY_FETCH=1", "GIT_NO_REPLACE_OBJECTS=1", "GIT_EDITOR=false", "GIT_ATTR_NOSYSTEM=1",
		"GIT_CEILING_DIRECTORIES="+filepath.Dir(p.empty),
	)
	if !inv.person {
		env = append(env, "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_CONFIG_GLOBAL=/dev/null")
	}
	if inv.gitDir != "" {
		env = append(env, "GIT_DIR="+inv.gitDir, "GIT_WORK_TREE="+cmp.Or(inv.tree, p.empty))
	}
	if inv.common != "" {
		env = append(env, "GIT_COMMON_DIR="+inv.common)
	}
	if inv.index != "" {
		env = append(env, "GIT_INDEX_FILE="+inv.index)
	}
	return process.Command{
		Path: p.path, Args: append(args, inv.args...), Env: append(env, inv.env...),
		Dir: cmp.Or(inv.dir, p.empty), Stdin: inv.stdin, Files: inv.files, Grace: time.Second, Drain: p.drain, Memory: p.memory,
	}
}

// run runs a command to its end and returns its output.
func (p *program) run(ctx context.Context, inv invocation) ([]byte, error) {
	bound := inv.bound
	if bound == 0 {
		bound = gitDeadline
	}
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	cmd := p.command(inv)
	out, complaint := &limitedBuffer{limit: maxOutput}, &tailBuffer{limit: maxComplaint}
	cmd.Stdout, cmd.Stderr = out, complaint
	if inv.silent() {
		cmd.Drain = silentDrain
	}
	if inv.stdout != nil {
		cmd.Stdout = inv.stdout
	}
	status, err := cmd.Run(ctx)
	if err != nil {
		return nil, fmt.Errorf("run git %s: %w", inv.args[0], err)
	}
	if status.Code != 0 {
		return out.Bytes(), p.exit(inv, status.Code, printable(complaint.String()))
	}
	if status.Cut && !inv.silent() { // half an answer, or none, is not taken for one
		return nil, fmt.Errorf("run git %s: it ended well, but its output did not end within %v: this machine is overloaded, or another process holds it open", inv.args[0], p.drain)
	}
	return out.Bytes(), nil
}

// line runs a command that prints one line, or one path that may hold newlines.
func (p *program) line(ctx context.Context, inv invocation) (string, error) {
	out, err := p.run(ctx, inv)
	return strings.TrimSuffix(string(out), "\n"), err
}

// findGit finds the program once and checks that it is new enough.
func findGit(ctx context.Context, path string, environ []string, empty string, memory int64) (*program, error) {
	p := &program{empty: empty, memory: memory, drain: gitDrain}
	where := ""
	for _, kv := range environ {
		switch {
		case strings.HasPrefix(kv, "GIT_"):
		case strings.HasPrefix(kv, "PATH="):
			where = process.SafePath(kv[len("PATH="):], filepath.Dir(filepath.Dir(empty)))
		default:
			p.env = append(p.env, kv)
		}
	}
	p.env = append(p.env, "PATH="+where)
	for _, dir := range filepath.SplitList(where) {
		if found, err := exec.LookPath(filepath.Join(dir, "git")); path == "" && err == nil {
			path = found
		}
	}
	if path == "" {
		return nil, caisson.Errorf(caisson.CodeGitMissing, "git was not found in %q", printable(where))
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, caisson.Errorf(caisson.CodeGitMissing, "git was not found: %w", err)
	}
	p.path = path
	out, err := p.line(ctx, invocation{args: []string{"version"}, bound: 10 * time.Second})
	if err != nil {
		return nil, caisson.Errorf(caisson.CodeGitMissing, "%s does not run: %w", path, err)
	}
	if !newEnough(out) {
		return nil, caisson.Errorf(caisson.CodeGitMissing, "%s is %s; 2.39 is the oldest whose upload-pack is safe here", path, out)
	}
	return p, nil
}

// newEnough tells whether the answer of `git version` names 2.39 or newer.
func newEnough(answer string) bool {
	fields := strings.Fields(answer)
	if len(fields) < 3 {
		return false
	}
	parts := strings.Split(fields[2], ".")
	if len(parts) < 2 {
		return false
	}
	major, err1 := strconv.Atoi(parts[0])
	minor, err2 := strconv.Atoi(parts[1])
	return err1 == nil && err2 == nil && (major > 2 || major == 2 && minor >= 39)
}

// failed turns a git error into one that may cross the package's boundary.
func failed(doing string, err error) error {
	var known *caisson.Error
	if errors.As(err, &known) {
		return err
	}
	if lock := lockIn(err); lock != "" {
		return heldLock(doing, lock, err)
	}
	said := ""
	if exit := (*exitError)(nil); errors.As(err, &exit) {
		said = exit.complaint
	}
	code := cmp.Or(diskCode(err, said), caisson.CodeGitFailed)
	return caisson.Errorf(code, "%s: %w", doing, err)
}

// printable makes text that a box or a repository had a hand in harmless for
// a terminal.
func printable(s string) string {
	s = strings.ToValidUTF8(strings.TrimSpace(s), "\ufffd")
	return strings.Map(func(r rune) rune {
		if r == '\n' {
			return ' '
		}
		if r < 0x20 || r >= 0x7f && r < 0xa0 {
			return '\ufffd'
		}
		return r
	}, s)
}

// limitedBuffer collects up to a limit and fails beyond it.
type limitedBuffer struct {
	bytes.Buffer
	limit int
}

func (b *limitedBuffer) Write(p []byte) (int, error) {
	if b.Len()+len(p) > b.limit {
		return 0, errors.New("too much output")
	}
	return b.Buffer.Write(p)
}

// tailBuffer keeps the last bytes.
type tailBuffer struct {
	kept  []byte
	limit int
}

func (b *tailBuffer) Write(p []byte) (int, error) {
	b.kept = append(b.kept, p...)
	if over := len(b.kept) - b.limit; over > 0 {
		b.kept = append(b.kept[:0], b.kept[over:]...)
	}
	return len(p), nil
}

func (b *tailBuffer) String() string { return string(b.kept) }

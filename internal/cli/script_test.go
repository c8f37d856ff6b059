package cli_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/ledger/sqlite"
	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
)

// TestScripts runs testdata/script. Beside the commands of testscript, a script has:
//
//	repo DIR                   make DIR a repository with all that is in it committed
//	status N [-in FILE] CMD…   CMD ends with exactly that status
//	json stdout|stderr N       the last output is N objects of JSON, one a line
//	get VAR stdout|stderr RE   set VAR to the first group of RE in the last output
//	await RUN KIND [N]         wait until RUN ("-": the only one) has N events of that kind
//	nothing DIR                no run, workspace, branch or sandbox is left, nor anything of one in the repository DIR
//	bytes FILE QUOTED          write FILE with the bytes of a Go string
//	same FILE stdout|stderr    the last output is exactly the file
//	sqlite STATEMENT…|close    run it on the ledger, on one connection, as another program would
//	serve VAR                  serve HTTP on this machine, on the port that VAR is set to: the answer is the request's Host
//
// and $UNIQUE, digits that no other script has.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata/script", Setup: setUp, Cmds: commands(), Condition: condition})
}

func commands() map[string]func(*testscript.TestScript, bool, []string) {
	return map[string]func(*testscript.TestScript, bool, []string){
		"repo": cmdRepo, "status": cmdStatus, "json": cmdJSON, "get": cmdGet, "await": cmdAwait, "slay": cmdSlay, "nothing": cmdNothing,
		"bytes": cmdBytes, "same": cmdSame, "sqlite": cmdSQLite, "serve": cmdServe,
	}
}

func condition(cond string) (bool, error) {
	switch cond {
	case "root":
		return os.Getuid() == 0, nil
	case "docker": // one that scripts/engines has started
		return os.Getenv("CAISSON_TEST_DOCKER") != "", nil
	}
	return false, fmt.Errorf("no condition %q", cond)
}

const gitConfig = "[user]\n\tname = Tester\n\temail = tester@example.org\n[init]\n\tdefaultBranch = main\n"

// setUp gives a script a home of its own. What it recorded is checked as a
// whole at its end, unless it has broken the ledger on purpose and says so with
// a file "broken".
func setUp(env *testscript.Env) error {
	for _, dir := range []string{"home", "config/caisson", "state", "run", "tmp"} {
		if err := os.MkdirAll(filepath.Join(env.WorkDir, dir), 0o700); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(env.WorkDir, "home/.gitconfig"), []byte(gitConfig), 0o600); err != nil {
		return err
	}
	for _, pair := range [][2]string{
		{"HOME", "home"}, {"XDG_CONFIG_HOME", "config"}, {"XDG_STATE_HOME", "state"}, {"XDG_RUNTIME_DIR", "run"}, {"TMPDIR", "tmp"},
	} {
		env.Setenv(pair[0], filepath.Join(env.WorkDir, pair[1]))
	}
	env.Setenv("CAISSON_GUEST", os.Getenv("CAISSON_GUEST"))
	env.Setenv(testsPID, os.Getenv(testsPID))
	// What a script looks for among all processes is its own: others run on the
	// machine at the same time, and the same script may.
	env.Setenv("UNIQUE", fmt.Sprintf("%d%09d", os.Getpid(), rand.IntN(1e9)))
	env.Setenv("LANG", "C.UTF-8")
	env.Setenv("CAISSON_TEST_DOCKER", os.Getenv("CAISSON_TEST_DOCKER"))
	env.Setenv("CAISSON_TEST_IMAGE", os.Getenv("CAISSON_TEST_IMAGE"))
	env.Values[foreignKey{}] = &foreign{}
	env.Defer(func() {
		endDriven(env.T().(testing.TB), filepath.Join(env.WorkDir, "state/caisson/ledger.db"))
		checkLedger(env)
	})
	return nil
}

func checkLedger(env *testscript.Env) {
	path := filepath.Join(env.WorkDir, "state/caisson/ledger.db")
	if _, err := os.Stat(filepath.Join(env.WorkDir, "broken")); err == nil {
		return
	}
	if _, err := os.Stat(path); err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	l, err := sqlite.Open(ctx, sqlite.Options{Path: path})
	if err == nil {
		err = errors.Join(l.Check(ctx), l.Close())
	}
	if err != nil {
		env.T().(testing.TB).Errorf("the ledger at the end: %v", err)
	}
}

// ledgerOf opens the ledger of the script.
func ledgerOf(ts *testscript.TestScript) caisson.Ledger {
	l, err := sqlite.Open(context.Background(), sqlite.Options{Path: filepath.Join(ts.Getenv("XDG_STATE_HOME"), "caisson/ledger.db")})
	ts.Check(err)
	ts.Defer(func() { l.Close() })
	return l
}

func cmdRepo(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: repo DIR")
	}
	dir := ts.MkAbs(args[0])
	ts.Check(os.MkdirAll(dir, 0o755))
	for _, line := range []string{"init -q", "add -A", "commit -q --allow-empty -m first"} {
		ts.Check(ts.Exec("git", append([]string{"-C", dir}, strings.Fields(line)...)...))
	}
}

func cmdServe(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: serve VAR")
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "reached as %s\n", r.Host) }))
	ts.Defer(s.Close)
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	ts.Check(err)
	ts.Setenv(args[0], port)
}

func cmdStatus(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status N CMD…")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("status %d, want %d", got, want)
	}
}

func cmdJSON(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: json stdout|stderr N")
	}
	lines := strings.Split(strings.TrimSuffix(ts.ReadFile(args[0]), "\n"), "\n")
	if lines[0] == "" {
		lines = nil
	}
	for i, line := range lines {
		var object map[string]any
		if err := json.Unmarshal([]byte(line), &object); err != nil {
			ts.Fatalf("line %d is no object: %v\n%s", i+1, err, line)
		}
	}
	if n, err := strconv.Atoi(args[1]); args[1] != "+" && (err != nil || n != len(lines)) || len(lines) == 0 && args[1] == "+" {
		ts.Fatalf("%d lines, want %s", len(lines), args[1])
	}
}

func cmdGet(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: get VAR stdout|stderr RE")
	}
	found := regexp.MustCompile("(?m)" + args[2]).FindStringSubmatch(ts.ReadFile(args[1]))
	if len(found) < 2 {
		ts.Fatalf("no match of %q in\n%s", args[2], ts.ReadFile(args[1]))
	}
	ts.Setenv(args[0], found[1])
}

func cmdAwait(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: await RUN KIND [N]")
	}
	want := 1
	if len(args) > 2 {
		var err error
		want, err = strconv.Atoi(args[2])
		ts.Check(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), never)
	defer cancel()
	l := ledgerOf(ts)
	for seen := int64(0); ; {
		found := 0
		runs, err := l.Runs(ctx, caisson.RunFilter{})
		ts.Check(err)
		for _, r := range runs {
			if args[0] != "-" && string(r.ID) != args[0] {
				continue
			}
			events, err := l.Events(ctx, r.ID, 0, 0)
			ts.Check(err)
			for _, e := range events {
				if string(e.Kind) == args[1] {
					found++
				}
			}
			if args[0] == "-" {
				ts.Setenv("RUN", string(r.ID))
			}
		}
		if found >= want {
			return
		}
		if seen, err = l.Wait(ctx, "", seen); err != nil {
			ts.Fatalf("waiting for %s: %v", args[1], err)
		}
	}
}

var heldBy = regexp.MustCompile(`held by +process (\d+) `)

// cmdSlay kills the process that holds a sandbox, and returns when the kernel has
// let go of all that it held: what is said of it then is not of its last moment.
func cmdSlay(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: slay SANDBOX")
	}
	ts.Check(ts.Exec("caisson", "sandbox", "show", args[0]))
	found := heldBy.FindStringSubmatch(ts.ReadFile("stdout"))
	if found == nil {
		ts.Fatalf("nobody holds sandbox %s", args[0])
	}
	pid, err := strconv.Atoi(found[1])
	ts.Check(err)
	fd, err := unix.PidfdOpen(pid, 0)
	ts.Check(err)
	defer unix.Close(fd)
	ts.Check(unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0))
	ended := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}} //nolint:gosec // a descriptor
	for {
		n, err := unix.Poll(ended, 30_000)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if ts.Check(err); n == 0 {
			ts.Fatalf("process %d does not end", pid)
		}
		return
	}
}

func cmdNothing(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 1 {
		ts.Fatalf("usage: nothing [DIR]")
	}
	state := filepath.Join(ts.Getenv("XDG_STATE_HOME"), "caisson")
	var left []string
	for _, pattern := range []string{"workspaces/*/*", "shadows/*", "spill/*", "sandboxes/*"} {
		found, _ := filepath.Glob(filepath.Join(state, pattern))
		left = append(left, found...)
	}
	if _, err := os.Stat(filepath.Join(state, "ledger.db")); err == nil {
		ctx, l := context.Background(), ledgerOf(ts)
		runs, err := l.Runs(ctx, caisson.RunFilter{})
		ts.Check(err)
		spaces, err := l.Workspaces(ctx, caisson.WorkspaceFilter{})
		ts.Check(err)
		boxes, err := l.Sandboxes(ctx, caisson.SandboxFilter{})
		ts.Check(err)
		left = append(left, fmt.Sprintf("%d runs, %d workspaces, %d sandboxes", len(runs), len(spaces), len(boxes)))
		if len(runs)+len(spaces)+len(boxes) == 0 {
			left = left[:len(left)-1]
		}
	}
	if len(args) > 0 {
		dir := ts.MkAbs(args[0])
		for _, line := range []string{"for-each-ref refs/caisson refs/heads/caisson refs/heads/other", "worktree list --porcelain"} {
			ts.Check(ts.Exec("git", append([]string{"-C", dir}, strings.Fields(line)...)...))
			out := ts.ReadFile("stdout")
			if strings.HasPrefix(line, "worktree") && strings.Count(out, "worktree ") == 1 {
				continue
			}
			left = append(left, strings.Fields(out)...)
		}
	}
	if len(left) > 0 {
		ts.Fatalf("left behind: %q", left)
	}
}

func cmdBytes(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: bytes FILE QUOTED")
	}
	text, err := strconv.Unquote(`"` + strings.ReplaceAll(args[1], `"`, `\"`) + `"`)
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(text), 0o644))
}

func cmdSQLite(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: sqlite STATEMENT")
	}
	conn, open := ts.Value(foreignKey{}).(*foreign)
	if !open {
		ts.Fatalf("no place for a connection")
	}
	if conn.db == nil {
		db, err := sql.Open("sqlite", "file:"+filepath.Join(ts.Getenv("XDG_STATE_HOME"), "caisson/ledger.db"))
		ts.Check(err)
		db.SetMaxOpenConns(1)
		conn.db = db
		ts.Defer(func() { db.Close() })
	}
	if args[0] == "close" {
		ts.Check(conn.db.Close())
		conn.db = nil
		return
	}
	_, err := conn.db.Exec(strings.Join(args, " "))
	ts.Check(err)
}

// foreign is another program's connection to the ledger of a script.
type foreign struct{ db *sql.DB }

type foreignKey struct{}

func cmdSame(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: same FILE stdout|stderr")
	}
	if want, got := ts.ReadFile(args[0]), ts.ReadFile(args[1]); want != got {
		ts.Fatalf("want %q\ngot  %q", want, got)
	}
}

package tool

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/schema"
)

// kit is the built-in tools on a real sandbox.
type kit struct {
	t         *testing.T
	workspace string
	opts      Options
	tools     *Registry
	calls     []caisson.CallRecord
}

func newKit(t *testing.T) *kit {
	t.Helper()
	sandbox, workspace := openSandbox(t)
	k := &kit{t: t, workspace: workspace, opts: Options{Sandbox: sandbox, Workspace: workspace, Seen: NewSeen(), SpillDir: t.TempDir()}}
	k.restart(k.opts.Seen)
	return k
}

// restart makes the tools anew, as a process does that takes the run up.
func (k *kit) restart(seen *Seen) {
	k.t.Helper()
	k.opts.Seen = seen
	tools, err := NewRegistry(Builtin(k.opts)...)
	if err != nil {
		k.t.Fatal(err)
	}
	k.tools = tools
}

func (k *kit) call(name string, input any) caisson.Call {
	k.t.Helper()
	raw, err := json.Marshal(input)
	if err != nil {
		k.t.Fatal(err)
	}
	compiled, err := schema.Compile(k.tools.Get(name).Spec().Schema)
	if err != nil {
		k.t.Fatal(err)
	}
	prepared, err := compiled.Prepare(raw)
	if err != nil {
		k.t.Fatal(err)
	}
	return caisson.Call{ID: caisson.NewCallID("rtest", 1, len(k.calls)+1), Tool: caisson.ToolRef{Name: name}, Input: prepared.Input}
}

// do does a call and records it, an error as its result.
func (k *kit) do(name string, input any) (caisson.Result, error) {
	k.t.Helper()
	return k.doIn(k.t.Context(), name, input)
}

func (k *kit) doIn(ctx context.Context, name string, input any) (caisson.Result, error) {
	k.t.Helper()
	call := k.call(name, input)
	executor, err := k.tools.Get(name).Hold(ctx, call, caisson.EffectIDOf(call.ID))
	if err != nil {
		return caisson.Result{}, err
	}
	result, err := executor.Open(ctx)
	state := caisson.CallState(caisson.OutcomeDone)
	if err != nil || result.Outcome != "" {
		state = caisson.CallState(caisson.OutcomeFailed)
	}
	k.calls = append(k.calls, caisson.CallRecord{Call: call, State: state, Result: &result, Ended: time.Unix(int64(len(k.calls)), 0)})
	return result, err
}

func (k *kit) must(name string, input any) caisson.Result {
	k.t.Helper()
	result, err := k.do(name, input)
	if err != nil || result.Outcome != "" {
		k.t.Fatalf("%s %v: %+v, %v", name, input, result, err)
	}
	return result
}

func (k *kit) refused(code caisson.Code, name string, input any) {
	k.t.Helper()
	result, err := k.do(name, input)
	if caisson.CodeOf(err) != code {
		k.t.Errorf("%s %v: got %+v, %v; want %s", name, input, result, err, code)
	}
}

func (k *kit) file(name string) string {
	k.t.Helper()
	raw, err := os.ReadFile(filepath.Join(k.workspace, name))
	if err != nil {
		k.t.Fatal(err)
	}
	return string(raw)
}

func (k *kit) put(name, content string) {
	k.t.Helper()
	path := filepath.Join(k.workspace, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		k.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o666); err != nil {
		k.t.Fatal(err)
	}
}

type in = map[string]any

func edits(pairs ...string) []in {
	var list []in
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, in{"old": pairs[i], "new": pairs[i+1]})
	}
	return list
}

func TestChangeNeedsReading(t *testing.T) {
	k := newKit(t)
	k.put("a.txt", "one\ntwo\n")
	k.refused(caisson.CodeFileNotRead, "edit", in{"path": "a.txt", "edits": edits("one", "1")})
	k.refused(caisson.CodeFileNotRead, "write", in{"path": "a.txt", "content": "x"})
	k.refused(caisson.CodeNotFound, "edit", in{"path": "none.txt", "edits": edits("one", "1")})
	if got := k.must("read", in{"path": "a.txt"}).Text; got != "     1\tone\n     2\ttwo\n" {
		t.Errorf("got %q", got)
	}
	if got := k.must("edit", in{"path": "./a.txt", "edits": edits("one", "1", "two", "2\n3")}); got.Summary != "+3 −2" {
		t.Errorf("got %+v", got)
	}
	if got := k.file("a.txt"); got != "1\n2\n3\n" {
		t.Errorf("got %q", got)
	}
	// What it wrote itself it has seen.
	k.must("edit", in{"path": filepath.Join(k.workspace, "a.txt"), "edits": edits("1", "one")})
	k.put("a.txt", "someone else\n")
	k.refused(caisson.CodeFileChanged, "edit", in{"path": "a.txt", "edits": edits("one", "1")})
	k.refused(caisson.CodeFileChanged, "write", in{"path": "a.txt", "content": "x"})
	if got := k.file("a.txt"); got != "someone else\n" {
		t.Errorf("another's text was changed: %q", got)
	}
	k.must("read", in{"path": "a.txt"})
	k.must("write", in{"path": "a.txt", "content": "mine\n"})
	if got := k.must("write", in{"path": "new/dir/b.txt", "content": "b\n"}); got.Summary != "+1 −0" || !strings.HasPrefix(got.Text, "Created") {
		t.Errorf("got %+v", got)
	}
	if got := k.file("new/dir/b.txt"); got != "b\n" {
		t.Errorf("got %q", got)
	}
	// Removed by somebody: it can be made again.
	if err := os.Remove(filepath.Join(k.workspace, "a.txt")); err != nil {
		t.Fatal(err)
	}
	k.must("write", in{"path": "a.txt", "content": "again\n"})
}

// meddled is a boundary in which somebody changes a file just before it is written.
type meddled struct {
	caisson.Sandbox
	change func()
}

type meddledFiles struct {
	caisson.Files
	change func()
}

func (m meddled) Files() caisson.Files { return meddledFiles{m.Sandbox.Files(), m.change} }

func (m meddledFiles) Write(ctx context.Context, path string, data []byte, opts caisson.WriteOptions) (caisson.FileInfo, error) {
	m.change()
	return m.Files.Write(ctx, path, data, opts)
}

func TestChangeLosesNoRace(t *testing.T) {
	k := newKit(t)
	k.put("a.txt", "one\n")
	k.must("read", in{"path": "a.txt"})
	k.opts.Sandbox = meddled{k.opts.Sandbox, func() {
		k.put("a.txt", "theirs\n")
		k.put("new.txt", "theirs\n")
	}}
	k.restart(k.opts.Seen)
	k.refused(caisson.CodeFileChanged, "edit", in{"path": "a.txt", "edits": edits("one", "1")})
	if err := os.Remove(filepath.Join(k.workspace, "new.txt")); err != nil {
		t.Fatal(err)
	}
	k.refused(caisson.CodeAlreadyExists, "write", in{"path": "new.txt", "content": "mine\n"})
	for _, name := range []string{"a.txt", "new.txt"} {
		if got := k.file(name); got != "theirs\n" {
			t.Errorf("%s holds %q", name, got)
		}
	}
}

func TestEditIsAllOrNothing(t *testing.T) {
	k := newKit(t)
	k.put("a.txt", "one\ntwo\ntwo\n")
	k.must("read", in{"path": "a.txt"})
	k.refused(caisson.CodeEditMismatch, "edit", in{"path": "a.txt", "edits": edits("one", "1", "two", "2")})
	if got := k.file("a.txt"); got != "one\ntwo\ntwo\n" {
		t.Errorf("got %q", got)
	}
	k.must("edit", in{"path": "a.txt", "edits": []in{{"old": "two", "new": "2", "all": true}}})
	if got := k.file("a.txt"); got != "one\n2\n2\n" {
		t.Errorf("got %q", got)
	}
}

func TestSeenSurvivesRestart(t *testing.T) {
	k := newKit(t)
	k.put("a.txt", "one\n")
	k.put("b.txt", "b\n")
	k.must("read", in{"path": "a.txt"})
	k.must("edit", in{"path": "a.txt", "edits": edits("one", "two")})
	seen := NewSeen()
	seen.Restore(k.calls)
	k.restart(seen)
	k.must("edit", in{"path": "a.txt", "edits": edits("two", "three")})
	k.refused(caisson.CodeFileNotRead, "edit", in{"path": "b.txt", "edits": edits("b", "c")})
}

// A link in the workspace to a file of the host.
// Origin: CVE-2026-39861 class.
func TestCase_S17(t *testing.T) {
	k := newKit(t)
	before, err := os.ReadFile("/etc/passwd")
	if err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{
		"absolute": "/etc/passwd", "relative": "../../../../../../../../etc/passwd", "dir": "/etc",
	} {
		if err := os.Symlink(target, filepath.Join(k.workspace, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{"absolute", "relative", "dir/passwd", "/etc/passwd", "../../../../../../../etc/passwd"} {
		k.opts.Seen.put(filepath.Join(k.workspace, path), caisson.DigestOf(before))
		k.opts.Seen.put("/etc/passwd", caisson.DigestOf(before))
		k.refused(caisson.CodePathOutside, "read", in{"path": path})
		k.refused(caisson.CodePathOutside, "write", in{"path": path, "content": "owned\n"})
		k.refused(caisson.CodePathOutside, "edit", in{"path": path, "edits": edits("root", "owned")})
		text, err := k.tools.Get("write").(caisson.Previewer).Preview(t.Context(), k.call("write", in{"path": path, "content": "owned\n"}))
		if err != nil || strings.Contains(text, "root:") {
			t.Errorf("preview of %s: %q, %v", path, text, err)
		}
	}
	k.refused(caisson.CodePathOutside, "glob", in{"pattern": "*", "path": "dir"})
	k.refused(caisson.CodePathOutside, "grep", in{"pattern": "root", "path": "/etc"})
	if got := k.must("grep", in{"pattern": "root:"}); strings.Contains(got.Text, "root:") {
		t.Errorf("a search followed a link outside: %q", got.Text)
	}
	after, err := os.ReadFile("/etc/passwd")
	if err != nil || string(after) != string(before) {
		t.Fatal("/etc/passwd was changed")
	}
	if info, err := os.Lstat(filepath.Join(k.workspace, "absolute")); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Error("the link itself was replaced")
	}
}

// A result too large for a request.
// Origin: pydantic-ai 7110.
func TestCase_R18(t *testing.T) {
	k := newKit(t)
	k.put("big.txt", strings.Repeat("0123456789 é 0123456789\n", 50_000))
	k.put("wide.txt", strings.Repeat("é", 1<<20))
	for _, c := range []struct {
		tool  string
		input in
		says  string
	}{
		{"read", in{"path": "big.txt", "limit": 5000}, "go on with offset"},
		{"read", in{"path": "wide.txt"}, "cut"},
		{"grep", in{"pattern": "5", "limit": 500, "context": 10}, "narrow the search"},
		{"shell", in{"command": "cat big.txt wide.txt"}, "[exit 0 in"},
	} {
		result := k.must(c.tool, c.input)
		if len(result.Text) > 40_000 || !utf8.ValidString(result.Text) || !strings.Contains(result.Text, c.says) {
			t.Errorf("%s %v: %d bytes, valid=%t, says %q: %t", c.tool, c.input, len(result.Text), utf8.ValidString(result.Text), c.says, strings.Contains(result.Text, c.says))
		}
	}
}

func TestReadRefusesPolitely(t *testing.T) {
	k := newKit(t)
	k.put("program", "\x7fELF\x00\x00\x01")
	k.put("latin.txt", "gr\xfc\xdfe\nplain\n")
	k.put("empty.txt", "")
	k.refused(caisson.CodePathInvalid, "read", in{"path": "program"})
	k.refused(caisson.CodePathInvalid, "read", in{"path": "."})
	k.refused(caisson.CodeNotFound, "read", in{"path": "none"})
	if got := k.must("read", in{"path": "empty.txt"}).Text; got != "[the file is empty]\n" {
		t.Errorf("got %q", got)
	}
	got := k.must("read", in{"path": "latin.txt"})
	if !strings.Contains(got.Text, "gr\uFFFDe\n") || !strings.Contains(got.Text, "not UTF-8") || !strings.Contains(string(got.Data), `"invalid_utf8":true`) {
		t.Errorf("got %q %s", got.Text, got.Data)
	}
	k.refused(caisson.CodeEditMismatch, "edit", in{"path": "latin.txt", "edits": edits("gr\uFFFDe", "grey")})
	k.must("edit", in{"path": "latin.txt", "edits": edits("plain", "fancy")})
	if got := k.file("latin.txt"); got != "gr\xfc\xdfe\nfancy\n" {
		t.Errorf("bytes beside the edit were changed: %q", got)
	}
}

func TestSearch(t *testing.T) {
	k := newKit(t)
	k.put("a/one.go", "package a\n\nfunc One() {}\n")
	k.put("a/two.txt", "func Two\n")
	k.put("b/three.go", "package b\n// end\n")
	if got := k.must("glob", in{"pattern": "**/*.go"}); !strings.Contains(got.Text, "a/one.go\n") || !strings.Contains(got.Text, "b/three.go\n") || strings.Contains(got.Text, "two") || got.Summary != "2 paths" {
		t.Errorf("got %+v", got)
	}
	if got := k.must("grep", in{"pattern": `func \w+`, "include": "*.go"}); got.Text != "a/one.go:3: func One() {}\n" {
		t.Errorf("got %q", got.Text)
	}
	if got := k.must("grep", in{"pattern": "func One", "context": 1}); got.Text != "a/one.go-2- \na/one.go:3: func One() {}\n" {
		t.Errorf("got %q", got.Text)
	}
	if got := k.must("grep", in{"pattern": "nowhere"}); got.Text != "Nothing found.\n" {
		t.Errorf("got %q", got.Text)
	}
	if got := k.must("glob", in{"pattern": "**/*.go", "limit": 1}); !strings.Contains(got.Text, "1 of 2 paths shown") {
		t.Errorf("got %q", got.Text)
	}
}

func TestPreview(t *testing.T) {
	k := newKit(t)
	k.put("a.txt", "one\ntwo\n")
	preview := func(name string, input any) string {
		text, err := k.tools.Get(name).(caisson.Previewer).Preview(t.Context(), k.call(name, input))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	edit := in{"path": "a.txt", "edits": edits("two", "2")}
	if got := preview("edit", edit); !strings.Contains(got, "was not read") {
		t.Errorf("got %q", got)
	}
	k.must("read", in{"path": "a.txt"})
	if got := preview("edit", edit); got != "--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n" {
		t.Errorf("got %q", got)
	}
	if got := preview("write", in{"path": "n.txt", "content": "n\n"}); got != "--- /dev/null\n+++ b/n.txt\n@@ -0,0 +1,1 @@\n+n\n" {
		t.Errorf("got %q", got)
	}
	if got := k.file("a.txt"); got != "one\ntwo\n" {
		t.Errorf("a preview changed the file: %q", got)
	}
}

func TestReconcile(t *testing.T) {
	for _, c := range []struct {
		name    string
		tool    string
		input   in
		found   string // content after the crash; "-" for none
		known   bool
		outcome caisson.Outcome
	}{
		{"edit made", "edit", in{"path": "a.txt", "edits": edits("one", "1", "two", "1")}, "1\n1\n", true, ""},
		{"edit not made", "edit", in{"path": "a.txt", "edits": edits("one", "1")}, "one\ntwo\n", true, caisson.OutcomeFailed},
		{"edit, somebody else was there", "edit", in{"path": "a.txt", "edits": edits("one", "1")}, "1\ntwo\nmore\n", false, ""},
		{"write made", "write", in{"path": "a.txt", "content": "x\n"}, "x\n", true, ""},
		{"write not made", "write", in{"path": "a.txt", "content": "x\n"}, "one\ntwo\n", true, caisson.OutcomeFailed},
		{"write, somebody else was there", "write", in{"path": "a.txt", "content": "x\n"}, "y\n", false, ""},
		{"write, file gone", "write", in{"path": "a.txt", "content": "x\n"}, "-", false, ""},
		{"new file not made", "write", in{"path": "new.txt", "content": "x\n"}, "one\ntwo\n", true, caisson.OutcomeFailed},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := newKit(t)
			k.put("a.txt", "one\ntwo\n")
			k.must("read", in{"path": "a.txt"})
			call := k.call(c.tool, c.input)
			if c.found == "-" {
				if err := os.Remove(filepath.Join(k.workspace, "a.txt")); err != nil {
					t.Fatal(err)
				}
			} else {
				k.put("a.txt", c.found)
			}
			seen := NewSeen()
			seen.Restore(k.calls)
			k.restart(seen)
			result, known, err := k.tools.Get(c.tool).(caisson.Reconciler).Reconcile(t.Context(), call, caisson.EffectIDOf(call.ID))
			if err != nil || known != c.known || result.Outcome != c.outcome {
				t.Fatalf("got %+v, known=%t, %v", result, known, err)
			}
			if known && result.Outcome == "" {
				k.must("edit", in{"path": "a.txt", "edits": []in{{"old": "\n", "new": "!\n", "all": true}}})
			}
		})
	}
}

func TestCancelledBeforeItBegan(t *testing.T) {
	k := newKit(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(&caisson.CauseError{Cause: caisson.CauseUser})
	result, err := k.doIn(ctx, "write", in{"path": "a.txt", "content": "x"})
	if err != nil || result.Outcome != caisson.OutcomeCancelled || result.Cause != caisson.CauseUser {
		t.Errorf("got %+v, %v", result, err)
	}
	if _, err := os.Stat(filepath.Join(k.workspace, "a.txt")); err == nil {
		t.Error("the file was written")
	}
}

package workspace_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/workspace"
)

// traps returns configuration that makes git run a program, in every way that
// git has, each leaving a file of its own in marks.
func traps(marks string) string {
	touch := func(name string) string { return "touch '" + filepath.Join(marks, name) + "'; cat" }
	var b strings.Builder
	fmt.Fprintf(&b, "[core]\n\tfsmonitor = \"%s\"\n\tsshCommand = \"%s\"\n\tpager = \"%s\"\n\teditor = \"%s\"\n\taskPass = \"%s\"\n\talternateRefsCommand = \"%s\"\n\tgitProxy = \"%s\"\n\tuntrackedCache = true\n",
		touch("fsmonitor"), touch("ssh"), touch("pager"), touch("editor"), touch("askpass"), touch("alternaterefs"), touch("proxy"))
	for _, f := range []string{"evil", "lfs", "crypt"} {
		fmt.Fprintf(&b, "[filter \"%s\"]\n\tclean = \"%s\"\n\tsmudge = \"%s\"\n\trequired = false\n", f, touch("clean-"+f), touch("smudge-"+f))
	}
	fmt.Fprintf(&b, "[filter \"proc\"]\n\tprocess = \"%s\"\n", touch("process"))
	fmt.Fprintf(&b, "[diff]\n\texternal = \"%s\"\n[diff \"evil\"]\n\ttextconv = \"%s\"\n\tcommand = \"%s\"\n", touch("external"), touch("textconv"), touch("diffcommand"))
	fmt.Fprintf(&b, "[merge \"evil\"]\n\tdriver = \"%s\"\n[merge]\n\trenormalize = true\n", touch("mergedriver"))
	fmt.Fprintf(&b, "[gpg]\n\tprogram = \"%s\"\n[commit]\n\tgpgSign = true\n[log]\n\tshowSignature = true\n", filepath.Join(marks, "..", "gpg"))
	for _, a := range []string{"rev-parse", "read-tree", "update-ref", "diff", "log", "config", "merge-tree", "fetch", "unpack-objects"} {
		fmt.Fprintf(&b, "[alias]\n\t%s = \"!%s\"\n", a, touch("alias-"+a))
	}
	fmt.Fprintf(&b, "[uploadpack]\n\tpackObjectsHook = \"%s\"\n[credential]\n\thelper = \"!%s\"\n[protocol]\n\tallow = always\n[submodule]\n\trecurse = true\n[pager]\n\tdiff = \"%s\"\n\tlog = \"%s\"\n[sequence]\n\teditor = \"%s\"\n[trace2]\n\teventTarget = %s\n",
		touch("packhook"), touch("credential"), touch("pagerdiff"), touch("pagerlog"), touch("seqeditor"), filepath.Join(marks, "trace"))
	return b.String()
}

// evilHooks fills a hooks directory.
func evilHooks(t *testing.T, dir, marks string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"post-checkout", "post-index-change", "reference-transaction", "pre-commit", "post-commit", "post-merge", "pre-auto-gc", "post-rewrite", "update", "pre-receive", "post-update", "fsmonitor-watchman"} {
		script := "#!/bin/sh\ntouch '" + filepath.Join(marks, "hook-"+name) + "'\nexit 0\n"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

const evilAttributes = "*.txt filter=evil diff=evil merge=evil\n*.bin filter=proc\n*.sec filter=crypt\n"

// Origin: audits of sandboxes that mounted a repository's git directory.
func TestCase_W05(t *testing.T) { forModes(t, testCaseW05) }

func testCaseW05(t *testing.T) {
	wd := newWorld(t)
	marks := filepath.Join(t.TempDir(), "marks")
	if err := os.Mkdir(marks, 0o777); err != nil {
		t.Fatal(err)
	}
	gpg := filepath.Join(marks, "..", "gpg")
	if err := os.WriteFile(gpg, []byte("#!/bin/sh\ntouch '"+filepath.Join(marks, "gpg")+"'\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{"c.bin", "d.sec"} {
		wd.write(filepath.Join(wd.repo, f), f+"\n")
	}
	wd.write(filepath.Join(wd.repo, ".gitattributes"), evilAttributes)
	wd.git("add", "-A")
	wd.git("commit", "-qm", "attributes")

	gitDir := filepath.Join(wd.repo, ".git")
	config, err := os.ReadFile(filepath.Join(gitDir, "config"))
	if err != nil {
		t.Fatal(err)
	}
	wd.write(filepath.Join(wd.repo, ".git", "included"), traps(marks))
	wd.write(filepath.Join(gitDir, "config"), string(config)+traps(marks)+"[include]\n\tpath = included\n\tpath = ../.gitconfig-in-tree\n")
	wd.write(filepath.Join(gitDir, "info", "attributes"), evilAttributes)
	evilHooks(t, filepath.Join(gitDir, "hooks"), marks)

	none := func(after string) {
		t.Helper()
		entries, err := os.ReadDir(marks)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			t.Errorf("after %s: %s ran on the host", after, e.Name())
		}
		if t.Failed() {
			t.FailNow()
		}
	}
	ws := wd.create(workspace.CreateSpec{Name: "r5", Run: "r5"})
	none("create")
	box := newBox(t, ws)
	// An agent's own traps: in the shadow's configuration, hooks and attributes,
	// in the tree, and in a repository below the tree.
	evilHooks(t, filepath.Join(ws.Shadow, "hooks"), marks)
	shadowConfig, err := os.ReadFile(filepath.Join(ws.Shadow, "config"))
	if err != nil {
		t.Fatal(err)
	}
	// Inside, traps could stop git altogether: only those that it survives.
	wd.write(filepath.Join(ws.Shadow, "config"), string(shadowConfig)+traps(marks)+"[commit]\n\tgpgSign = false\n[core]\n\tworktree = "+ws.Path+"\n")
	wd.write(filepath.Join(ws.Path, ".gitconfig-in-tree"), traps(marks))
	wd.write(filepath.Join(ws.Path, "sub", ".gitattributes"), evilAttributes)
	for i, line := range []string{
		"echo changed >>a.txt; git add -A; git -c core.editor=true commit --no-verify -qm inside 2>/dev/null",
		"echo changed >>c.bin; echo changed >>d.sec; git add -A 2>/dev/null; git commit --no-verify -qm again",
		"echo untracked >u.txt; git init -q nested; cp .gitconfig-in-tree nested/.git/included; printf '[include]\\npath=included\\n' >>nested/.git/config; cd nested; echo x >x.txt; git -c core.fsmonitor=false -c commit.gpgSign=false -c filter.evil.clean=cat commit -q --allow-empty -m nested || :",
	} {
		if out, code := tryInside(t, box, line); code != 0 {
			t.Fatalf("step %d inside: status %d: %s", i, code, out)
		}
	}
	none("work inside: the box lets marks through, so this test sees nothing")

	if got := wd.importOK(ws, box, workspace.ImportOptions{}); !got.Moved {
		t.Fatalf("import: %+v", got)
	}
	none("import")
	snap, err := wd.w.Snapshot(t.Context(), ws, box, "r5", 1)
	if err != nil {
		t.Fatal(err)
	}
	none("snapshot")
	for _, opts := range []workspace.DiffOptions{{}, {Stat: true}, {To: snap.Ref}, {From: "main", To: ws.Branch}} {
		opts.Out = io.Discard
		if err := wd.w.Diff(t.Context(), ws, box, opts); err != nil {
			t.Fatal(err)
		}
	}
	none("diff")
	if _, err := wd.w.Log(t.Context(), ws, 0); err != nil {
		t.Fatal(err)
	}
	if err := wd.w.Check(t.Context(), ws); err != nil {
		t.Fatal(err)
	}
	if _, err := wd.w.Find(t.Context(), wd.repo, "r5"); err != nil {
		t.Fatal(err)
	}
	none("log, check and find")
	for _, mode := range []workspace.MergeMode{workspace.MergeSquash, workspace.MergeRebase, workspace.MergeCommit} {
		branch := "into-" + string(mode)
		if err := os.WriteFile(filepath.Join(gitDir, "refs", "heads", branch), []byte(ws.Base+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := wd.w.Merge(t.Context(), ws, workspace.MergeOptions{Into: branch, Mode: mode, Message: "merged"}); err != nil {
			t.Fatalf("%s: %v", mode, err)
		}
	}
	if _, err := wd.w.Merge(t.Context(), ws, workspace.MergeOptions{}); err != nil {
		t.Fatal(err)
	}
	none("merge")

	// The traps are real: the person's own git sets them off.
	_, _ = wd.tryGit(wd.repo, "status")
	if entries, _ := os.ReadDir(marks); len(entries) == 0 {
		t.Fatal("the traps do not work, so this test shows nothing")
	}
}

// A filter of the person's own configuration is used; it is theirs.
func TestPersonsFilterRuns(t *testing.T) { forModes(t, testPersonsFilterRuns) }

func testPersonsFilterRuns(t *testing.T) {
	wd := newWorld(t)
	wd.write(filepath.Join(wd.home, ".gitconfig"), "[user]\n\tname = A\n\temail = a@b\n[filter \"up\"]\n\tsmudge = tr a-z A-Z\n\tclean = tr A-Z a-z\n")
	wd.write(filepath.Join(wd.repo, ".gitattributes"), "*.txt filter=up\n")
	wd.git("add", "-A")
	wd.git("commit", "-qm", "filter")
	ws := wd.create(workspace.CreateSpec{})
	if got, err := os.ReadFile(filepath.Join(ws.Path, "a.txt")); err != nil || string(got) != "ONE\n" {
		t.Fatalf("%q, %v", got, err)
	}
	if got := inside(t, newBox(t, ws), "git status --porcelain"); got != "" {
		t.Fatalf("inside it is not clean: %q", got)
	}
}

// A commit that records a submodule over a path with a git directory would make
// the person's git enter that directory.
func TestImportHoldsGitlink(t *testing.T) { forModes(t, testImportHoldsGitlink) }

func testImportHoldsGitlink(t *testing.T) {
	wd := newWorld(t)
	ws := wd.create(workspace.CreateSpec{Name: "r1"})
	box := newBox(t, ws)
	inside(t, box, "git init -q dep; cd dep; git -c user.name=a -c user.email=b commit -q --allow-empty -m dep; cd ..; git add dep 2>/dev/null; git commit -qm 'with a gitlink'")
	_, err := wd.w.Import(t.Context(), ws, box, workspace.ImportOptions{})
	wantCode(t, err, caisson.CodeImportHeld)
	if tip := wd.git("rev-parse", "caisson/r1"); tip != ws.Base {
		t.Fatal("the branch was moved")
	}
	if refs := wd.git("for-each-ref", "refs/caisson/inside"); !strings.Contains(refs, "/held/") {
		t.Fatalf("the held commit is not kept: %q", refs)
	}
	inside(t, box, "git rm -q --cached dep; git commit -qm 'without'; rm -rf dep")
	if got := wd.importOK(ws, box, workspace.ImportOptions{}); !got.Moved {
		t.Fatalf("%+v", got)
	}
}

// What a shadow holds was written by whoever is inside.
func TestHostileShadow(t *testing.T) { forModes(t, testHostileShadow) }

func testHostileShadow(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte(strings.Repeat("1", 40)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, line := range map[string]string{
		"reference is a link out": "ln -s " + secret + " $G/refs/heads/x",
		"reference is a pipe":     "mkfifo $G/refs/heads/x",
		"head is a pipe":          "rm $G/HEAD; mkfifo $G/HEAD",
		"head is a link out":      "rm $G/HEAD; ln -s " + secret + " $G/HEAD",
		"bad names":               "for n in 'a b' 'a..b' '-x' 'x.lock' '@{u}' $(printf '\\001') $(printf 'bad\\033[31m'); do echo $(printf '2%.0s' $(seq 40)) >\"$G/refs/heads/$n\" || :; done; rm $G/refs/heads/-x",
		"a link to itself":        "ln -s . $G/refs/loop; ln -s .. $G/refs/up",
		"refs is a pipe":          "rm -rf $G/refs; mkfifo $G/refs",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wd := newWorld(t)
			ws := wd.create(workspace.CreateSpec{})
			box := newBox(t, ws)
			inside(t, box, "G="+ws.Shadow+"; "+line)
			got, err := wd.w.Import(t.Context(), ws, box, workspace.ImportOptions{})
			if err != nil || got.Moved || len(got.Pinned) > 0 {
				t.Fatalf("%+v, %v", got, err)
			}
		})
	}
	for name, line := range map[string]string{
		"object is missing":      "echo $(printf '3%.0s' $(seq 40)) >$G/refs/heads/x",
		"packed refs too large":  "rm $G/packed-refs; truncate -s 9M $G/packed-refs",
		"packed refs are a pipe": "rm $G/packed-refs; mkfifo $G/packed-refs",
		"too many":               "seq 2500 | sed \"s,^,$(printf '4%.0s' $(seq 40)) refs/heads/n,\" >>$G/packed-refs",
		"a bad tree":             "b=$(echo x | git hash-object -w --stdin); t=$(printf '100644 .git\\0'\"$(echo $b | sed 's/../\\\\x&/g')\" | git hash-object -w -t tree --literally --stdin); c=$(git commit-tree -m bad $t); git update-ref refs/heads/x $c",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wd := newWorld(t)
			ws := wd.create(workspace.CreateSpec{})
			box := newBox(t, ws)
			if out, code := tryInside(t, box, "G="+ws.Shadow+"; "+line); code != 0 {
				t.Fatalf("%d %s", code, out)
			}
			_, err := wd.w.Import(t.Context(), ws, box, workspace.ImportOptions{})
			wantCode(t, err, caisson.CodeImportHeld)
			if refs := wd.git("for-each-ref", "refs/caisson/inside"); refs != "" {
				t.Fatalf("something was taken: %s", refs)
			}
		})
	}
}

// A box whose git server sends anything else.
func TestHostileServer(t *testing.T) {
	t.Parallel()
	wd := newWorld(t)
	ws := wd.create(workspace.CreateSpec{Name: "r1"})
	box := newBox(t, ws)
	inside(t, box, "git commit -q --allow-empty -m x")
	for name, said := range map[string]string{
		"nothing":          "",
		"no protocol":      "hello, this is no git at all",
		"version 0":        "0014version 1 or so\n0000",
		"endless":          strings.Repeat("000eversion 2\n", 5000),
		"pack that ends":   "000eversion 2\n0000000dpackfile\n0011\x01PACK\x00\x00\x00\x02\x00\x00\x00",
		"pack of nonsense": "000eversion 2\n0000000dpackfile\n0020\x01PACK\x00\x00\x00\x02\x00\x00\x00\x01nonsenseabcdefg0000",
		"no pack":          "000eversion 2\n0000000dpackfile\n0016\x01notapack notapack0000",
		"huge length":      "ffff",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := wd.w.Import(t.Context(), ws, sayingBox{box, said}, workspace.ImportOptions{})
			wantCode(t, err, caisson.CodeImportHeld)
			if strings.ContainsAny(err.Error(), "\x1b\x00") {
				t.Fatalf("%q", err)
			}
		})
	}
	if got := wd.importOK(ws, box, workspace.ImportOptions{}); !got.Moved {
		t.Fatalf("%+v", got)
	}
}

// A box that takes the request and never answers holds nobody who has left.
func TestImportIsCancelled(t *testing.T) {
	t.Parallel()
	wd := newWorld(t)
	ws := wd.create(workspace.CreateSpec{Name: "r1"})
	box := newBox(t, ws)
	inside(t, box, "git commit -q --allow-empty -m x")
	ctx, cancel := context.WithCancel(t.Context())
	held := holdingBox{box, make(chan struct{})}
	go func() {
		<-held.released
		cancel()
	}()
	_, err := wd.w.Import(ctx, ws, held, workspace.ImportOptions{})
	wantCode(t, err, caisson.CodeCancelled)
	if got := wd.importOK(ws, box, workspace.ImportOptions{}); !got.Moved {
		t.Fatalf("%+v", got)
	}
}

// holdingBox runs a program that says nothing in place of every other, and
// tells when it does.
type holdingBox struct {
	*box
	released chan struct{}
}

func (b holdingBox) Hold(ctx context.Context, cmd caisson.Command) (caisson.Process, error) {
	cmd.Argv, cmd.Line, cmd.Grace = []string{"/bin/sleep", "1000"}, "", 100*time.Millisecond
	p, err := b.box.Hold(ctx, cmd)
	return tellingProcess{p, b.released}, err
}

type tellingProcess struct {
	caisson.Process
	released chan struct{}
}

func (p tellingProcess) Release() error {
	defer close(p.released)
	return p.Process.Release()
}

// sayingBox answers every command with the same bytes.
type sayingBox struct {
	*box
	said string
}

func (b sayingBox) Hold(ctx context.Context, cmd caisson.Command) (caisson.Process, error) {
	said := filepath.Join(b.ws.Home, "said")
	if err := os.WriteFile(said, []byte(b.said), 0o644); err != nil {
		return nil, err
	}
	cmd.Argv, cmd.Line = []string{"/bin/cat", said}, ""
	return b.box.Hold(ctx, cmd)
}

func (wd *world) diff(ws caisson.Workspace, box workspace.Box, opts workspace.DiffOptions) string {
	wd.t.Helper()
	var out bytes.Buffer
	opts.Out = &out
	if err := wd.w.Diff(wd.t.Context(), ws, box, opts); err != nil {
		wd.t.Fatal(err)
	}
	return out.String()
}

// endlessBox answers every command with more than anyone wants to read.
type endlessBox struct{ *box }

func (b endlessBox) Hold(ctx context.Context, cmd caisson.Command) (caisson.Process, error) {
	cmd.Argv, cmd.Line = []string{"/usr/bin/head", "-c", "300000000", "/dev/zero"}, ""
	return b.box.Hold(ctx, cmd)
}

// What a box says differs is not written without end.
func TestEndlessDiff(t *testing.T) {
	t.Parallel()
	wd := newWorld(t)
	ws := wd.create(workspace.CreateSpec{Name: "r1"})
	box := newBox(t, ws)
	err := wd.w.Diff(t.Context(), ws, endlessBox{box}, workspace.DiffOptions{Out: io.Discard})
	wantCode(t, err, caisson.CodeGitFailed)
	if !strings.Contains(err.Error(), "larger than") {
		t.Errorf("%v", err)
	}
}

// A directory of logs that is empty is none that cannot be read.
func TestEmptyLogs(t *testing.T) {
	t.Parallel()
	wd := newWorld(t)
	ws := wd.create(workspace.CreateSpec{Name: "r1"})
	box := newBox(t, ws)
	inside(t, box, "mkdir -p "+ws.Shadow+"/logs/refs/empty; git commit -q --allow-empty -m x")
	wd.importOK(ws, box, workspace.ImportOptions{})
	if _, err := wd.w.Inspect(t.Context(), ws, workspace.InspectOptions{}); err != nil {
		t.Fatal(err)
	}
}

// A few objects of a box unpack to more than the host has memory.
func TestBombs(t *testing.T) {
	for name, line := range map[string]string{
		// Ten files in ten directories in ten directories …: a thousand million paths.
		"tree": `b=$(echo x | git hash-object -w --stdin)
t=$(for i in 0 1 2 3 4 5 6 7 8 9; do printf '100644 blob %s\tf%s\n' $b $i; done | git mktree)
for level in 1 2 3 4 5 6 7 8; do t=$(for i in 0 1 2 3 4 5 6 7 8 9; do printf '040000 tree %s\td%s\n' $t $i; done | git mktree); done
git update-ref HEAD $(git commit-tree -p HEAD -m bomb $t)`,
		"message": `head -c 300000000 /dev/zero | tr '\0' a > ../message
git update-ref HEAD $(git commit-tree -p HEAD -F ../message HEAD^{tree}); rm ../message`,
	} {
		t.Run(name, func(t *testing.T) {
			wd := newWorld(t)
			wd.w = workspace.New(workspace.Options{StateDir: wd.state, Ledger: wd.store, Env: wd.env(), GitMemory: 128 << 20})
			ws := wd.create(workspace.CreateSpec{})
			box := newBox(t, ws)
			inside(t, box, line)
			_, err := wd.w.Import(t.Context(), ws, box, workspace.ImportOptions{})
			if code := caisson.CodeOf(err); err == nil || code != caisson.CodeImportHeld && code != caisson.CodeGitFailed {
				t.Fatalf("it was taken: %v", err)
			}
			if tip := wd.git("rev-parse", "refs/heads/"+ws.Branch); tip != ws.Base {
				t.Errorf("the branch is at %s", tip)
			}
		})
	}
}

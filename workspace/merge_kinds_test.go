package workspace_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/workspace"
)

// mergeKinds are histories in which merges go wrong. Lines run in a repository
// whose branch main has a.txt ("one") and sub/b.txt ("two").
var mergeKinds = map[string]struct {
	base, inside, outside string
	conflict              []string // files; nil: it merges
	code                  caisson.Code
	mode                  workspace.MergeMode
	tree, parents         string // of what was merged; "" for any
	message               string // "" for any
}{
	"criss-cross": {
		base: "seq 20 >f; git add f; git commit -qm f", inside: "sed -i 's/^1$/inside/' f; git commit -qam in1; git tag in1",
		outside: "sed -i 's/^20$/outside/' f; git commit -qam out1; out1=$(git rev-parse HEAD); in=$(git rev-parse caisson/r1); git merge -q --no-edit $in; git update-ref refs/heads/caisson/r1 $(git commit-tree -p $in -p $out1 -m cross HEAD^{tree})", parents: "2",
	},
	"renamed on both sides alike":     {inside: "git mv a.txt z; echo in >>sub/b.txt; git commit -qam mv", outside: "git mv a.txt z; git commit -qm mv", tree: "sub/b.txt z"},
	"renamed here, changed there":     {base: "seq 50 >f; git add f; git commit -qm f", inside: "echo in >>f; git commit -qam in", outside: "git mv f g; git commit -qm mv", tree: "a.txt g sub/b.txt"},
	"renamed on both sides otherwise": {base: "seq 50 >f; git add f; git commit -qm f", inside: "git mv f x; git commit -qm mv", outside: "git mv f y; git commit -qm mv", conflict: []string{"f", "x", "y"}},
	"two files renamed to one":        {base: "seq 50 >f; seq 90 150 >g; git add .; git commit -qm fg", inside: "git mv f x; git commit -qm mv", outside: "git mv g x; git commit -qm mv", conflict: []string{"x"}},
	"a directory renamed":             {base: "mkdir d; seq 50 >d/f; seq 60 >d/g; git add .; git commit -qm d", inside: "echo n >d/new; git add .; git commit -qm n", outside: "git mv d e; git commit -qm mv", conflict: []string{"e/new"}},
	"removed here, changed there":     {inside: "echo in >>a.txt; git commit -qam in", outside: "git rm -q a.txt; git commit -qm rm", conflict: []string{"a.txt"}},
	"removed on both sides":           {inside: "git rm -q a.txt; git commit -qm rm", outside: "git rm -q a.txt; git commit -qm rm", tree: "sub/b.txt"},
	"added alike":                     {inside: "echo n >n; git add n; git commit -qm n", outside: "echo n >n; git add n; git commit -qm n", tree: "a.txt n sub/b.txt"},
	"added otherwise":                 {inside: "echo n >n; git add n; git commit -qm n", outside: "echo m >n; git add n; git commit -qm n", conflict: []string{"n"}},
	"a file and a directory":          {inside: "echo n >n; git add n; git commit -qm n", outside: "mkdir n; echo m >n/m; git add n; git commit -qm n", conflict: []string{"n"}},
	"a directory and a file":          {inside: "mkdir n; echo m >n/m; git add n; git commit -qm n", outside: "echo n >n; git add n; git commit -qm n", conflict: []string{"n"}},
	"modes":                           {inside: "chmod +x a.txt; git commit -qam x", outside: "echo out >>a.txt; git commit -qam out", tree: "a.txt sub/b.txt"},
	"a file and a link":               {inside: "ln -s a.txt n; git add n; git commit -qm n", outside: "echo n >n; git add n; git commit -qm n", conflict: []string{"n"}},
	"mode against mode":               {inside: "echo n >n; chmod +x n; git add n; git commit -qm n", outside: "echo n >n; git add n; git commit -qm n", conflict: []string{"n"}},
	"submodules":                      {inside: "git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),sm; git commit -qm sm", outside: "git update-index --add --cacheinfo 160000,$(git rev-parse HEAD^{commit}),sm; git commit -qm outside; git update-index --cacheinfo 160000,$(git rev-parse HEAD),sm; git commit -qm sm2; mkdir -p sm", conflict: []string{"sm"}},
	"a submodule and a file":          {inside: "git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),sm; git commit -qm sm", outside: "echo f >sm; git add sm; git commit -qm sm", conflict: []string{"sm"}},
	"line ends by attributes":         {base: "printf '*.txt text eol=crlf\n' >.gitattributes; git add .; git commit -qm crlf; rm a.txt; git checkout -q a.txt", inside: "printf 'in\r\n' >>a.txt; git commit -qam in", outside: "printf 'out\r\n' >>sub/b.txt; git commit -qam out"},
	"attributes that name a driver":   {base: "echo '*.txt merge=evil' >.gitattributes; git config merge.evil.driver 'touch ran; true'; git add .; git commit -qm at", inside: "echo in >>a.txt; git commit -qam in", outside: "echo out >>a.txt; git commit -qam out", conflict: []string{"a.txt"}},
	"large binary":                    {base: "head -c 8000000 /dev/urandom >bin; git add bin; git commit -qm bin", inside: "printf x >>bin; git commit -qam in", outside: "echo o >o; git add o; git commit -qm o", tree: "a.txt bin o sub/b.txt"},
	"large binary on both sides":      {base: "head -c 8000000 /dev/urandom >bin; git add bin; git commit -qm bin", inside: "printf x >>bin; git commit -qam in", outside: "printf y >>bin; git commit -qam o", conflict: []string{"bin"}},
	"octopus inside":                  {inside: "for b in p q r; do git checkout -qb $b caisson/r1; echo $b >$b; git add $b; git commit -qm $b; done; git checkout -q caisson/r1; git merge -q --no-edit p q r", outside: "echo o >o; git add o; git commit -qm o", tree: "a.txt o p q r sub/b.txt"},
	"octopus inside, squashed":        {mode: workspace.MergeSquash, inside: "for b in p q r; do git checkout -qb $b caisson/r1; echo $b >$b; git add $b; git commit -qm $b; done; git checkout -q caisson/r1; git merge -q --no-edit p q r", outside: "echo o >o; git add o; git commit -qm o", tree: "a.txt o p q r sub/b.txt", parents: "1"},
	"octopus inside, rebased":         {mode: workspace.MergeRebase, inside: "for b in p q r; do git checkout -qb $b caisson/r1; echo $b >$b; git add $b; git commit -qm $b; done; git checkout -q caisson/r1; git merge -q --no-edit p q r", outside: "echo o >o; git add o; git commit -qm o", code: caisson.CodeUnsupported},
	"another root inside":             {inside: "git checkout -q --orphan other; git rm -qrf .; echo o >o; git add o; git commit -qm root; git checkout -q caisson/r1; git merge -q --no-edit --allow-unrelated-histories other", outside: "echo out >out; git add out; git commit -qm out", tree: "a.txt o out sub/b.txt"},
	"nothing in common":               {inside: "git checkout -q --orphan other; git commit -qm root; git branch -qM other caisson/r1", outside: "true", code: caisson.CodeMergeConflict},
	"moved on":                        {inside: "echo in >>a.txt; git commit -qam in", parents: "1", message: "in"},
	"moved on, squashed":              {mode: workspace.MergeSquash, inside: "echo in >>a.txt; git commit -qam in", parents: "1", message: "in"},
	"moved on, rebased with a merge":  {mode: workspace.MergeRebase, inside: "git checkout -qb s; echo s >s; git add s; git commit -qm s; git checkout -q caisson/r1; git merge -q --no-ff -m m s", parents: "2", message: "m"},
	"there already":                   {inside: "echo in >>a.txt; git commit -qam in", outside: "git merge -q caisson/r1; echo o >o; git add o; git commit -qm o", message: "o"},
	"picked already, rebased":         {mode: workspace.MergeRebase, inside: "echo in >>a.txt; git commit -qam in; echo n >n; git add n; git commit -qm n; git commit -q --allow-empty -m 'nothing, said'", outside: "echo o >o; git add o; git commit -qm o; git cherry-pick caisson/r1~2 >/dev/null", message: "nothing, said", parents: "1"},
	"messages without text":           {mode: workspace.MergeSquash, inside: "echo in >>a.txt; git commit -qa --allow-empty-message -m ''", outside: "echo o >o; git add o; git commit -qm o", message: "caisson/r1: 1 commit"},
	"one message without text":        {mode: workspace.MergeSquash, inside: "echo in >>a.txt; git commit -qa --allow-empty-message -m ''; echo y >>a.txt; git commit -qam 'ä $(id) `id` %s \\n'", message: "caisson/r1: 2 commits\n\nä $(id) `id` %s \\n"},
	"a message without text, rebased": {mode: workspace.MergeRebase, inside: "echo in >>a.txt; git commit -qa --allow-empty-message -m ''", outside: "echo o >o; git add o; git commit -qm o", parents: "1"},
}

func TestMergeKinds(t *testing.T) {
	t.Parallel()
	for name, c := range mergeKinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wd := newWorld(t)
			wd.sh(c.base)
			ws := wd.create(workspace.CreateSpec{Name: "r1"})
			box := newBox(t, ws)
			inside(t, box, "set -e; "+c.inside)
			wd.importOK(ws, box, workspace.ImportOptions{AllowRewrite: true})
			wd.sh(c.outside)
			see := func() string { return wd.git("for-each-ref") + wd.git("status", "--porcelain", "--ignored") }
			before := see()
			_, err := wd.w.Merge(t.Context(), ws, workspace.MergeOptions{Mode: c.mode})
			if c.conflict != nil {
				c.code = caisson.CodeMergeConflict
			}
			wantCode(t, err, c.code)
			if c.code != "" {
				if d := cmp.Diff(before, see()); d != "" {
					t.Error(d)
				}
				files, _ := caisson.AsError(err).Detail["files"].([]string)
				if c.conflict != nil && !cmp.Equal(files, c.conflict) {
					t.Errorf("files %q", files)
				}
				if exists(filepath.Join(wd.repo, "ran")) {
					t.Error("the repository's driver ran")
				}
				return
			}
			if s := wd.git("status", "--porcelain"); s != "" && s != "?? sm/" {
				t.Errorf("%q", s)
			}
			if got := strings.TrimPrefix(strings.ReplaceAll(wd.git("ls-tree", "-r", "--name-only", "main"), "\n", " "), ".gitignore "); c.tree != "" && got != c.tree {
				t.Errorf("tree %q", got)
			}
			if got := len(strings.Fields(wd.git("log", "-1", "--format=%P", "main"))); c.parents != "" && c.parents != string(rune('0'+got)) {
				t.Errorf("%d parents", got)
			}
			if got := wd.git("log", "-1", "--format=%B", "main"); c.message != "" && got != c.message {
				t.Errorf("message %q", got)
			}
			again, err := wd.w.Merge(t.Context(), ws, workspace.MergeOptions{})
			if err != nil || c.mode == "" && again.Old != again.New {
				t.Errorf("%+v, %v", again, err)
			}
			wd.git("fsck", "--strict")
		})
	}
}

// sh runs a line as the person in the repository.
func (wd *world) sh(line string) {
	wd.t.Helper()
	if line == "" {
		return
	}
	path := filepath.Join(wd.home, "line.sh")
	wd.write(path, "set -e\n"+line+"\n")
	wd.git("-c", "alias.line=!sh "+path, "line")
}

// A merge commit is signed where the person's own configuration says so, and
// never where only the repository's does.
func TestMergeIsSignedByThePersonOnly(t *testing.T) {
	wd, ws, _ := working(t)
	signer := filepath.Join(wd.home, "signer")
	wd.write(signer, "#!/bin/sh\ncat >/dev/null\necho ran >>"+wd.home+"/signed\n[ -e "+wd.home+"/locked ] && exit 1\necho '[GNUPG:] SIG_CREATED ' >&2\nprintf -- '-----BEGIN PGP SIGNATURE-----\\n\\nx\\n-----END PGP SIGNATURE-----\\n'\n")
	wd.must(os.Chmod(signer, 0o755))
	wd.write(filepath.Join(wd.repo, "o"), "o")
	wd.git("add", "o")
	wd.git("commit", "-qm", "o")
	start := wd.git("rev-parse", "main")
	wd.git("config", "commit.gpgSign", "true")
	wd.git("config", "gpg.program", signer)
	try := func(mode workspace.MergeMode) (string, error) {
		wd.git("reset", "-q", "--hard", start)
		_, err := wd.w.Merge(t.Context(), ws, workspace.MergeOptions{Mode: mode})
		return wd.git("cat-file", "commit", "main"), err
	}
	if text, err := try(""); err != nil || strings.Contains(text, "gpgsig") || exists(filepath.Join(wd.home, "signed")) {
		t.Fatalf("%v %s", err, text)
	}
	config := filepath.Join(wd.home, ".gitconfig")
	own, err := os.ReadFile(config)
	wd.must(err)
	wd.write(config, string(own)+"[commit]\n\tgpgSign = true\n[gpg]\n\tprogram = "+signer+"\n[user]\n\tsigningKey = me\n")
	for _, mode := range []workspace.MergeMode{workspace.MergeCommit, workspace.MergeSquash, workspace.MergeRebase} {
		if text, err := try(mode); err != nil || !strings.Contains(text, "gpgsig -----BEGIN PGP") {
			t.Errorf("%s: %v %s", mode, err, text)
		}
	}
	wd.write(filepath.Join(wd.home, "locked"), "")
	if _, err := try(""); caisson.CodeOf(err) != caisson.CodeGitFailed || !strings.Contains(caisson.AsError(err).HintText(), "commit.gpgSign") || wd.git("rev-parse", "main") != start {
		t.Errorf("%v", err)
	}
	wd.write(config, string(own)+"[commit]\n\tgpgSign = true\n\tgpgSign = false\n")
	if text, err := try(""); err != nil || strings.Contains(text, "gpgsig") {
		t.Errorf("%v %s", err, text)
	}
}

func TestMergeIntoAWorkspaceIsRefused(t *testing.T) {
	wd, ws, _ := working(t)
	other := wd.create(workspace.CreateSpec{Name: "other"})
	// Its tree is on another branch by now, and what is recorded counts.
	wd.gitIn(other.Path, "checkout", "-q", "--detach")
	_, err := wd.w.Merge(t.Context(), ws, workspace.MergeOptions{Into: "caisson/other"})
	wantCode(t, err, caisson.CodeBranchCheckedOut)
	_, err = wd.w.Merge(t.Context(), ws, workspace.MergeOptions{Into: ws.Branch})
	wantCode(t, err, caisson.CodeUsage)
}

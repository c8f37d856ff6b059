package workspace_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/workspace"
)

// exports are what agents commit, and how many patches that is.
var exports = map[string]struct {
	line                    string
	patches, empty, joined  int
	messages                string // of what is applied, oldest first, if not as they were
	authors                 string
	sameMessages, encodedCR bool
}{
	"text and modes":     {line: "echo x >>a.txt; git commit -qam one; chmod +x a.txt; git commit -qam mode; ln -s a.txt l; : >nothing; printf no-newline >n; git add -A; git commit -qm kinds; git rm -q sub/b.txt; rm l; echo now-a-file >l; git add -A; git commit -qm turned", patches: 4, sameMessages: true},
	"renames":            {line: `seq 300 >big; git add big; git commit -qm big; git mv big "a b"; echo 301 >>"a b"; git commit -qam 'renamed and changed'; git mv sub dir; git commit -qm 'a directory'; git mv a.txt "tab	new"; git commit -qm tab`, patches: 4, sameMessages: true},
	"binary":             {line: `head -c 300000 /dev/urandom >bin; git add bin; git commit -qm bin; printf 'x\000y' >>bin; git commit -qam 'bin again'; git mv bin bin2; chmod +x bin2; git commit -qam moved; git rm -q bin2; git commit -qm gone`, patches: 4, sameMessages: true},
	"names":              {line: `f=$(printf 'n\377 "q\\\n\001'); echo x >"$f"; mkdir d; echo y >"d/ö"; echo z >-x; git add -A; git commit -qm names; echo more >>"$f"; git mv d/ö "d/ "; git commit -qam more`, patches: 2, sameMessages: true},
	"line ends":          {line: `printf 'a\r\nb\r\n' >crlf; printf '=3D \t\r\nFrom x\r\n' >odd; git add -A; git commit -qm crlf; printf 'c \r\n' >>crlf; printf 'x\ry\n' >>odd; git commit -qam 'crlf ä'; printf 'a\nb\r\n' >crlf; git commit -qam mixed`, patches: 3, sameMessages: true, encodedCR: true},
	"attributes":         {line: `printf '*.t diff=evil text eol=crlf\n*.d -diff\n*.f filter=evil\n' >.gitattributes; git config diff.evil.textconv 'touch /tmp/ran'; echo t >t.t; echo d >d.d; git add -A; git commit -qm attributes; echo t2 >>t.t; echo d2 >>d.d; git commit -qam more`, patches: 2, sameMessages: true},
	"empty commits":      {line: "git commit -q --allow-empty -m nothing; echo x >x; git add x; git commit -qm x; git commit -q --allow-empty -m nothing-again; echo y >>x; git commit -qam y", patches: 2, empty: 2, messages: "x|y|"},
	"nothing":            {line: "true"},
	"only empty":         {line: "git commit -q --allow-empty -m nothing", empty: 1},
	"messages":           {line: `i() { echo $1 >$1; git add $1; git commit -q --cleanup=verbatim -F -; }; printf 'subject in\ntwo lines\n\n---\nbody after\ndiff --git a/x b/x\n--- a/x\n+++ b/x\nIndex: y\n' | i 1; printf 's\n\nFrom ada Mon Sep 17 00:00:00 2001\nFrom: x\n\n>From y\n' | i 2; printf '[tag] ä ☃\n\nSigned-off-by: A <a@b>\n' | i 3; printf 'one long line %%0.s' $(seq 100) | i 4`, patches: 4},
	"empty messages":     {line: "echo x >x; git add x; git commit -q --allow-empty-message -m ''; echo y >>x; git commit -qam y", patches: 2},
	"authors":            {line: `echo x >x; git add x; git commit -qm x --author='Ædä, (x) <a@b.c>' --date='@1000000000 +0530'; echo y >>x; git commit -qam y --author='=?utf-8?q?x?= <=@x>'; c=$(printf 'tree %s\nparent %s\nauthor  <> 1700000000 +0000\ncommitter C <c@d> 1700000000 +0000\n\nnameless\n' "$(git write-tree)" "$(git rev-parse HEAD)" | git hash-object -t commit -w --stdin); echo z >z; git add z; t=$(git write-tree); c=$(printf 'tree %s\nparent %s\nauthor  <e@f> 1700000000 +0000\ncommitter C <c@d> 1700000000 +0000\n\nnameless\n' "$t" "$(git rev-parse HEAD)" | git hash-object -t commit -w --stdin); git reset -q --hard $c`, patches: 3, authors: "Ædä, (x) <a@b.c> 1000000000 +0530"},
	"another encoding":   {line: `echo x >x; git add x; printf 'gr\374n\n' | git -c i18n.commitEncoding=ISO-8859-1 commit -qF -`, patches: 1, messages: "grün|"},
	"merges":             {line: "git checkout -qb side; echo s >s; git add s; git commit -qm side; git checkout -q caisson/r1; echo m >>a.txt; git commit -qam mine; git merge -q --no-edit side; echo after >>s; git commit -qam after", patches: 3, joined: 1},
	"a merge resolved":   {line: "git checkout -qb side; echo s >a.txt; git commit -qam side; git checkout -q caisson/r1; echo m >a.txt; git commit -qam mine; git merge -q side || :; echo both >a.txt; git commit -qam resolved", patches: 2, joined: 1},
	"octopus":            {line: "for b in p q r; do git checkout -qb $b caisson/r1; echo $b >$b; git add $b; git commit -qm $b; done; git checkout -q caisson/r1; echo own >own; git add own; git commit -qm own; git merge -q --no-edit p q r", patches: 2, joined: 1},
	"another root":       {line: "git checkout -q --orphan other; git rm -qrf .; echo o >o; git add o; git commit -qm root; git checkout -q caisson/r1; git merge -q --no-edit --allow-unrelated-histories other", patches: 1, joined: 1},
	"replaced by a root": {line: "git checkout -q --orphan other; echo o >o; git add o; git commit -qm root; git branch -qM other caisson/r1", patches: 1},
	"the base merged in": {line: "b=$(git rev-parse HEAD); git checkout -q --orphan other; git commit -qm root; git merge -q --no-edit --allow-unrelated-histories $b; echo x >x; git add x; git commit -qm x; git branch -qM other caisson/r1", patches: 1, empty: 2, joined: 1},
	"a submodule":        {line: "git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),sm; git commit -qm sub; git update-index --cacheinfo 160000,$(git rev-parse HEAD),sm; git commit -qm 'sub moved'", patches: 2, sameMessages: true},
	"directory to file":  {line: "rm -r sub; echo f >sub; git add -A; git commit -qm d2f; rm sub; mkdir sub; echo x >sub/x; git add -A; git commit -qm f2d", patches: 2, sameMessages: true},
	"large and many":     {line: "seq 20000 >big; for i in $(seq 300); do echo $i >m$i; done; git add -A; git commit -qm many; sort -R big >b2; mv b2 big; git commit -qam shuffled", patches: 2, sameMessages: true},
	"ends like a mail":   {line: `printf -- '-- \n2.39.5\n\nFrom 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001\nFrom: x\nSubject: y\n\n' >mail; git add mail; git commit -qm mail; sed -i 's/x/z/' mail; git commit -qam again`, patches: 2, sameMessages: true},
}

// What is exported is applied by git am on the base, and gives the same tree.
func TestExportIsAppliedByGitAm(t *testing.T) {
	t.Parallel()
	for name, c := range exports {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wd := newWorld(t)
			ws := wd.create(workspace.CreateSpec{Name: "r1"})
			box := newBox(t, ws)
			inside(t, box, "set -e; "+c.line)
			wd.importOK(ws, box, workspace.ImportOptions{AllowRewrite: true})
			refs, dir := wd.git("for-each-ref"), filepath.Join(wd.home, "patches")
			got, err := wd.w.Export(t.Context(), ws, workspace.ExportOptions{Dir: dir})
			wd.must(err)
			if len(got.Patches) != c.patches || len(got.Empty) != c.empty || len(got.Joined) != c.joined {
				t.Fatalf("%+v", got)
			}
			if wd.git("for-each-ref") != refs {
				t.Error("references were moved")
			}
			var mail bytes.Buffer
			if _, err := wd.w.Export(t.Context(), ws, workspace.ExportOptions{Out: &mail}); err != nil {
				t.Fatal(err)
			}
			if len(got.Patches) == 0 {
				if mail.Len() > 0 {
					t.Errorf("%q", &mail)
				}
				return
			}
			clone := filepath.Join(wd.home, "clone")
			wd.git("clone", "-q", "--no-checkout", wd.repo, clone)
			tree := wd.git("rev-parse", ws.Branch+"^{tree}")
			box1 := filepath.Join(wd.home, "mbox")
			wd.write(box1, mail.String())
			all := []string{"am", "-q", "--keep-non-patch"}
			for _, p := range got.Patches {
				all = append(all, filepath.Join(dir, p.File))
			}
			for _, args := range [][]string{all, {"am", "-q", "--keep-non-patch", box1}} {
				wd.gitIn(clone, "checkout", "-q", "-B", "applied", ws.Base)
				wd.gitIn(clone, args...)
				if now := wd.gitIn(clone, "rev-parse", "HEAD^{tree}"); now != tree {
					t.Fatalf("another tree: %s", wd.gitIn(clone, "diff", "--stat", "HEAD", tree))
				}
				messages := strings.ReplaceAll(wd.gitIn(clone, "log", "-z", "--reverse", "--format=%B", ws.Base+".."), "\n\x00", "|")
				if c.sameMessages {
					c.messages = strings.ReplaceAll(wd.git("log", "-z", "--reverse", "--format=%B", ws.Base+".."+ws.Branch), "\n\x00", "|")
				}
				if c.messages != "" && messages != c.messages {
					t.Errorf("%q, want %q", messages, c.messages)
				}
				if first := wd.gitIn(clone, "log", "-1", "--date=raw", "--format=%an <%ae> %ad", wd.gitIn(clone, "rev-list", "--reverse", ws.Base+"..")[:40]); c.authors != "" && first != c.authors {
					t.Errorf("%q", first)
				}
			}
			if c.encodedCR != strings.Contains(mail.String(), "quoted-printable") {
				t.Errorf("encoded: %v", !c.encodedCR)
			}
		})
	}
}

func TestExportReplacesNothing(t *testing.T) {
	wd, ws, _ := working(t)
	dir := filepath.Join(wd.home, "patches")
	wd.write(filepath.Join(dir, "0002-add-n.patch"), "mine")
	_, err := wd.w.Export(t.Context(), ws, workspace.ExportOptions{Dir: dir})
	wantCode(t, err, caisson.CodeAlreadyExists)
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Fatalf("%v %v", entries, err)
	}
	wd.must(os.Symlink(ws.Path, filepath.Join(wd.home, "link")))
	for _, dir := range []string{"link", "link/new/er"} {
		_, err = wd.w.Export(t.Context(), ws, workspace.ExportOptions{Dir: filepath.Join(wd.home, dir)})
		wantCode(t, err, caisson.CodePathOutside)
	}
	if exists(filepath.Join(ws.Path, "new")) {
		t.Error("a directory was made in the agent's tree")
	}
	_, err = wd.w.Export(t.Context(), ws, workspace.ExportOptions{Dir: filepath.Join(wd.home, ".gitconfig")})
	wantCode(t, err, caisson.CodeUsage)
	if left, _ := filepath.Glob(filepath.Join(wd.state, "shadows", "*", "export-*")); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

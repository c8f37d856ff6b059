package workspace_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/workspace"
)

func itoa(n int) string { return strconv.Itoa(n) }

func sha256Of(content string) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:])
}

// pointerTo is what a commit holds of a content that is kept by Git LFS.
func pointerTo(content string) string {
	return fmt.Sprintf("version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize %d\n", sha256Of(content), len(content))
}

// largeFiles makes a repository whose *.bin are kept by LFS, with the content of
// have.bin at hand and that of away.bin not.
func (wd *world) largeFiles() {
	wd.t.Helper()
	wd.write(filepath.Join(wd.repo, ".gitattributes"), "*.bin filter=lfs diff=lfs merge=lfs -text\n")
	wd.write(filepath.Join(wd.repo, "have.bin"), pointerTo("have\n"))
	wd.write(filepath.Join(wd.repo, "away.bin"), pointerTo("away\n"))
	id := sha256Of("have\n")
	wd.write(filepath.Join(wd.repo, ".git", "lfs", "objects", id[:2], id[2:4], id), "have\n")
	wd.git("add", "-A")
	wd.git("commit", "-qm", "large")
}

// lfsProgram is a person's own program for LFS, as far as a test needs one: it
// says in a file what it was asked, and finds what the repository has.
const lfsProgram = `#!/bin/sh
echo "$1" >>"$(dirname "$0")/asked"
got=$(cat; echo x); got=${got%x}
case $1 in
clean)
	case $got in "version https://git-lfs"*) printf %s "$got"; exit;; esac
	id=$(printf %s "$got" | sha256sum | cut -c1-64)
	printf 'version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize %s\n' "$id" "$(printf %s "$got" | wc -c)" ;;
smudge)
	id=$(printf %s "$got" | sed -n 's/^oid sha256://p')
	at=$(git rev-parse --git-common-dir)/lfs/objects/$(echo $id | cut -c1-2)/$(echo $id | cut -c3-4)/$id
	if [ -f "$at" ]; then cat "$at"; elif [ -n "$GIT_LFS_SKIP_DOWNLOAD_ERRORS" ]; then printf %s "$got"; else exit 1; fi ;;
esac
`

// Without a filter of the person's own, files are pointers and stay pointers.
func TestLFSPointers(t *testing.T) { forModes(t, testLFSPointers) }

func testLFSPointers(t *testing.T) {
	wd := newWorld(t)
	wd.largeFiles()
	// What a repository configures is not what runs on the host.
	wd.git("config", "filter.lfs.smudge", "touch '"+wd.home+"/ran'; cat")
	wd.git("config", "filter.lfs.clean", "cat")
	ws := wd.create(workspace.CreateSpec{Base: "HEAD"})
	if exists(filepath.Join(wd.home, "ran")) {
		t.Error("the repository's filter ran on the host")
	}
	for _, name := range []string{"have", "away"} {
		if got, err := os.ReadFile(filepath.Join(ws.Path, name+".bin")); err != nil || string(got) != pointerTo(name+"\n") {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	id := sha256Of("have\n")
	if got := inside(t, newBox(t, ws), "cat '"+filepath.Join(wd.repo, ".git", "lfs", "objects", id[:2], id[2:4], id)+"'"); got != "have" {
		t.Errorf("what the repository has is not lent: %q", got)
	}
}

// The person's own filter fills the tree, and where its program is not inside,
// files are still kept as they should be.
func TestLFSFilter(t *testing.T) { forModes(t, testLFSFilter) }

func testLFSFilter(t *testing.T) {
	wd := newWorld(t)
	wd.largeFiles()
	program := filepath.Join(wd.home, "bin", "git-lfs")
	wd.write(program, lfsProgram)
	wd.must(os.Chmod(program, 0o755))
	wd.write(filepath.Join(wd.home, ".gitconfig"), "[user]\n\tname = A\n\temail = a@b\n[filter \"lfs\"]\n\tsmudge = "+program+" smudge -- %f\n\tclean = "+program+" clean -- %f\n\trequired = true\n")
	ws := wd.create(workspace.CreateSpec{Base: "HEAD"})
	if asked, _ := os.ReadFile(filepath.Join(wd.home, "bin", "asked")); strings.Count(string(asked), "smudge") != 2 {
		t.Errorf("the person's filter was asked %q", asked)
	}
	for name, want := range map[string]string{"have": "have\n", "away": pointerTo("away\n")} {
		if got, err := os.ReadFile(filepath.Join(ws.Path, name+".bin")); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	box := newBox(t, ws)
	if _, code := tryInside(t, box, "command -v "+program); code == 0 {
		t.Fatal("the person's program is inside, so this test sees nothing")
	}
	inside(t, box, `set -e
rm have.bin; git checkout -q have.bin; test "$(cat have.bin)" = have
test -z "$(git status --porcelain)"
echo new >new.bin; : >empty.bin; echo changed >>have.bin; touch away.bin
git add -A; git commit -qm large; test -z "$(git status --porcelain)"
rm have.bin new.bin empty.bin; git checkout -q .
test "$(cat new.bin)" = new; test "$(cat have.bin)" = "have
changed"; test ! -s empty.bin
git checkout -q HEAD~1 -- have.bin; test "$(cat have.bin)" = have; git reset -q --hard`)
	got := wd.importOK(ws, box, workspace.ImportOptions{})
	if !got.Moved || got.Unkept != "" {
		t.Fatalf("%+v", got)
	}
	for name, want := range map[string]string{"new": pointerTo("new\n"), "have": pointerTo("have\nchanged\n"), "away": pointerTo("away\n"), "empty": ""} {
		if s := wd.git("cat-file", "blob", got.New+":"+name+".bin"); s != strings.TrimSpace(want) {
			t.Errorf("%s was committed as %q", name, s)
		}
	}
	wd.loseShadow(ws)
	for _, content := range []string{"new\n", "have\nchanged\n"} {
		id := sha256Of(content)
		if got, err := os.ReadFile(filepath.Join(wd.repo, ".git", "lfs", "objects", id[:2], id[2:4], id)); err != nil || string(got) != content {
			t.Errorf("%q did not come home: %q, %v", content, got, err)
		}
	}
}

// Contents inside are written by whoever is inside.
func TestHostileLFS(t *testing.T) {
	t.Parallel()
	wd := newWorld(t)
	ws := wd.create(workspace.CreateSpec{})
	box := newBox(t, ws)
	secret := filepath.Join(t.TempDir(), "secret")
	wd.write(secret, "secret\n")
	id, good := sha256Of("secret\n"), sha256Of("good\n")
	inside(t, box, `L=`+ws.Shadow+`/lfs/objects; P() { mkdir -p $L/$(echo $1 | cut -c1-2)/$(echo $1 | cut -c3-4); echo $L/$(echo $1 | cut -c1-2)/$(echo $1 | cut -c3-4)/$1; }
ln -s `+secret+` $(P `+id+`)
echo good >$(P `+good+`)
echo wrong >$(P $(printf '1%.0s' $(seq 64)))
mkfifo $(P $(printf '2%.0s' $(seq 64)))
mkdir $(P $(printf '3%.0s' $(seq 64)))
truncate -s 5G $(P $(printf '4%.0s' $(seq 64)))
ln -s / $L/55; mkfifo $L/66; mkdir -p $L/77; ln -s .. $L/77/77`)
	got := wd.importOK(ws, box, workspace.ImportOptions{})
	if !strings.Contains(got.Unkept, strings.Repeat("4", 64)) {
		t.Errorf("%+v", got)
	}
	var found []string
	wd.must(filepath.WalkDir(filepath.Join(wd.repo, ".git", "lfs"), func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			found = append(found, entry.Name())
		}
		return err
	}))
	if len(found) != 1 || found[0] != good {
		t.Errorf("taken: %q", found)
	}
}

// Where a repository keeps LFS contents by a link to elsewhere, nothing is
// written there.
func TestLFSByLinks(t *testing.T) {
	t.Parallel()
	id := sha256Of("good\n")
	for _, at := range []string{"lfs", "lfs/objects", "lfs/objects/" + id[:2], "lfs/objects/" + id[:2] + "/" + id[2:4]} {
		wd := newWorld(t)
		ws := wd.create(workspace.CreateSpec{})
		box := newBox(t, ws)
		elsewhere, link := t.TempDir(), filepath.Join(wd.repo, ".git", at)
		wd.must(os.MkdirAll(filepath.Dir(link), 0o755))
		wd.must(os.Symlink(elsewhere, link))
		dir := filepath.Join(ws.Shadow, "lfs", "objects", id[:2], id[2:4])
		inside(t, box, "mkdir -p "+dir+"; echo good >"+dir+"/"+id)
		got := wd.importOK(ws, box, workspace.ImportOptions{})
		if !strings.Contains(got.Unkept, id) {
			t.Errorf("%s: %+v", at, got)
		}
		if entries, err := os.ReadDir(elsewhere); err != nil || len(entries) > 0 {
			t.Errorf("%s: written: %v %v", at, entries, err)
		}
	}
}

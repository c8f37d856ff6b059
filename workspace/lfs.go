package workspace

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
)

// Git LFS keeps a pointer in a commit, and the content beside git's objects by
// its SHA-256. Nothing here needs its program: without one on the host and
// inside, files are pointers and stay pointers.

// maxLFS bounds how many contents are looked at in one shadow.
const maxLFS = 20_000

var twoHex = regexp.MustCompile(`^[0-9a-f]{2}$`)

// lfsEnv is for a person's own filter, if there is one, when a tree is filled:
// what the repository does not have is left as a pointer. No network is used.
func lfsEnv() []string {
	return []string{"GIT_LFS_SKIP_DOWNLOAD_ERRORS=1"}
}

// lfsObjects returns the directory of a repository's LFS contents, which a box
// is lent; none where there is none, or where it holds anything else.
func lfsObjects(common string) []string {
	dir := filepath.Join(common, "lfs", "objects")
	real, err := filepath.EvalSymlinks(dir)
	if err != nil || real != dir || strings.ContainsAny(dir, "\n\"") {
		return nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil || slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return !e.IsDir() || !twoHex.MatchString(e.Name()) }) {
		return nil
	}
	return []string{dir}
}

// lfsScript is what filters do inside where the program that the person has
// configured is not there: content becomes a pointer and is kept where that
// program would keep it, a pointer becomes content where that is at hand.
const lfsScript = `#!/bin/sh
set -eu
spec='version https://git-lfs.github.com/spec/v1'
git=$(git rev-parse --git-common-dir)
pointed() { [ "$(head -c 42 "$1")" = "$spec" ] && [ "$(wc -c <"$1")" -lt 1024 ]; }
at() { echo "$1/lfs/objects/$(echo "$2" | cut -c1-2)/$(echo "$2" | cut -c3-4)/$2"; }
mkdir -p "$git/lfs/tmp"
got=$(mktemp "$git/lfs/tmp/XXXXXX")
trap 'rm -f "$got"' EXIT
cat >"$got"
case $1 in
clean)
	if [ ! -s "$got" ] || pointed "$got"; then cat "$got"; exit; fi
	set -- $(sha256sum <"$got")
	size=$(($(wc -c <"$got")))
	to=$(at "$git" "$1")
	mkdir -p "$(dirname "$to")"
	chmod 644 "$got"
	mv -f "$got" "$to"
	printf '%s\noid sha256:%s\nsize %s\n' "$spec" "$1" "$size" ;;
smudge)
	if pointed "$got"; then
		id=$(sed -n 's/^oid sha256://p' "$got")
		from=$({ echo "$git/objects"; cat "$git/objects/info/alternates"; } | while IFS= read -r objects; do
			it=$(at "$(dirname "$objects")" "$id")
			if [ -f "$it" ]; then echo "$it"; break; fi
		done)
		if [ -n "$from" ]; then cat "$from"; exit; fi
	fi
	cat "$got" ;;
esac
`

// lfsName is the name of lfsScript in a shadow.
const lfsName = "caisson-lfs"

// lfsInside makes a filter for LFS one that also works where its program is not
// inside. Another one than for that is left as it is.
func lfsInside(settings []setting, shadow string) []setting {
	const clean, smudge, process = "filter.lfs.clean", "filter.lfs.smudge", "filter.lfs.process"
	if last(settings, clean) == "" || last(settings, smudge) == "" {
		return settings
	}
	var out []setting
	for _, s := range settings {
		switch s.key {
		case clean, smudge:
			program, _, _ := strings.Cut(s.value, " ")
			script := "sh " + shellQuote(filepath.Join(shadow, lfsName)) + " " + strings.TrimPrefix(s.key, "filter.lfs.")
			s.value = "if command -v " + shellQuote(program) + " >/dev/null 2>&1; then " + s.value + "; else " + script + "; fi"
		case process: // it has no place for an else
			continue
		}
		out = append(out, s)
	}
	return out
}

func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// importLFS brings contents that were made inside to the repository: commits
// hold pointers to them only. Each is checked to be what its name says; what is
// not stays where it is, and what is over the bound is told, or comes with the
// next import. Nothing is followed out of the repository: a link there to
// elsewhere is told.
func importLFS(root *os.Root, common string) (unkept string, err error) {
	n, left := 0, int64(maxImport)
	first := listNames(root, "lfs/objects", twoHex)
	if len(first) == 0 {
		return "", nil
	}
	home, err := os.OpenRoot(common)
	if err != nil {
		return "", failed("keep LFS contents", err)
	}
	defer home.Close()
	for _, one := range first {
		for _, two := range listNames(root, "lfs/objects/"+one, twoHex) {
			for _, id := range listNames(root, "lfs/objects/"+one+"/"+two, lfsID) {
				if n++; n > maxLFS {
					return fmt.Sprintf("there are more than %d LFS contents inside", maxLFS), nil
				}
				name := filepath.Join("lfs", "objects", one, two, id)
				if _, err := home.Lstat(name); err == nil || !strings.HasPrefix(id, one+two) {
					continue
				}
				info, err := root.Lstat(name)
				switch {
				case err != nil || !info.Mode().IsRegular():
				case info.Size() > maxImport:
					unkept = fmt.Sprintf("the LFS content %s is larger than %d bytes", id, int64(maxImport))
				case info.Size() > left:
					return unkept, nil
				case !plainDirs(home, filepath.Dir(name)):
					unkept = fmt.Sprintf("the LFS content %s cannot be kept: a link to elsewhere, or no directory, is where those of the repository are", id)
				default:
					left -= info.Size()
					if err := takeLFS(root, home, name, id, info.Size()); err != nil {
						return unkept, failed("keep an LFS content", err)
					}
				}
			}
		}
	}
	return unkept, nil
}

var lfsID = regexp.MustCompile(`^[0-9a-f]{64}$`)

// listNames lists the names in a directory of a shadow that have a form.
func listNames(root *os.Root, dir string, form *regexp.Regexp) []string {
	f, err := root.OpenFile(dir, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer f.Close()
	names, _ := f.Readdirnames(maxLFS + 1) // what could be read is looked at
	names = slices.DeleteFunc(names, func(name string) bool { return !form.MatchString(name) })
	slices.Sort(names)
	return names
}

// plainDirs tells whether each part of a path is a directory itself, or not there.
func plainDirs(root *os.Root, dir string) bool {
	for ; dir != "."; dir = filepath.Dir(dir) {
		if info, err := root.Lstat(dir); err == nil && !info.IsDir() || err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false
		}
	}
	return true
}

// takeLFS copies one content home, if what is copied is what its id says.
func takeLFS(root, home *os.Root, name, id string, limit int64) (err error) {
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil //nolint:nilerr // a link out, or gone
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil //nolint:nilerr // replaced meanwhile
	}
	dir := filepath.Dir(name)
	if err := home.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	made := filepath.Join(dir, "."+id+"."+rand.Text()+".tmp")
	tmp, err := home.OpenFile(made, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	sum := sha256.New()
	_, err = io.Copy(io.MultiWriter(tmp, sum), io.LimitReader(f, limit))
	err = errors.Join(err, tmp.Chmod(0o644), tmp.Sync(), tmp.Close())
	if err == nil && hex.EncodeToString(sum.Sum(nil)) == id {
		if err = home.Rename(made, name); err == nil {
			return syncDir(home, dir)
		}
	}
	return errors.Join(err, home.Remove(made))
}

func syncDir(root *os.Root, dir string) error {
	f, err := root.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

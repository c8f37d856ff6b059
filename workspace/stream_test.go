package workspace

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// FuzzPack reads what a server inside may send: it must end, without a panic,
// and hand on no more than came.
func FuzzPack(f *testing.F) {
	f.Add([]byte("000eversion 2\n0000000dpackfile\n0011\x01PACK\x00\x00\x00\x02\x00\x00\x00\x000000"))
	f.Add([]byte("000eversion 2\n0000000dpackfile\n0009\x02hm\n\n0009\x03bad\n"))
	f.Add([]byte("ffff0001000200030004"))
	f.Fuzz(func(t *testing.T, said []byte) {
		var asked bytes.Buffer
		pack, err := requestPack(bytes.NewReader(said), &asked, "sha1", []string{strings.Repeat("1", 40)}, nil)
		if err != nil {
			return
		}
		got, err := io.ReadAll(pack)
		if len(got) > len(said) {
			t.Fatalf("%d bytes of %d", len(got), len(said))
		}
		if err == nil && !bytes.HasSuffix(said, []byte("0000")) && !bytes.Contains(said, []byte("0000")) {
			t.Fatal("a pack that was cut was taken for whole")
		}
	})
}

// Listing references and reading the list gives the same again, whatever the
// names.
func TestListRefs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		refs := map[string]string{}
		for _, name := range rapid.SliceOf(rapid.StringMatching(`refs/[a-z\x80-\xff]{1,8}`)).Draw(t, "names") {
			refs[name] = strings.Repeat("a", 40)
		}
		if d := cmp.Diff(refs, parseRefs(listRefs(refs))); d != "" {
			t.Fatal(d)
		}
	})
}

func TestIsRefName(t *testing.T) {
	for name, want := range map[string]bool{
		"refs/heads/a": true, "refs/heads/a/b": true, "refs/heads/b\xff": true, "refs/heads/@": true, "refs/stash": true,
		"HEAD": false, "refs/": false, "refs//a": false, "refs/heads/.a": false, "refs/heads/a.lock": false, "refs/heads/a.lock/b": false,
		"refs/heads/a..b": false, "refs/heads/a b": false, "refs/heads/a\n": false, "refs/heads/a\x00": false, "refs/heads/a~": false, "refs/heads/@{u}": false, "refs/heads/a.": false,
	} {
		if isRefName(name) != want {
			t.Errorf("%q: %v", name, !want)
		}
	}
}

func TestNewEnough(t *testing.T) {
	for answer, want := range map[string]bool{
		"git version 2.39.5": true, "git version 2.39.5 (Apple Git-154)": true, "git version 3.0.0": true, "git version 2.51.0.windows.1": true,
		"git version 2.38.9": false, "git version 1.99": false, "": false, "git version x.y": false,
	} {
		if newEnough(answer) != want {
			t.Errorf("%q: %v", answer, !want)
		}
	}
}

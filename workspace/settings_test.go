package workspace

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A value that a repository chose must stay a value: git reads from our file
// exactly what was written, and nothing more.
func TestSettingsAreReadAsWritten(t *testing.T) {
	want := []setting{
		{key: "user.name", value: "A \"B\" \\ C ; # D"},
		{key: "user.email", value: "x\"\n[core]\n\tfsmonitor = evil\n"},
		{key: "core.eol", value: "  leading and trailing \t "},
		{key: "core.autocrlf", value: "a\rb\bc\r"},
		{key: "filter.a.b \"]c\\.clean", value: "cat\\"},
		{key: "filter.x.smudge", value: ""},
		{key: "i18n.commitencoding", value: "od\xffd"},
	}
	var b bytes.Buffer
	writeSettings(&b, want)
	path := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("git", "config", "--file", path, "--no-includes", "--list", "-z", "--show-scope").Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, &b)
	}
	// git calls a file that it was given "command".
	got := parseSettings(bytes.ReplaceAll(out, []byte("command\x00"), []byte("local\x00")))
	if d := cmp.Diff(want, got, cmp.AllowUnexported(setting{})); d != "" {
		t.Fatal(d)
	}
}

// What may hold a secret, or name a file or a program of the host, is chosen
// for neither side.
func TestWhatIsChosen(t *testing.T) {
	for _, c := range []struct {
		s         setting
		host, box bool
	}{
		{setting{key: "user.name"}, true, true},
		{setting{key: "filter.x.clean", own: true}, true, true},
		{setting{key: "filter.x.clean"}, false, true},
		{setting{key: "gpg.program"}, false, false},
		{setting{key: "remote.origin.url", own: true}, false, false},
		{setting{key: "http.extraheader", own: true}, false, false},
		{setting{key: "credential.helper", own: true}, false, false},
		{setting{key: "core.fsmonitor", own: true}, false, false},
		{setting{key: "core.sshcommand", own: true}, false, false},
		{setting{key: "core.hookspath", value: ".husky"}, false, true},
		{setting{key: "core.hookspath", value: "/home/x/hooks"}, false, false},
		{setting{key: "core.hookspath", value: "a/../../x"}, false, false},
		{setting{key: "include.path", value: "x"}, false, false},
		{setting{key: "core.worktree", value: "/"}, false, false},
		{setting{key: "alias.x"}, false, false},
	} {
		if forHost(c.s) != c.host || forBox(c.s) != c.box {
			t.Errorf("%+v: host %v, box %v", c.s, forHost(c.s), forBox(c.s))
		}
	}
}

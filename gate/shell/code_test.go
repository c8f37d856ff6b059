package shell_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/gate/shell"
)

// Arguments are split at spaces; those that have a ? in them are what a request
// gives, and want are those of them that would be program text.
func TestCode(t *testing.T) {
	for _, c := range []struct{ argv, want string }{
		{"echo ? --title=?", ""},
		{"gh pr create --title ? --label node --body=?", ""},
		{"sh -c text sh ?", ""},
		{"sh -c echo_? sh ?", "echo_?"},
		{"/bin/bash -lc ?", "?"},
		{"dash -e -c ?", "?"},
		{"bash -o pipefail -c a?", "a?"},
		{"bash -c -x a?", "a?"},
		{"zsh -c -- a?", "a?"},
		{"ksh -? text", "-?"},
		{"fish --command a?", "a?"},
		{"sh ?", "?"},
		{"sh script ?", ""},
		{"busybox sh -c a?", "a?"},
		{"busybox ash -c a?", "a?"},
		{"env sh -c a?", "a?"},
		{"env -i X=? sh -c a?", "a?"},
		{"env X=? prog y?", ""},
		{"env ?", "?"},
		{"env ?=1 prog", "?=1"},
		{"env -S a?", "a?"},
		{"env -S? b", "-S?"},
		{"/usr/bin/env -u X bash -c a?", "a?"},
		{"nice -n 5 timeout 10 sh -c a?", "a?"},
		{"timeout ? prog y?", ""},
		{"nohup ?", "?"},
		{"sudo -u you sh -c a?", "a?"},
		{"su you -c a?", "a?"},
		{"xargs sh -c a?", "a?"},
		{"docker run --rm image sh -c a?", "a?"},
		{"docker run --rm image python3 -c a? b?", "a?"},
		{"find . -exec sh -c a? ;", "a?"},
		{"find . -exec ? ;", "?"},
		{"find ? -name b?", ""},
		{"python -c a? b?", "a?"},
		{"python3.12 -ca? b?", "-ca?"},
		{"python3 -m ? b?", "?"},
		{"python3 script.py -c ?", ""},
		{"python3 ?", "?"},
		{"python3 -W error -c a?", "a?"},
		{"perl -ne a? file?", "a?"},
		{"perl -e x -e a?", "a?"},
		{"node -e a?", "a?"},
		{"node --eval a?", "a?"},
		{"node --eval=a?", "--eval=a?"},
		{"node -p a?", "a?"},
		{"node script.js --eval a?", ""},
		{"ruby -ea?", "-ea?"},
		{"php -r a?", "a?"},
		{"pwsh -Command a?", "a?"},
		{"awk a? file?", "a?"},
		{"awk -v x=? text file?", ""},
		{"sed -e a? file?", "a?"},
		{"sed -n a? file?", "a?"},
		{"sed s/a/b/ file?", ""},
		{"ssh host ls ?", "?"},
		{"ssh -p 22 ?", ""},
		{"watch ls ?", "?"},
		{"gh run watch ?", ""},
		{"npx -c a?", "a?"},
		{"flock file -c a?", "a?"},
	} {
		argv := strings.Split(strings.ReplaceAll(c.argv, "?", "\x00"), " ")
		var got []string
		found := shell.Code(argv)
		for i, arg := range argv {
			if by, is := found[i]; is && strings.Contains(arg, "\x00") {
				got = append(got, strings.ReplaceAll(arg, "\x00", "?"))
				if by == "" {
					t.Errorf("%s: nobody reads it", c.argv)
				}
			}
		}
		if want := strings.Fields(c.want); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", c.argv, got, want)
		}
	}
}

func FuzzCode(f *testing.F) {
	f.Add("env -S\x00 sh -c")
	f.Add("python -c")
	f.Add("ssh -p")
	f.Fuzz(func(t *testing.T, text string) {
		argv := strings.Split(text, " ")
		for i := range shell.Code(argv) {
			if i < 0 || i >= len(argv) {
				t.Fatalf("%q: argument %d", argv, i)
			}
		}
	})
}

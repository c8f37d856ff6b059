package glob_test

import (
	"strings"
	"testing"

	"github.com/caisson-run/caisson/internal/glob"
)

func TestCompile(t *testing.T) {
	for _, c := range []struct{ pattern, yes, no string }{
		{"**/.env", ".env a/.env a/b/.env", "env .envrc a/.env/b x.env"},
		{"*.pem", "a.pem .pem", "a/b.pem a.pem.txt"},
		{"secrets/**", "secrets/a secrets/a/b", "secrets a/secrets/b"},
		{"a/**/z", "a/z a/b/z a/b/c/z", "a/zz b/a/z"},
		{"*.{key,p12}", "a.key a.p12", "a.pem a.keys"},
		{"[a-c]?", "ab c1", "d1 a abc"},
		{"[!a]", "b", "a"},
		{`\*`, "*", "a"},
		{`\[a`, "[a", "a"},
		{"a]b}", "a]b}", "a"},
		{"a.b+(c)|d", "a.b+(c)|d", "axb d"},
	} {
		re, err := glob.Compile(c.pattern)
		if err != nil {
			t.Errorf("%s: %v", c.pattern, err)
			continue
		}
		for _, path := range strings.Fields(c.yes) {
			if !re.MatchString(path) {
				t.Errorf("%s does not match %s", c.pattern, path)
			}
		}
		for _, path := range strings.Fields(c.no) {
			if re.MatchString(path) {
				t.Errorf("%s matches %s", c.pattern, path)
			}
		}
	}
	for _, pattern := range []string{"[z-a]", "[", "a[", "a/[b/c", "[]", "[]a]", "{", "{a,b", "a{b/{c}", `\`, `a\`} {
		if _, err := glob.Compile(pattern); err == nil {
			t.Errorf("%s was read", pattern)
		}
	}
}

func TestBeneath(t *testing.T) {
	for _, pattern := range []string{"**/.env", "a", "a/b", "*.pem", "{a,b}/*"} {
		if _, err := glob.Beneath(pattern); err != nil {
			t.Errorf("%q: %v", pattern, err)
		}
	}
	for _, pattern := range []string{"", ".", "..", "../a", "/a", "a/", "a//b", "./a", "a/../b", "**", "*", "a\x00", "[z-a]", strings.Repeat("a", 1025)} {
		if _, err := glob.Beneath(pattern); err == nil {
			t.Errorf("%q was taken", pattern)
		}
	}
}

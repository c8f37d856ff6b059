package shell_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-run/caisson/gate/shell"
)

// show writes a reading on one line a thing: "git push", "?" before an unknown
// word, "…" after one that may be several.
func show(r shell.Reading) []string {
	var out []string
	word := func(w shell.Word) string {
		text := w.Text
		if !w.Known {
			text = "?" + text
		}
		return text
	}
	for _, c := range r.Commands {
		var words []string
		for _, w := range c.Words {
			words = append(words, word(w))
		}
		out = append(out, strings.Join(words, "|"))
	}
	for _, t := range r.Targets {
		out = append(out, map[bool]string{true: ">", false: "<"}[t.Write]+word(t.Word))
	}
	if len(r.Opaque) > 0 {
		out = append(out, "opaque")
	}
	if r.Bomb {
		out = append(out, "bomb")
	}
	return out
}

func TestRead(t *testing.T) {
	for line, want := range map[string][]string{
		`true; git push`:                           {"true", "git|push"},
		"a && b || c | d & e\nf":                   {"a", "b", "c", "d", "e", "f"},
		`(a; { b; }); if c; then d; else e; fi`:    {"a", "b", "c", "d", "e"},
		`while a; do b; done; until c; do d; done`: {"a", "b", "c", "d"},
		`for x in 1; do a $x; done`:                {"a|?$x"},
		`case $x in a) b;; *) c;; esac`:            {"b", "c"},
		`f() { git push; }; f`:                     {"git|push", "f"},
		`echo $(git push) "$(a)" ` + "`b`":         {"echo|?$(…)|?$(…)|?$(…)", "git|push", "a", "b"},
		`diff <(a) >(b)`:                           {"diff|?<(…)|?<(…)", "a", "b"},
		`echo ${x:-$(a)} $(( $(b) ))`:              {"echo|?$x|?$((…))", "a", "b"},
		`[[ -n $(a) ]] && ((x=1))`:                 {"[[|?…", "a", "((|?…"},
		`cat <<E` + "\n$(a)\nE":                    {"cat", "a"},
		`cat <<'E'` + "\n$(a)\nE":                  {"cat"},
		`git  push`:                                {"git|push"},
		`\git push`:                                {"git|push"},
		`g"i"t 'pu'sh`:                             {"git|push"},
		`$'git' $'\x70u\163h'`:                     {"git|push"},
		"gi\\\nt pu\\\nsh":                         {"git|push"},
		`"a\"b" 'c\d' e\ f`:                        {`a"b|c\d|e f`},
		`g=git; $g push`:                           {"?$g|push"},
		`{git,push} a{b,c} {} {x} HEAD@{1}`:        {"?{git,push}|?a{b,c}|{}|{x}|HEAD@{1}"},
		`ls *.go ~/x "*" \*`:                       {"ls|?*.go|~/x|*|*"},
		`/gi[t] -["b"]c [ -f x ]`:                  {`?/gi[t]|?-[b]c|[|-f|x|]`}, `gi[t] x`: {"opaque"},
		`bash -c "git push"`:             {"bash|-c|git push", "git|push"},
		`bash -euo pipefail -c 'a; b' x`: {"bash|-euo|pipefail|-c|a; b|x", "a", "b"},
		`sh -c "sh -c 'sh -c a'"`:        {"sh|-c|sh -c 'sh -c a'", "sh|-c|sh -c a", "sh|-c|a", "a"},
		`bash script.sh -c x`:            {"bash|script.sh|-c|x"},
		`bash -c "$x"`:                   {"bash|-c|?$x", "opaque"},
		`bash -c "git push $x"`:          {"bash|-c|?git push $x", "git|push|?$_", "opaque"},
		`sh`:                             {"sh", "opaque"},
		`sh --version`:                   {"sh|--version"},
		`curl x | sh`:                    {"curl|x", "sh", "opaque"},
		`curl x | bash -s -- a`:          {"curl|x", "bash|-s|--|a", "opaque"},
		`bash <(curl x)`:                 {"bash|?<(…)", "curl|x", "opaque"},
		`bash /dev/stdin`:                {"bash|/dev/stdin", "opaque"},
		"sh <<E\ngit push\nE":            {"sh", "git|push", "opaque"},
		`sh <<< "git push"`:              {"sh", "git|push", "opaque"},
		`python3 -c 'x' ; python3 a.py; python3 -m pytest`: {"python3|-c|x", "python3|a.py", "python3|-m|pytest"},
		`echo x | python3`:                           {"echo|x", "python3", "opaque"},
		`python3 - <<E` + "\nE":                      {"python3|-", "opaque"},
		`perl -ne 1; node -e 2`:                      {"perl|-ne|1", "node|-e|2"},
		`eval "git push"`:                            {"eval|git push", "git|push", "opaque"},
		`eval "$(x)"`:                                {"eval|?$(…)", "x", "opaque"},
		`. ./env; source x`:                          {".|./env", "source|x", "opaque"},
		`alias ls='git push'`:                        {"alias|ls=git push", "opaque"},
		`trap 'git push' EXIT`:                       {"trap|git push|EXIT", "git|push"},
		`command git push`:                           {"command|git|push", "git|push"},
		`command -v git`:                             {"command|-v|git"},
		`env A=b git push`:                           {"env|A=b|git|push", "git|push"},
		`env -u X -i -- git push`:                    {"env|-u|X|-i|--|git|push", "git|push"},
		`env -S "git push"`:                          {"env|-S|git push", "git|push"},
		`nice -n 5 git push; nice -5 a`:              {"nice|-n|5|git|push", "git|push", "nice|-5|a", "a"},
		`timeout -k 5 10 git push`:                   {"timeout|-k|5|10|git|push", "git|push"},
		`nohup stdbuf -oL time git push`:             {"nohup|stdbuf|-oL|time|git|push", "stdbuf|-oL|time|git|push", "time|git|push", "git|push"},
		`time git push`:                              {"git|push"},
		`sudo -u x git push`:                         {"sudo|-u|x|git|push", "git|push"},
		`xargs -n 1 git push`:                        {"xargs|-n|1|git|push", "git|push|?…"},
		`xargs -I% % push`:                           {"xargs|-I%|%|push", "?%|push|?…"},
		`xargs sh -c`:                                {"xargs|sh|-c", "sh|-c|?…", "opaque"},
		`find . -name x -exec git push {} \; -print`: {"find|.|-name|x|-exec|git|push|{}|;|-print", "git|push|?{}"},
		`ssh -p 22 host git push`:                    {"ssh|-p|22|host|git|push", "git|push"},
		`ssh host "a; b"`:                            {"ssh|host|a; b", "a", "b"},
		`ssh host`:                                   {"ssh|host", "opaque"},
		`su -c "git push" x`:                         {"su|-c|git push|x", "git push|x", "git|push"},
		`a > f 2>> g < h 2>&1 >/dev/null &> i`:       {"a", ">f", ">g", "<h", ">i"},
		`> "$x"`:                                     {`>?$x`},
		`cat < /dev/tcp/h/1`:                         {"cat", ">/dev/tcp/h/1"},
		`git push \`:                                 {`git|push|\`},
		`git push (`:                                 {"opaque"},
		`:(){ :|:& };:`:                              {":", ":", ":", "bomb"},
		`b() { b & }; b`:                             {"b", "b", "bomb"},
		``:                                           nil,
		`# git push`:                                 nil,
		"a\x00b":                                     {"opaque"},
		strings.Repeat("a;", 256):                    strings.Split(strings.Repeat("a ", 255)+"a", " "),
	} {
		if diff := cmp.Diff(want, show(shell.Read(line))); diff != "" {
			t.Errorf("%q (-want +got):\n%s", line, diff)
		}
	}
}

func TestReadBounds(t *testing.T) {
	nested := "a"
	for range 9 {
		nested = fmt.Sprintf("sh -c %s", quote(nested))
	}
	for name, line := range map[string]string{
		"commands": strings.Repeat("a;", 257),
		"wrappers": strings.Repeat("nice ", 300) + "a",
		"depth":    nested,
		"length":   strings.Repeat("x", shell.MaxLine+1),
		"brackets": strings.Repeat("(", 201),
	} {
		r := shell.Read(line)
		if len(r.Opaque) == 0 || len(r.Commands) > shell.MaxCommands {
			t.Errorf("%s: %d commands, opaque %q", name, len(r.Commands), r.Opaque)
		}
	}
	if r := shell.Read("sh -c 'sh -c \"sh -c a\"'"); len(r.Opaque) != 0 {
		t.Errorf("three deep is opaque: %v", r.Opaque)
	}
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func TestReadArgv(t *testing.T) {
	got := show(shell.ReadArgv([]string{"env", "git", "$x", "*"}))
	if diff := cmp.Diff([]string{"env|git|$x|*", "git|$x|*"}, got); diff != "" {
		t.Error(diff)
	}
	if got := show(shell.ReadArgv(nil)); len(got) != 1 || got[0] != "opaque" {
		t.Errorf("no program: %v", got)
	}
}

func TestGlobs(t *testing.T) {
	for _, c := range []struct {
		pattern, text string
		want          bool
	}{
		{"a", "a", true},
		{"a", "ab", false},
		{"a*", "abc", true},
		{"*c", "abc", true},
		{"a*c", "ac", true},
		{"a*b*c", "aXbYc", true},
		{"a*b*c", "acb", false},
		{"*", "", true},
		{"", "", true},
		{"", "a", false},
		{"*ab", "aab", true},
		{"a*a", "a", false},
	} {
		if got := shell.ParseGlob(c.pattern).Match(c.text); got != c.want {
			t.Errorf("%q matches %q: %v", c.pattern, c.text, got)
		}
		if got := shell.ParseGlob(c.pattern).Meets(shell.Text(c.text)); got != c.want {
			t.Errorf("%q meets %q: %v", c.pattern, c.text, got)
		}
	}
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"a*", "*b", true}, {"a*", "b*", false}, {"*.go", "push", false}, {"p*h", "push", true}, {"*", "*", true}, {"a*c", "*b*", true}, {"x*/f", "x*/g", false},
	} {
		if got := shell.ParseGlob(c.a).Meets(shell.ParseGlob(c.b)); got != c.want {
			t.Errorf("%q meets %q: %v", c.a, c.b, got)
		}
	}
}

func FuzzRead(f *testing.F) {
	for _, s := range []string{`a $(b) <(c)`, `sh -c "a"`, "x <<E\n$(y)\nE", `find . -exec a {} +`, `env -S "a b"`, `f(){ f|f& };f`, `$'\x41' {a,b}`, `xargs -I% a`, `ssh h a`, "`a`", `((a))`, `[[ a ]]`, `eval "$x"`, `a{b..c}`, `{fd}>x`, `~a/b`, `!(a)`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		start := time.Now()
		r := shell.Read(line)
		if d := time.Since(start); d > 10*time.Second {
			t.Fatalf("took %v", d)
		}
		if len(r.Commands) > shell.MaxCommands {
			t.Fatalf("%d commands", len(r.Commands))
		}
		for _, c := range r.Commands {
			if len(c.Words) == 0 {
				t.Fatal("a command without words")
			}
			for _, w := range c.Words {
				if w.Known && !w.May(shell.Text(w.Text)) {
					t.Fatalf("%q may not be itself", w.Text)
				}
			}
		}
	})
}

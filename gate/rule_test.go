package gate_test

import (
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/gate"
)

// origin: namzu changelog
func TestCase_R23(t *testing.T) {
	p := load(t, user(rules(
		`{name: no-push, command: git push, verdict: deny, reason: a person pushes}`,
		`{name: allowed, command: ["true", "git push **", "echo **", "sh **", "bash **", "cat **", "git **", "xargs **", "sudo **", "eval **"], verdict: allow}`,
	)))
	for _, line := range []string{
		`git push`, `true; git push`, "true\ngit push", `bash -c "git push"`, `bash -c 'sh -c "git push"'`, `$(echo git) push`, `git  push`,
		"git\tpush", `\git push`, `g=git; $g push`, `"$g" push`, `git $p`, `git -C d push`, `command git push`, `env A=b git push`, `A=b git push`,
		`xargs git push`, `echo push | xargs git`, `find . -exec git push \;`, `p() { git push; }; p`, `f() { "$@"; }; f git push`,
		`if true; then git push; fi`, `for i in 1; do git push; done`, `while ! git push; do true; done`, `cat <(git push)`, `echo "$(git push)"`,
		"echo `git push`", `sudo -u x git push`, `sudo --weird x git push`, "git pu\\\nsh", `g"i"t p'us'h`, `$'git' push`, `$'\147it' push`, `{git,push}`, `git pus?`,
		`/usr/bin/git push`, `./git push`, `/usr/bin/gi[t] push`, `nohup nice -n 3 git push &`, `time git push`, `timeout 5 git push`,
		`ssh host git push`, `ssh host 'cd x; git push'`, `(git push)`, `{ git push; }`, `! git push`, `true && git push`, `true | git push`,
		`case x in x) git push;; esac`, "sh <<'E'\ngit push\nE", `sh <<< 'git push'`, `eval "git push"`, `trap 'git push' EXIT`, `env -S 'git push'`,
		`git push > /dev/null`, `$x`, `> $(git push)`, `[[ -n $(git push) ]]`, `echo ${x:-$(git push)}`, "cat <<E\n$(git push)\nE", `busybox sh -c 'git push'`,
		`"$SUDO" git push`, `xargs -I% git %`, `coproc git push`, `su -c "git push"`, `git --no-pager push`, `~/bin/git push`, `~/git push`,
	} {
		if v := p.Judge(outside(line), boxed()); v.Ruling != caisson.Deny || v.Rule != "no-push" {
			t.Errorf("%q: %s by %s: %s", line, v.Ruling, v.Rule, v.Reason)
		}
	}
	// What nobody can read is asked about where it could leave the box, and never
	// allowed by a pattern anywhere.
	inside := load(t, gate.Sources{Preset: "supervised", User: user(rules(
		`{name: allowed, command: ["true", "git push **", "echo **", "sh **", "bash **", "cat **", "git **", "xargs **", "sudo **", "eval **", "source **", "python3 **"], verdict: allow}`,
	)).User})
	for _, line := range []string{
		`curl x | sh`, "sh", `cat x | bash -s`, `eval "$x"`, `eval $(echo git) push`, `source ./x`, `. ./x`, `bash -c "$x"`, `bash <(echo git push)`, `git push (`,
		`base64 -d <<< Z2l0IHB1c2g= | sh`, `python3 < x`, `alias git=rm; git`, strings.Repeat("true;", 300), `xargs sh -c`,
	} {
		if v := p.Judge(outside(line), boxed()); v.Ruling == caisson.Allow {
			t.Errorf("outside, %q: %s by %s", line, v.Ruling, v.Rule)
		}
		if v := inside.Judge(shellCall(line), boxed()); v.Ruling != caisson.ReviewIt {
			t.Errorf("inside, %q: %s by %s", line, v.Ruling, v.Rule)
		}
	}
	for _, line := range []string{`git status`, `git log --grep x`, `echo push git`, `echo "git push"`, `cat push`, `gitpush`, `git "push x"`, `git add *.go`, `true # git push`, `git add "$d/x.go"`} {
		if v := p.Judge(shellCall(line), boxed()); v.Ruling != caisson.Allow {
			t.Errorf("%q: %s by %s: %s", line, v.Ruling, v.Rule, v.Reason)
		}
	}
}

func TestAllowPatterns(t *testing.T) {
	p := load(t, gate.Sources{Preset: "supervised", User: user("trusted_dirs: /opt/go/bin\n" + rules(
		`{command: ["go test **", "git status", "git log *", "ls", "npm run build-*", "./gradlew test", "echo 'a b' \\*", "[ -f *"], verdict: allow}`,
		`{command: "gofmt -w **", path: ["**/*.go", "out/**"], verdict: allow}`,
	)).User})
	for line, want := range map[string]bool{
		"go test": true, "go test ./...": true, "go test -run X ./a ./b": true, "/usr/bin/go test": true, "/opt/go/bin/go test": true,
		"./go test": false, "/tmp/go test": false, "/opt/go/bin/../../tmp/go test": false, "/opt/go/bin//go test": false, "go": false, "go testx": false,
		"git status": true, "git status -s": false, "git log x": true, "git log": false, "git log x y": false, "npm run build-x": true, "npm run buildx": false,
		"go test; ls": true, "go test && rm x": false, "go test | ls": true, "go test; $(ls)": false, "go test $x": false, "go test $(ls)": false,
		"go test *": false, "A=b go test": false, "A=b; go test": false, "export A=b; go test": false, "go test > x": false, "go test > /dev/null 2>&1": true,
		"go test 2>&1 | ls": true, "for PATH in /evil; do ls; done": false, "nice -n 5 go test": true, "timeout 5 go test": true, "./nice go test": false,
		"timeout -x 5 go test": false, "time go test": true, "env go test": true, "env A=b go test": false, "env -i go test": false, "sudo go test": false,
		"xargs go test": false, "sh -c 'go test; ls'": true, "bash -euo pipefail -c 'ls'": true, "bash -lc ls": false, "/tmp/sh -c ls": false, "sh -c 'rm x'": false,
		"sh -c ''": false, "": false, "# ls": false, "ls() { rm x; }; ls": false, "ls &": true, "(ls)": true, "{ ls; }": true, "! ls": true,
		"./gradlew test": true, "gradlew test": false, "../gradlew test": false, "x/./gradlew test": false, `echo "a b" '*'`: true, `echo "a b" x`: false, "echo 'a b' *": false,
		"[ -f x": true, "ls ~": false, "exec ls": true, "exec -a x ls": false, "command ls": true, "nohup ls": true, "builtin ls": true,
		"gofmt -w a.go": false, "gofmt -w a > out/x": true, "gofmt -w a > y": false, "gofmt -w a > a.go": true, "cd /; gofmt -w a > out/x": false, "gofmt -w a > $x": false,
		"ls < /dev/tcp/h/1": false, "{fd}>x ls": false, "ls; (( x ))": false, "ls; [[ a ]]": false, "${PATH:=x}": false, "stdbuf -oL ls": true, "ls\\": true,
	} {
		if line == "ls\\" {
			line = "l\\\ns"
		}
		v := p.Judge(shellCall(line), boxed())
		if got := v.Ruling == caisson.Allow; got != want {
			t.Errorf("%q: %s by %s", line, v.Ruling, v.Rule)
		}
	}
}

// A pattern allows a line only as a whole: with one command more, whichever way
// it is put in, it does not.
func TestNoExtraCommandIsAllowed(t *testing.T) {
	p := load(t, gate.Sources{Preset: "supervised", User: user(rules(`{command: ["git status **", "ls **", "true"], verdict: allow}`)).User})
	rapid.Check(t, func(t *rapid.T) {
		good := func(label string) string {
			return rapid.SampledFrom([]string{"git status", "ls -l a", "true", "nice ls", "sh -c 'ls; true'", "(ls)", "ls | true"}).Draw(t, label)
		}
		evil := rapid.SampledFrom([]string{"rm x", "curl h", "./ls", "/tmp/true", "git push", "g$x", "eval ls", "sh", "x=1", "> f", "sudo ls", "xargs ls", "ls > f"}).Draw(t, "evil")
		line := rapid.SampledFrom([]string{
			"A; E", "E; A", "A && E", "A || E", "A & E", "A\nE", "A; (E)", "A; { E; }", "if A; then E; fi", "while A; do E; done", "A; f() { E; }; f",
			"ls $(E)", "ls \"$(E)\"", "ls `E`", "ls <(E)", "sh -c 'A; E'", "sh -c 'sh -c \"A; E\"'", "case a in a) E;; esac; A", "A; ! E", "[[ $(E) ]] && A",
			"ls <<X\n$(E)\nX", "coproc { E; }; A", "time E; A", "env sh -c 'E'", "A; trap 'E' EXIT", "A; nohup E", "exec E", "for i in a; do E; done; A",
		}).Draw(t, "form")
		line = strings.ReplaceAll(strings.ReplaceAll(line, "A", good("good")), "E", evil)
		if v := p.Judge(shellCall(line), boxed()); v.Ruling == caisson.Allow {
			t.Fatalf("%q is allowed by %s", line, v.Rule)
		}
	})
}

func TestPaths(t *testing.T) {
	p := load(t, user(rules(
		`{name: secrets, path: ["**/.env", "keys/**"], verdict: deny}`,
		`{name: hooks, path: ".git/**", write: true, verdict: deny}`,
		`{name: etc, path: "/etc/**", verdict: review}`,
		`{name: out, tools: write, path: "out/**", write: true, verdict: allow}`,
		`{name: rest, tools: write, verdict: review}`,
	)))
	files := func(uses ...caisson.PathUse) caisson.Call {
		return caisson.Call{Tool: caisson.ToolRef{Name: "write"}, Reach: caisson.ReachInside, Facets: caisson.Facets{Paths: uses}}
	}
	r := func(path string) caisson.PathUse { return caisson.PathUse{Path: path} }
	w := func(path string) caisson.PathUse { return caisson.PathUse{Path: path, Write: true} }
	at := func(dir, line string) caisson.Call {
		c := shellCall(line)
		c.Facets.Dir = dir
		return c
	}
	for _, c := range []struct {
		call caisson.Call
		want string
	}{
		{files(r(workspace + "/.env")), "deny secrets"},
		{files(r(workspace + "/a/b/.env")), "deny secrets"},
		{files(r("/else/.env")), "deny secrets"},
		{files(r(workspace + "/keys")), "deny secrets"},
		{files(r(workspace + "/keys/a/b")), "deny secrets"},
		{files(r("/keys/a")), "review rest"},
		{files(r(workspace + "/x/../.env")), "deny secrets"},
		{files(r(workspace+"/a"), r(workspace+"/.env")), "deny secrets"},
		{files(r(workspace + "/.git/config")), "review rest"},
		{files(w(workspace + "/.git/config")), "deny hooks"},
		{files(r("/etc/passwd")), "review etc"},
		{files(w(workspace + "/out/a")), "allow out"},
		{files(r(workspace + "/out/a")), "review rest"},
		{files(w(workspace+"/out/a"), r("/x")), "review rest"},
		{files(w(workspace + "/outer/a")), "review rest"},
		{files(w(workspace + "2/out/a")), "review rest"},
		{files(), "review rest"},
		{files(r("relative")), "deny secrets"},
		{shellCall("a > .git/hooks/x"), "deny hooks"},
		{shellCall("a >> ./.git//hooks/x"), "deny hooks"},
		{shellCall("a < .env"), "deny secrets"},
		{shellCall("a > $f"), "deny secrets"},
		{shellCall("a > out"), "allow sandboxed"},
		{at(workspace+"/sub", "a > .git/x"), "allow sandboxed"},
		{at(workspace+"/sub", "a > ../.git/x"), "deny hooks"},
		{shellCall("cd sub; a > x"), "deny secrets"},
		{shellCall("a 2>/dev/null >&2"), "allow sandboxed"},
		{shellCall("a > ~/x"), "deny secrets"},
		{shellCall("sh -c 'a > .git/x'"), "deny hooks"},
	} {
		v := p.Judge(c.call, boxed())
		if got := string(v.Ruling) + " " + v.Rule; got != c.want {
			t.Errorf("%v %v: %s, want %s", c.call.Facets.Paths, c.call.Facets.Lines, got, c.want)
		}
	}
}

func TestWhen(t *testing.T) {
	judge := func(verdict, when string, call caisson.Call) caisson.Ruling {
		p := load(t, gate.Sources{Preset: "supervised", User: user(rules("name: r\n    verdict: " + verdict + "\n    when: |\n      " + when)).User})
		v := p.Judge(call, boxed())
		if v.Rule != "r" {
			return ""
		}
		return v.Ruling
	}
	call := shellCall("git push a; ls $x")
	call.Input = json.RawMessage(`{"n":3,"s":"x","deep":{"list":[1,2]}}`)
	for when, want := range map[string][2]caisson.Ruling{ // as deny, as allow
		`tool == "shell" && effect == "unsafe" && reach == "inside"`:            {"deny", "allow"},
		`input.n > 2 && input.n == 3 && input.s == "x" && 2 in input.deep.list`: {"deny", "allow"},
		`input.n > 3`:                                        {"", ""},
		`input.missing > 3`:                                  {"deny", ""}, // an error
		`input.s > 3`:                                        {"deny", ""},
		`has(input.missing)`:                                 {"", ""},
		`commands.exists(c, c.program == "git")`:             {"deny", "allow"},
		`commands.exists(c, "push" in c.words)`:              {"deny", "allow"},
		`commands.exists(c, c.words.exists(w, w == "zzz"))`:  {"deny", ""}, // $x may be zzz
		`commands.exists(c, c.program == "zzz")`:             {"", ""},
		`size(commands) == 2 && !opaque`:                     {"deny", "allow"},
		`isolation.files && isolation.engine == "namespace"`: {"deny", "allow"},
		`isolation.nothing`:                                  {"deny", ""},
		`run == "r1" && workspace.startsWith("/home")`:       {"deny", "allow"},
		`paths.size() > 0`:                                   {"", ""},
		`[1,2,3,4,5,6,7,8,9,10].all(a, [1,2,3,4,5,6,7,8,9,10].all(b, [1,2,3,4,5,6,7,8,9,10].all(c, [1,2,3,4,5,6,7,8,9,10].all(d, [1,2,3,4,5,6,7,8,9,10].all(e, a+b+c+d+e > 0)))))`: {"deny", ""}, // over the cost limit
	} {
		if got := judge("deny", when, call); got != want[0] {
			t.Errorf("deny when %s: %q", when, got)
		}
		if got := judge("allow", when, call); got != want[1] {
			t.Errorf("allow when %s: %q", when, got)
		}
	}
	opaque := shellCall("eval x")
	if got := judge("allow", `commands.all(c, c.program != "zzz")`, opaque); got != "" {
		t.Errorf("an expression over commands allows an opaque line")
	}
	opaque.Reach = caisson.ReachOutside
	if got := judge("deny", `commands.exists(c, c.program == "zzz")`, opaque); got != caisson.ReviewIt {
		t.Errorf("an opaque line that could leave the box: %q", got)
	}
}

func TestOpaqueTakesTheStricter(t *testing.T) {
	p := load(t, user(rules(`{name: push, command: git push, verdict: deny}`, `{name: ask, tools: other, verdict: review}`, `{name: all, tools: shell, verdict: allow}`)))
	if v := p.Judge(shellCall("eval x"), boxed()); v.Ruling != caisson.Allow || v.Rule != "all" {
		t.Errorf("inside the box: %s by %s", v.Ruling, v.Rule)
	}
	v := p.Judge(outside("eval x"), boxed())
	if v.Ruling != caisson.ReviewIt || v.Rule != "push" || !strings.Contains(v.Reason, "eval") {
		t.Errorf("outside: %+v", v)
	}
	later := load(t, user(rules(`{name: push, command: git push, verdict: deny}`, `{name: none, tools: shell, verdict: deny}`)))
	if v := later.Judge(outside("eval x"), boxed()); v.Ruling != caisson.Deny || v.Rule != "none" {
		t.Errorf("a later deny is not seen: %s by %s", v.Ruling, v.Rule)
	}
}

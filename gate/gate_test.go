package gate_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/gate"
)

func TestMain(m *testing.M) {
	// Nothing is written into the source tree.
	if err := flag.Set("rapid.nofailfile", "true"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

const workspace = "/home/u/w"

func user(text string) gate.Sources {
	return gate.Sources{User: []gate.File{{Name: "policy.yaml", Data: []byte(text)}}}
}

func load(t testing.TB, src gate.Sources) *gate.Policy {
	t.Helper()
	p, err := gate.Load(src)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func rules(lines ...string) string { return "rules:\n  - " + strings.Join(lines, "\n  - ") + "\n" }

func shellCall(line string) caisson.Call {
	input, _ := json.Marshal(map[string]any{"command": line})
	return caisson.Call{
		ID: "r1.1.1", Run: "r1", Tool: caisson.ToolRef{Name: "shell"}, Effect: caisson.EffectUnsafe, Reach: caisson.ReachInside,
		Input: input, InputDigest: caisson.DigestOf(input), Facets: caisson.Facets{Lines: []string{line}},
	}
}

func outside(line string) caisson.Call {
	c := shellCall(line)
	c.Reach = caisson.ReachOutside
	return c
}

func boxed() caisson.Subject {
	return caisson.Subject{Run: "r1", Workspace: workspace, Isolation: enforcing(caisson.Controls()...)}
}

func enforcing(controls ...caisson.Control) caisson.Isolation {
	i := caisson.Isolation{Engine: "namespace"}
	for _, c := range controls {
		i.Controls = append(i.Controls, caisson.Enforcement{Control: c, Enforced: true})
	}
	return i
}

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

// origin: namzu changelog
func TestCase_R24(t *testing.T) {
	tools := []caisson.ToolSpec{{Ref: caisson.ToolRef{Name: "shell"}}, {Ref: caisson.ToolRef{Server: "gh", Name: "pr"}}}
	for text, want := range map[string]string{
		"rules:\n  - verdict: deny\n    comand: git push\n": `policy.yaml:3: rules[0]: unknown key "comand"`,
		"rule: []\n":   `policy.yaml:1: unknown key "rule"`,
		"version: 2\n": `policy.yaml:1: version: this Caisson reads version 1`,
		rules(`{verdict: deny, command: "git push; ls"}`):             `policy.yaml:2: rules[0].command: "git push; ls": a pattern is plain words`,
		rules("verdict: deny\n    command: [a, 'b \"c']"):             `policy.yaml:3: rules[0].command[1]: "b \"c": a quote is not closed`,
		rules(`{verdict: deny, command: "** x"}`):                     `** cannot stand for the program`,
		rules(`{verdict: deny, command: "a ** b"}`):                   `** can only be the last word`,
		rules(`{verdict: deny, command: "a b**"}`):                    `** must be a word of its own`,
		rules(`{verdict: deny, command: ""}`):                         `an empty pattern`,
		rules(`{verdict: deny, command: "$x push"}`):                  `a pattern is plain words`,
		rules(`{verdict: deny, command: "/opt/* push"}`):              `written out`,
		rules(`{verdict: deny, command: 'a \'}`):                      `a backslash at the end`,
		rules(`{verdict: deny, path: "a/../b"}`):                      `write it clean`,
		rules(`{verdict: deny, path: "~/x"}`):                         `~ is not read`,
		rules(`{verdict: deny, path: "a[b"}`):                         `brackets`,
		rules(`{verdict: deny, path: "a/**b"}`):                       `segment of its own`,
		rules(`{verdict: deny, path: []}`):                            `an empty list`,
		rules(`{verdict: deny, when: "tool =="}`):                     `Syntax error`,
		rules(`{verdict: deny, when: "toll == 'x'"}`):                 `undeclared reference`,
		rules(`{verdict: deny, when: "tool"}`):                        `must be true or false`,
		rules(`{verdict: maybe}`):                                     `must be allow, review or deny`,
		rules(`{command: x}`):                                         `a rule without a verdict`,
		rules(`{verdict: deny, write: true}`):                         `only beside path`,
		rules(`{verdict: deny, again: true}`):                         `only with verdict: review`,
		rules(`{verdict: deny, effects: write}`):                      `no such effect`,
		rules(`{verdict: allow, tools: shel}`):                        `rules[0].tools: "shel": no such tool`,
		rules(`{verdict: allow, tools: pr}`):                          `no such tool; there is "gh/pr"`,
		rules(`{verdict: deny, tools: "a b"}`):                        `not a tool's name`,
		rules(`{verdict: deny, name: a}`, `{verdict: deny, name: a}`): `a rule named "a" is in policy.yaml:2`,
		rules(`{verdict: deny, verdict: allow}`):                      `already`,
		rules("verdict: deny\n    reason: \"a\\e[31mb\""):             `printable`,
		rules(`{verdict: true}`):                                      `must be a string`,
		"rules: &a\n  - verdict: deny\n":                              `anchors`,
		"trusted_dirs: bin\n":                                         `clean absolute`,
	} {
		src := user(text)
		src.Tools = tools
		_, err := gate.Load(src)
		if err == nil || !strings.Contains(err.Error(), want) && want != "already" {
			t.Errorf("%s\n got %v\nwant %s", text, err, want)
			continue
		}
		if e := caisson.AsError(err); e.Code != caisson.CodePolicyInvalid || e.Code.Info().Exit != 78 || e.Detail["file"] != "policy.yaml" || e.Detail["line"] == 0 {
			t.Errorf("%s: code %s, detail %v", text, e.Code, e.Detail)
		}
	}
	if _, err := gate.Load(gate.Sources{Preset: "yolo"}); caisson.CodeOf(err) != caisson.CodePolicyInvalid {
		t.Errorf("an unknown preset: %v", err)
	}
	// A tool that will come may be denied before it is there.
	src := user(rules(`{verdict: deny, tools: [later, gh/later]}`, `{verdict: allow, tools: ["gh/*", "*"]}`))
	src.Tools = tools
	load(t, src)
}

func TestRepositoryOnlyTightens(t *testing.T) {
	for _, text := range []string{rules(`{verdict: allow}`), "read_only_servers: x\n", "trusted_dirs: /x\n"} {
		_, err := gate.Load(gate.Sources{Repository: []gate.File{{Name: "repo.yaml", Data: []byte(text)}}})
		if caisson.CodeOf(err) != caisson.CodeConfigWidens || !strings.Contains(err.Error(), "repo.yaml:") {
			t.Errorf("%q: %v", text, err)
		}
	}
	src := user(rules(`{name: all, verdict: allow}`))
	src.Repository = []gate.File{{Name: "repo.yaml", Data: []byte(rules(`{name: ask, command: make, verdict: review}`, `{name: no, command: rm, verdict: deny}`))}}
	src.Parent = []gate.File{{Name: "parent", Data: []byte(rules(`{name: fine, command: "ls **", verdict: allow}`, `{name: child, tools: shell, command: "npm", verdict: deny}`))}}
	p := load(t, src)
	for line, want := range map[string]string{
		"make": "review repository ask", "rm x": "deny repository no", "make; rm x": "review repository ask", "npm i": "deny parent child",
		"make && npm i": "deny parent child", "ls": "allow user all", "rm -rf /": "deny floor floor-erase", "echo": "allow user all",
	} {
		v := p.Judge(outside(line), boxed())
		if got := string(v.Ruling) + " " + v.Layer + " " + v.Rule; got != want {
			t.Errorf("%q: %s, want %s", line, got, want)
		}
	}
}

func TestPresets(t *testing.T) {
	open := boxed()
	open.Isolation = enforcing(caisson.ControlFiles, caisson.ControlProcesses)
	call := func(name string, effect caisson.Effect, reach caisson.Reach) caisson.Call {
		return caisson.Call{Run: "r1", Tool: caisson.ToolRef{Name: name}, Effect: effect, Reach: reach}
	}
	edit := call("edit", caisson.EffectIdempotent, caisson.ReachInside)
	push := call("git.push", caisson.EffectUnsafe, caisson.ReachOutside)
	remoteRead := call("q", caisson.EffectRead, caisson.ReachOutside)
	remoteRead.Tool.Server = "db"
	for _, c := range []struct {
		what    string
		call    caisson.Call
		subject caisson.Subject
		want    string // supervised, sandboxed, unattended
	}{
		{"a read", call("read", caisson.EffectRead, caisson.ReachInside), boxed(), "allow allow allow"},
		{"a server's read", remoteRead, boxed(), "review review deny"},
		{"an edit", edit, boxed(), "review allow allow"},
		{"an edit without network", edit, open, "review allow allow"},
		{"a line", shellCall("make"), boxed(), "review allow allow"},
		{"a line without network", shellCall("make"), open, "review review deny"},
		{"a line in no box", shellCall("make"), caisson.Subject{Isolation: caisson.Isolation{Engine: "none"}}, "review review deny"},
		{"a push", push, boxed(), "review review deny"},
		{"a call that says nothing of itself", call("x", "", ""), boxed(), "review review deny"},
		{"a question", call("ask", caisson.EffectIdempotent, caisson.ReachLedger), open, "allow allow allow"},
		{"a child run", call("run.spawn", caisson.EffectUnsafe, caisson.ReachLedger), boxed(), "review allow allow"},
	} {
		var got []string
		for _, preset := range gate.Presets() {
			v := load(t, gate.Sources{Preset: string(preset)}).Judge(c.call, c.subject)
			got = append(got, string(v.Ruling))
			if preset == gate.Unattended && v.Ruling == caisson.Deny && !strings.Contains(v.Reason, "nobody is asked") {
				t.Errorf("%s: %q does not say that nobody is asked", c.what, v.Reason)
			}
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%s: %s, want %s", c.what, text, c.want)
		}
	}
	if v := load(t, user("read_only_servers: [db]\n")).Judge(remoteRead, boxed()); v.Ruling != caisson.Allow || v.Layer != gate.LayerReadOnly {
		t.Errorf("a trusted server's read: %+v", v)
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

func TestFloor(t *testing.T) {
	p := load(t, user(rules(`{verdict: allow}`)))
	for _, line := range []string{
		"rm -rf /", "rm -fr //", "rm -r -f /*", "rm --recursive /", "sudo rm -rf --no-preserve-root /", "rm -rf ~", "rm -rf ~/", "rm -rf ~/*", "rm -rf $HOME", `rm -rf "$HOME"/*`,
		"rm -rf /usr", "rm -rf /etc/", "rm -Rf /home/*", "sh -c 'rm -rf /'", "true && rm -rf /.", "rm -rf a /", "find / -delete", "find / -exec rm -rf {} +", "mv / /tmp/x",
		"mkfs.ext4 /dev/sda1", "mkfs -t ext4 /dev/sda", "dd if=/dev/zero of=/dev/sda", "wipefs -a /dev/sda", "cat x > /dev/sda", "echo b > /proc/sysrq-trigger", "shred /dev/nvme0n1", "cp x /dev/sdb", "tee /dev/sda",
		":(){ :|:& };:", "b() { b | b & }; b", "shutdown -h now", "sudo reboot", "systemctl poweroff", "init 0", "/sbin/halt", "chmod -R 777 /", "chown -R x ~", "busybox rm -rf /",
	} {
		v := p.Judge(shellCall(line), boxed())
		if v.Ruling != caisson.Deny || v.Layer != gate.LayerFloor {
			t.Errorf("%q: %s by %s", line, v.Ruling, v.Rule)
		}
	}
	for _, line := range []string{
		"rm -rf /tmp/x", "rm -rf ./build", "rm -rf build/*", "rm -rf $x", "rm / x", "rm -rf '~'", `rm -rf '$HOME'`, "rm -rf ~/x", "find / -name '*.o' -delete", "find . -delete", "mkfs.ext4 disk.img", "mkfs --help",
		"dd if=/dev/zero of=x", "echo > /dev/null", "dd of=/dev/null", "echo shutdown", "grep -r reboot .", "chmod -R 755 .", "chmod 755 /", "systemctl status x", "f() { f x; }; f", "git init 0", "rm -rf /home/u/w/x", "cat /dev/urandom", "ls -R /", "echo x > /dev/shm/a",
	} {
		if v := p.Judge(shellCall(line), boxed()); v.Ruling != caisson.Allow {
			t.Errorf("%q: %s by %s", line, v.Ruling, v.Rule)
		}
	}
	device := caisson.Call{Tool: caisson.ToolRef{Name: "write"}, Facets: caisson.Facets{Paths: []caisson.PathUse{{Path: "/dev/sda", Write: true}}}}
	if v := p.Judge(device, boxed()); v.Ruling != caisson.Deny {
		t.Errorf("a write to a disk: %s", v.Ruling)
	}
	argv := caisson.Call{Tool: caisson.ToolRef{Name: "exec"}, Facets: caisson.Facets{Argv: [][]string{{"rm", "-rf", "/"}}}}
	if v := p.Judge(argv, boxed()); v.Ruling != caisson.Deny {
		t.Errorf("a program without a shell: %s", v.Ruling)
	}
}

func TestGrants(t *testing.T) {
	src := gate.Sources{Preset: "supervised", User: user(rules(`{name: ask, command: make, verdict: review}`, `{name: always, command: deploy, verdict: review, again: true}`, `{name: no, command: rm, verdict: deny}`)).User}
	p := load(t, src)
	judge := func(line string, grants ...caisson.Grant) caisson.Verdict {
		s := boxed()
		s.Grants = grants
		return p.Judge(shellCall(line), s)
	}
	grant := caisson.Grant{ID: "g1", Run: "r1", Tool: caisson.ToolRef{Name: "shell"}, PolicyDigest: p.PolicyDigest(), Review: "q1"}
	exact := grant
	exact.InputDigest = shellCall("make x").InputDigest
	pattern := grant
	pattern.Command = "make **"
	for _, c := range []struct {
		line  string
		grant caisson.Grant
		want  caisson.Ruling
	}{
		{"make x", exact, "allow"}, {"make y", exact, "review"}, {"make y", pattern, "allow"}, {"make; ls", pattern, "review"}, {"make > x", pattern, "review"}, {"make $x", pattern, "review"}, {"rm make", pattern, "deny"},
	} {
		if v := judge(c.line, c.grant); v.Ruling != c.want || c.want == "allow" && (v.Layer != gate.LayerGrant || v.Rule != "g1") {
			t.Errorf("%q: %+v", c.line, v)
		}
	}
	denied, deploy, other := exact, exact, pattern
	denied.InputDigest = shellCall("rm x").InputDigest
	deploy.InputDigest = shellCall("deploy").InputDigest
	other.Command = "make("
	if v := judge("rm x", denied); v.Ruling != caisson.Deny {
		t.Errorf("a grant opens a deny: %+v", v)
	}
	if v := judge("deploy", deploy); v.Ruling != caisson.ReviewIt || !v.Again {
		t.Errorf("a grant opens again: %+v", v)
	}
	if v := judge("make", other); v.Ruling != caisson.ReviewIt {
		t.Errorf("a grant with a bad pattern: %+v", v)
	}
	for name, change := range map[string]func(*caisson.Grant){
		"revoked": func(g *caisson.Grant) { g.Revoked = true }, "another run": func(g *caisson.Grant) { g.Run = "r2" },
		"another policy": func(g *caisson.Grant) { g.PolicyDigest = "x" }, "no policy": func(g *caisson.Grant) { g.PolicyDigest = "" },
		"another tool": func(g *caisson.Grant) { g.Tool.Name = "x" }, "both": func(g *caisson.Grant) { g.Command = "make **" }, "neither": func(g *caisson.Grant) { g.InputDigest = "" },
	} {
		g := exact
		change(&g)
		if v := judge("make x", g); v.Ruling != caisson.ReviewIt {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

// origin: openai-agents-js PR1600
func TestCase_R13(t *testing.T) {
	p := load(t, gate.Sources{Preset: "supervised", User: user(rules(`{tools: [a/deploy, send, "*/wild"], verdict: allow}`)).User})
	call := func(server, name string) caisson.Call {
		return caisson.Call{Tool: caisson.ToolRef{Server: server, Name: name}, InputDigest: "d"}
	}
	s := boxed()
	s.Grants = []caisson.Grant{{ID: "g1", Run: "r1", Tool: caisson.ToolRef{Server: "a", Name: "merge"}, InputDigest: "d", PolicyDigest: p.PolicyDigest()}}
	for _, c := range []struct {
		call caisson.Call
		want caisson.Ruling
	}{
		{call("a", "merge"), "allow"},
		{call("b", "merge"), "review"},
		{call("", "merge"), "review"},
		{call("a", "deploy"), "allow"},
		{call("b", "deploy"), "review"},
		{call("", "deploy"), "review"},
		{call("", "send"), "allow"},
		{call("a", "send"), "review"},
		{call("", "a/deploy"), "review"},
		{call("b", "wild"), "allow"},
		{call("", "wild"), "review"},
	} {
		if v := p.Judge(c.call, s); v.Ruling != c.want {
			t.Errorf("%s: %s", c.call.Tool, v.Ruling)
		}
	}
}

// origin: ai PR15947
func TestCase_R06(t *testing.T) {
	before := load(t, user(rules(`{command: deploy, verdict: review}`)))
	today := load(t, user(rules(`{name: frozen, command: deploy, verdict: deny}`)))
	s := boxed()
	s.Grants = []caisson.Grant{{ID: "g1", Run: "r1", Tool: caisson.ToolRef{Name: "shell"}, Command: "deploy **", PolicyDigest: before.PolicyDigest()}}
	if v := before.Judge(shellCall("deploy"), s); v.Ruling != caisson.Allow {
		t.Fatalf("the grant does not stand under its own policy: %+v", v)
	}
	if v := today.Judge(shellCall("deploy"), s); v.Ruling != caisson.Deny || v.PolicyDigest == before.PolicyDigest() {
		t.Errorf("%+v", v)
	}
}

// origin: openai-agents 4896
func TestCase_R07(t *testing.T) {
	before := load(t, user(rules(`{name: ask, command: deploy, verdict: review}`)))
	today := load(t, user(rules(`{name: ask, command: deploy, verdict: review, again: true}`)))
	s := boxed()
	s.Grants = []caisson.Grant{{ID: "g1", Run: "r1", Tool: caisson.ToolRef{Name: "shell"}, Command: "deploy", PolicyDigest: before.PolicyDigest()}}
	v, old := today.Judge(shellCall("deploy"), s), before.Judge(shellCall("deploy"), boxed())
	if v.Ruling != caisson.ReviewIt || !v.Again || v.RuleDigest == old.RuleDigest {
		t.Errorf("today %+v, before %+v", v, old)
	}
}

func TestPolicyDigest(t *testing.T) {
	base := load(t, user(rules(`{command: a, verdict: deny}`, `{command: b, verdict: review}`))).PolicyDigest()
	if len(base) != 64 {
		t.Fatalf("digest %q", base)
	}
	same := user("# a comment\n\nrules:\n  - command: [a]\n    verdict: deny\n  - {verdict: review, command: b}\n")
	same.Preset = "sandboxed"
	if load(t, same).PolicyDigest() != base {
		t.Error("a comment changes the digest")
	}
	seen := map[caisson.Digest]string{base: "base"}
	for name, src := range map[string]gate.Sources{
		"order":   user(rules(`{command: b, verdict: review}`, `{command: a, verdict: deny}`)),
		"verdict": user(rules(`{command: a, verdict: review}`, `{command: b, verdict: review}`)),
		"preset":  {Preset: "supervised", User: user(rules(`{command: a, verdict: deny}`, `{command: b, verdict: review}`)).User},
		"layer":   {Repository: user(rules(`{command: a, verdict: deny}`, `{command: b, verdict: review}`)).User},
		"servers": user("read_only_servers: x\n" + rules(`{command: a, verdict: deny}`, `{command: b, verdict: review}`)),
		"trusted": user("trusted_dirs: /x\n" + rules(`{command: a, verdict: deny}`, `{command: b, verdict: review}`)),
		"nothing": {},
		"reason":  user(rules(`{command: a, verdict: deny, reason: x}`, `{command: b, verdict: review}`)),
		"when":    user(rules(`{command: a, verdict: deny, when: "true"}`, `{command: b, verdict: review}`)),
	} {
		d := load(t, src).PolicyDigest()
		if other, twice := seen[d]; twice {
			t.Errorf("%s has the digest of %s", name, other)
		}
		seen[d] = name
	}
}

func TestExplain(t *testing.T) {
	src := user(rules(`{name: push, command: git push, verdict: deny, reason: A person pushes.}`))
	src.Repository = []gate.File{{Name: ".caisson/policy.yaml", Data: []byte(rules(`{verdict: review, command: make}`))}}
	p := load(t, src)
	e := p.Explain(outside("make; sh -c 'git push' > \"$x\x1b[2J\""), boxed())
	if e.Verdict.Reason != `refused by the user's rule "push": A person pushes. Another input to this tool could pass.` || !e.Verdict.OtherInput {
		t.Errorf("reason %q", e.Verdict.Reason)
	}
	text := e.Text()
	for _, want := range []string{
		"repository review policy.yaml:2 (.caisson/policy.yaml:2)", "user       deny   push: A person pushes. (policy.yaml:2)", "    make\n", "    git push   (in \"sh -c\")\n", `writes <"$x\x1b[2J">`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "\x1b") {
		t.Error("an escape reaches the terminal")
	}
	raw, err := json.Marshal(e)
	if err != nil || !strings.Contains(string(raw), `"layers":[{"layer":"repository"`) {
		t.Errorf("%s, %v", raw, err)
	}
	whole := load(t, user(rules(`{name: none, tools: shell, verdict: deny}`))).Judge(shellCall("ls"), boxed())
	if whole.OtherInput || !strings.Contains(whole.Reason, "No other input") {
		t.Errorf("%+v", whole)
	}
}

func TestReferenceIsWhatIsRead(t *testing.T) {
	for _, f := range gate.Reference() {
		if f.Doc == "" || f.Type == "" {
			t.Errorf("%s says nothing", f.Key)
		}
	}
	text := `version: 1
read_only_servers: [s]
trusted_dirs: [/x]
rules:
  - {name: n, tools: [shell], effects: [unsafe], command: [a], path: [b], write: true, when: "true", verdict: review, reason: r, again: true}
`
	load(t, user(text))
	for _, f := range gate.Reference() {
		key := f.Key[strings.LastIndexByte(f.Key, '.')+1:]
		if !strings.Contains(text, key+":") {
			t.Errorf("this test does not set %s", f.Key)
		}
	}
}

func TestJudgeConcurrently(t *testing.T) {
	p := load(t, user(rules(`{command: git push, verdict: deny}`, `{when: "commands.exists(c, c.program == 'make')", verdict: review}`)))
	lines := []string{"git push", "make", "ls", "eval x"}
	want := make([]caisson.Verdict, len(lines))
	for i, line := range lines {
		want[i] = p.Judge(outside(line), boxed())
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				for i, line := range lines {
					if got := p.Judge(outside(line), boxed()); got != want[i] {
						t.Errorf("%q: %+v, want %+v", line, got, want[i])
					}
				}
			}
		})
	}
	wg.Wait()
}

func BenchmarkJudge(b *testing.B) {
	var many []string
	for _, name := range strings.Fields("npm pip curl wget docker kubectl terraform aws gcloud ssh scp rsync nc socat dd mkfs mount umount su doas") {
		many = append(many, "{command: "+name+" push, verdict: deny}")
	}
	p := load(b, user(rules(slices.Concat(many, []string{`{when: "input.command.size() > 1000", verdict: review}`, `{command: ["go **", "git **"], verdict: allow}`})...)))
	s := boxed()
	for name, line := range map[string]string{"short": "go test ./...", "long": strings.Repeat("git add -A && go vet ./... | grep -v x; ", 60)} {
		call := shellCall(line)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				p.Judge(call, s)
			}
		})
	}
}

// A model chooses the line: the worst that it can write must not stop the host.
// The bound is loose, for slow machines: what it finds is a power too much.
func TestWorstLines(t *testing.T) {
	var many []string
	for i := range 100 {
		many = append(many, fmt.Sprintf("{name: r%d, command: program-%d push-%d --force, verdict: deny}", i, i, i))
	}
	many = append(many, `{name: w, when: "commands.exists(c, c.words.exists(w, w.matches('(a*)*b')))", verdict: deny}`)
	p := load(t, user(rules(many...)))
	for name, line := range map[string]string{
		"wrappers over unknown words": strings.Repeat("nice ", 200) + strings.Repeat(`"$a"z `, 9000),
		"one long unknown word":       strings.Repeat("nice ", 100) + `"$a"` + strings.Repeat("z", 60_000),
		"many commands":               strings.Repeat(`"$a"z "$b"z;`, 5000),
		"brackets":                    strings.Repeat("$(", 200) + strings.Repeat(")", 200) + strings.Repeat("(", 150),
		"lines in arguments":          strings.Repeat(`sudo "a b" `, 5000),
		"globs":                       "x " + strings.Repeat("*a", 30_000),
	} {
		start := time.Now()
		p.Judge(outside(line), boxed())
		if took := time.Since(start); took > 30*time.Second {
			t.Errorf("%s: %v", name, took)
		} else {
			t.Logf("%s: %v", name, took)
		}
	}
}

func FuzzLoad(f *testing.F) {
	f.Add([]byte(rules(`{name: a, tools: shell, command: ["git push **"], path: "a/**", when: "tool == 'x'", verdict: deny, reason: r}`)), "git push; a > b")
	f.Add([]byte("version: 1\nread_only_servers: [a]\n"), "x")
	f.Add([]byte(rules(`{verdict: allow, command: "*"}`)), "eval $(x)")
	f.Fuzz(func(t *testing.T, raw []byte, line string) {
		p, err := gate.Load(gate.Sources{User: []gate.File{{Name: "f", Data: raw}}})
		if err != nil {
			if code := caisson.CodeOf(err); code != caisson.CodePolicyInvalid {
				t.Fatalf("%s: %v", code, err)
			}
			return
		}
		a, b := p.Judge(outside(line), boxed()), p.Explain(outside(line), boxed()).Verdict
		if a != b {
			t.Fatalf("judge %+v, explain %+v", a, b)
		}
	})
}

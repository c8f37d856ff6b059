package gate_test

import (
	"strings"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/gate"
)

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

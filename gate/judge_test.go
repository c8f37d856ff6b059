package gate_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/gate"
)

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

// A verb that somebody's config declares is ruled by that declaration, or by a rule
// that names it. Where this policy knows of none it is refused by its name, whatever
// the preset would say of a call like it.
func TestDeclaredVerbs(t *testing.T) {
	verb := caisson.Call{Run: "r1", Tool: caisson.ToolRef{Name: "gh.pr.create"}, Effect: caisson.EffectRead, Reach: caisson.ReachInside}
	served := verb
	served.Tool.Server = "db"
	for _, preset := range gate.Presets() {
		for what, verbs := range map[string]map[string]caisson.Ruling{"none": nil, "empty": {}, "others": {"gh.pr": caisson.Allow, "gh.pr.create.now": caisson.Allow}} {
			v := load(t, gate.Sources{Preset: string(preset), Verbs: verbs}).Judge(verb, boxed())
			if v.Ruling != caisson.Deny || v.Rule != "verbs.gh.pr.create" || !strings.Contains(v.Reason, "declares no verb of this name") {
				t.Errorf("%s, %s: %+v", preset, what, v)
			}
		}
		for _, ruling := range []caisson.Ruling{caisson.Allow, caisson.Deny} {
			v := load(t, gate.Sources{Preset: string(preset), Verbs: map[string]caisson.Ruling{"gh.pr.create": ruling}}).Judge(verb, boxed())
			if v.Ruling != ruling || v.Rule != "verbs.gh.pr.create" {
				t.Errorf("%s, %s: %+v", preset, ruling, v)
			}
		}
	}
	if v := load(t, user(rules(`{tools: gh.pr.create, verdict: allow}`))).Judge(verb, boxed()); v.Ruling != caisson.Allow {
		t.Errorf("a rule that names it: %+v", v)
	}
	if v := load(t, gate.Sources{}).Judge(served, boxed()); v.Rule == "verbs.gh.pr.create" {
		t.Errorf("a server's tool was taken for it: %+v", v)
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

func TestExplain(t *testing.T) {
	src := user(rules(`{name: push, command: git push, verdict: deny, reason: A person pushes.}`))
	src.Repository = []gate.File{{Name: ".caisson/policy.yaml", Data: []byte(rules(`{verdict: review, command: make}`))}}
	p := load(t, src)
	e := p.Explain(outside("make; sh -c 'git push' > \"$x\x1b[2J\""), boxed())
	if e.Verdict.Reason != `refused by the user's rule "push": A person pushes. Another input to this tool could pass.` {
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
	if !strings.Contains(whole.Reason, "No other input") {
		t.Errorf("%+v", whole)
	}
}

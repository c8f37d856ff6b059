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

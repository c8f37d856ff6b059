package config

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/sandbox/egress/rule"
	"github.com/caisson-run/caisson/verb/declared"
)

func user(text string) File { return File{"config.yaml", []byte(text)} }

func repo(text string) File { return File{".caisson/config.yaml", []byte(text)} }

func sameConfig() cmp.Option {
	return cmp.Options{cmpopts.IgnoreUnexported(Config{}), cmpopts.EquateComparable(netip.Addr{}), cmp.Comparer(func(a, b declared.Template) bool { return a.String() == b.String() })}
}

func TestDefaults(t *testing.T) {
	c, err := load(File{}, File{}, "linux", 8)
	if err != nil {
		t.Fatal(err)
	}
	want := Config{
		Preset: "sandboxed", Require: []caisson.Control{"files", "network", "processes"},
		Floors:         Floors{Disk: 2 << 30, Memory: 512 << 20},
		TrashDays:      14,
		Limits:         caisson.Limits{Memory: 4 << 30, Pids: 512, CPUs: 7, Files: 4096, Size: 16 << 30, Tmp: 1 << 30},
		Review:         Review{24 * time.Hour, 24 * time.Hour, 30 * time.Second},
		NetworkUnknown: "deny", OnUnknown: "ask", Prices: map[string]caisson.Price{}, Containers: Containers{Refresh: DefaultRefresh}, Instructions: []string{"AGENTS.md", "CLAUDE.md"},
	}
	if diff := cmp.Diff(want, c, sameConfig()); diff != "" {
		t.Error(diff)
	}
	if c.Origin("limits.memory") != Default {
		t.Errorf("origin %q", c.Origin("limits.memory"))
	}
	if one, err := load(File{}, File{}, "linux", 1); err != nil || one.Limits.CPUs != 1 {
		t.Errorf("one processor: %d, %v", one.Limits.CPUs, err)
	}
}

const everything = `
model: anthropic/claude-sonnet-4-5
engine: {linux: bubblewrap, darwin: colima}
preset: supervised
require: [files, memory]
limits: {memory: 8GiB, pids: 100, cpus: 2, files: 64, size: 1 GB, tmp: "2097152"}
trash: {days: 30}
floor: {disk: 0, memory: 1GiB}
budget: {tokens: 1000, cost: 5.25 USD, wall: 2h, turns: 10, calls: 0, output: 1MiB}
env: [GOFLAGS, CI]
caches: [go, cargo]
hide: ["**/.env", secrets]
ptrace: true
workspace: {mode: clone}
mounts:
  - {source: /opt/go}
  - {source: /srv/data, target: /data, write: true}
review: {expire: 48h, use_for: 1h, park_after: 500ms}
on_unknown: tell
model_prices:
  x/m: {input: 3 USD, output: 15 USD, cache_read: 0.3 USD}
instructions: [AGENTS.md, /home/u/rules.md]
state_dir: /var/lib/caisson
containers: {image: my/image, base: debian, refresh: 24h}
network:
  - api.example.com
  - "*.example.org:443"
  - {host: DB.internal, ports: [5432, 5433], private: true}
  - localhost:8080
network_unknown: review
agents: {credentials: [{file: .codex/auth.json, expires: last_refresh}, {file: .a/b.json, keys: [x, y]}]}
credentials: [{env: API_TOKEN, host: api.example.com}, {env: KEY, host: Other.com, header: x-api-key}]
verbs:
  gh.pr.create:
    input: {title: string, draft: {type: boolean, optional: true}, label: {enum: [bug, docs], max: 10, description: one}, n: {type: integer, min: 1, max: 9, default: 3}}
    run: [gh, pr, create, "--title={title}", "{{x}}", --head, "{branch}", "--draft={draft}", [--label, "{label}", "{task}"], "{n}"]
    dir: host-repo
    verdict: allow
    timeout: 30s
    output: 2KiB
    memory: 1GiB
    env: [GH_TOKEN]
    description: Open a pull request.
tasks:
  roles:
    executor: {agent: [claude, -p, "{prompt}", --quiet]}
    reviewer: {model: openai/gpt-5}
`

func TestEverySetting(t *testing.T) {
	c, err := load(user(everything), File{}, "linux", 8)
	if err != nil {
		t.Fatal(err)
	}
	want := Config{
		Model: "anthropic/claude-sonnet-4-5", Engine: "bubblewrap", Preset: "supervised", Require: []caisson.Control{"files", "memory"},
		Floors: Floors{Memory: 1 << 30}, TrashDays: 30,
		Limits: caisson.Limits{Memory: 8 << 30, Pids: 100, CPUs: 2, Files: 64, Size: 1e9, Tmp: 2 << 20},
		Budget: caisson.Budget{Tokens: 1000, Cost: 5_250_000, Wall: 2 * time.Hour, Turns: 10, Output: 1 << 20},
		Caches: []string{"go", "cargo"}, Hide: []string{"**/.env", "secrets"}, Ptrace: true,
		Env: []string{"GOFLAGS", "CI"}, Mounts: []caisson.Mount{{Source: "/opt/go", Target: "/opt/go"}, {Source: "/srv/data", Target: "/data", Write: true}},
		Network: []rule.Rule{
			{Host: rule.Host{Name: "api.example.com"}, Ports: []uint16{443, 80}, Scope: rule.Public},
			{Host: rule.Host{Name: "example.org"}, Below: true, Ports: []uint16{443}, Scope: rule.Public, Opaque: true},
			{Host: rule.Host{Name: "db.internal"}, Ports: []uint16{5432, 5433}, Scope: rule.Private, Opaque: true},
			{Host: rule.Host{Name: "localhost"}, Ports: []uint16{8080}, Scope: rule.Local, Opaque: true},
		},
		NetworkUnknown: "review",
		Credentials:    []Credential{{"API_TOKEN", rule.Host{Name: "api.example.com"}, "Authorization"}, {"KEY", rule.Host{Name: "other.com"}, "X-Api-Key"}},
		Logins:         []Login{{File: ".codex/auth.json", Expires: "last_refresh"}, {File: ".a/b.json", Keys: []string{"x", "y"}}},
		Review:         Review{48 * time.Hour, time.Hour, 500 * time.Millisecond}, OnUnknown: "tell",
		Prices:       map[string]caisson.Price{"x/m": {Input: 3e6, Output: 15e6, CacheRead: 3e5, CacheWrite: 3e6}},
		Instructions: []string{"AGENTS.md", "/home/u/rules.md"}, StateDir: "/var/lib/caisson",
		Containers:    Containers{Image: "my/image", Base: "debian", Refresh: 24 * time.Hour},
		WorkspaceMode: "clone",
		Verbs: []declared.Verb{{
			Name: "gh.pr.create", Description: "Open a pull request.", Dir: "host-repo", Verdict: "allow", Timeout: 30 * time.Second, Output: 2048, Memory: 1 << 30, Env: []string{"GH_TOKEN"},
			Input: []declared.Field{
				{Name: "title", Type: "string", Max: declared.MostText},
				{Name: "draft", Type: "boolean", Optional: true, Max: declared.MostText},
				{Name: "label", Type: "string", Max: 10, Enum: []string{"bug", "docs"}, Description: "one"},
				{Name: "n", Type: "integer", Max: declared.MostText, Least: new(int64(1)), Most: new(int64(9)), Default: int64(3)},
			},
			Run: templates("gh", "pr", "create", "--title={title}", "{{x}}", "--head", "{branch}", "--draft={draft}", "--label", "{label}", "{task}", "{n}"),
		}},
		Tasks: Tasks{Executor: TaskRole{Agent: []string{"claude", "-p", PromptPlace, "--quiet"}}, Reviewer: TaskRole{Model: "openai/gpt-5"}},
	}
	if diff := cmp.Diff(want, c, sameConfig()); diff != "" {
		t.Error(diff)
	}
	for _, s := range Reference() {
		if c.Origin(s.Key) != "config.yaml" {
			t.Errorf("%s is set in everything and has the origin %q", s.Key, c.Origin(s.Key))
		}
		if s.Doc == "" || s.Type == "" || s.Repository == "" {
			t.Errorf("the row of %s is not complete", s.Key)
		}
	}
	if mac, err := load(user(everything), File{}, "darwin", 8); err != nil || mac.Engine != "colima" {
		t.Errorf("engine on darwin: %q, %v", mac.Engine, err)
	}
	if other, err := load(user("engine: {darwin: colima}"), File{}, "linux", 8); err != nil || other.Engine != "" {
		t.Errorf("no engine for linux: %q, %v", other.Engine, err)
	}
}

// The defaults in the table are what holds: read as a file, they change nothing.
func TestReferenceDefaults(t *testing.T) {
	want, _ := load(File{}, File{}, "linux", 8)
	for _, s := range Reference() {
		text := s.Default
		switch s.Type {
		case "size", "time", "number", "money":
			text, _, _ = strings.Cut(text, " (")
			if s.Key == "limits.cpus" {
				continue
			}
		case "supervised, sandboxed or unattended", "ask or tell", "time, or forever":
		case "none, or list of hosts", "deny or review":
		case "list of controls", "list of files":
			text = "[" + text + "]"
		default:
			continue
		}
		file := text
		keys := strings.Split(s.Key, ".")
		slices.Reverse(keys)
		for _, k := range keys {
			file = "{" + k + ": " + file + "}"
		}
		got, err := load(user(file), File{}, "linux", 8)
		if err != nil {
			t.Errorf("%s: %v", s.Key, err)
			continue
		}
		if diff := cmp.Diff(want, got, sameConfig()); diff != "" {
			t.Errorf("%s: %s", s.Key, diff)
		}
	}
}

func TestInvalid(t *testing.T) {
	for text, want := range map[string]string{
		"modl: x":                             `config-invalid config.yaml:1: unknown key "modl"`,
		"\nlimits:\n  memroy: 1GiB":           `config-invalid config.yaml:3: limits: unknown key "memroy"`,
		"limits: {memory: 1GiB, memory: 2}":   `config-invalid config.yaml:1: limits: key "memory" is given twice`,
		"model: gpt":                          `config-invalid`,
		"hide: [/etc/passwd]":                 `config-invalid config.yaml:1: hide[0]: "/etc/passwd" is not a pattern relative to the workspace`,
		"hide: ['**']":                        `config-invalid config.yaml:1: hide[0]: the pattern "**" is the whole workspace`,
		"hide: ['[']":                         `config-invalid config.yaml:1: hide[0]: the pattern "[" cannot be read: a [ without its ]`,
		"hide: [ok, 'a/{b']":                  `config-invalid config.yaml:1: hide[1]: the pattern "a/{b" cannot be read: a { without its }`,
		"network: ['*.co.uk']":                `config-invalid config.yaml:1: network[0]: *.co.uk is too wide`,
		"hide: [a, a]":                        `config-invalid`,
		"caches: [maven]":                     `config-invalid`,
		"ptrace: maybe":                       `config-invalid`,
		"workspace: {mode: copy}":             `config-invalid config.yaml:1: workspace.mode: a workspace is a worktree or a clone, not "copy"`,
		"model: 3":                            `config-invalid`,
		"engine: none":                        `config-invalid config.yaml:1: engine: there is no way to run without a boundary`,
		"engine: /bin/sh":                     `config-invalid config.yaml:1: engine: there is no engine "/bin/sh"; there are namespace, bubblewrap, docker`,
		"engine: orbstack":                    `config-invalid config.yaml:1: engine: the engine orbstack is not for linux, where there are namespace, bubblewrap`,
		"engine: {darwin: namespace}":         `config-invalid config.yaml:1: engine.darwin: the engine namespace is not for darwin, where there are docker, podman, colima, orbstack, docker-desktop`,
		"engine: {linux: colima, windows: x}": `config-invalid config.yaml:1: engine.windows: there is no engine "x"; there are docker`,
		"engine: {plan9: x}":                  `config-invalid`,
		"preset: yolo":                        `config-invalid config.yaml:1: preset: must be one of`,
		"require: [file]":                     `config-invalid`,
		"require: files":                      `config-invalid`,
		"limits: {memory: 4G}":                `config-invalid config.yaml:1: limits.memory: "4G" is not a size`,
		"limits: {memory: 1.5GiB}":            `config-invalid`,
		"limits: {memory: -1GiB}":             `limit-invalid config.yaml:1: limits.memory: is out of range: at least 16MiB, at most 16TiB`,
		"limits: {memory: 0}":                 `limit-invalid`,
		"limits: {memory: 9999999TiB}":        `config-invalid config.yaml:1: limits.memory: "9999999TiB" is too large`,
		"limits: {memory: 17TiB}":             `limit-invalid`,
		"limits: {pids: -3}":                  `limit-invalid`,
		"limits: {pids: 3}":                   `limit-invalid`,
		"limits: {pids: 0x10}":                `config-invalid`,
		"limits: {pids: many}":                `config-invalid`,
		"limits: {cpus: 1.5}":                 `config-invalid`,
		"limits: 4":                           `config-invalid`,
		"budget: {cost: 5}":                   `config-invalid`,
		"budget: {cost: 5 EUR}":               `config-invalid`,
		"budget: {cost: 0.0000001 USD}":       `config-invalid`,
		"budget: {cost: -5 USD}":              `limit-invalid`,
		"budget: {wall: 2}":                   `config-invalid`,
		"budget: {wall: -2h}":                 `limit-invalid`,
		"budget: {wall: 999999d}":             `config-invalid config.yaml:1: budget.wall: "999999d" is too long`,
		"budget: {tokens: -1}":                `limit-invalid`,
		"env: [A=b]":                          `config-invalid`,
		"env: [A, A]":                         `config-invalid config.yaml:1: env[1]: "A" is there twice`,
		"mounts: [{target: /x}]":              `config-invalid config.yaml:1: mounts[0]: a mount without a source`,
		"mounts: [{source: x}]":               `config-invalid`,
		"mounts: [{source: /a/../b}]":         `config-invalid`,
		"mounts: [{source: /}]":               `config-invalid`,
		"mounts: [{source: /a}, {source: /b, target: /a}]":                                    `config-invalid`,
		"review: {expire: 0s}":                                                                `limit-invalid`,
		"review: {expire: forever}":                                                           `config-invalid`,
		"network: [api.example.com, \"*\"]":                                                   `config-invalid config.yaml:1: network[1]: a * stands only for`,
		"network:\n  - a.com\n  - \"*.com\"":                                                  `config-invalid config.yaml:3: network[1]: *.com is too wide`,
		"network: [*.example.org]":                                                            `config-invalid`, // an alias of YAML: it wants quotes
		"network: all":                                                                        `config-invalid config.yaml:1: network: must be none or a list of hosts`,
		"network: [localhost]":                                                                `config-invalid config.yaml:1: network[0]: localhost is not on the internet: name its port`,
		"network: [\"http://a.com\"]":                                                         `config-invalid`,
		"network: [a.com, A.com.]":                                                            `config-invalid config.yaml:1: network[1]: a.com is there twice`,
		"network: [{host: a.com, ports: [0]}]":                                                `config-invalid`,
		"network: [{host: a.com, ports: []}]":                                                 `config-invalid`,
		"network: [{ports: [80]}]":                                                            `config-invalid`,
		"network: [{host: a.com, port: 80}]":                                                  `config-invalid`,
		"network_unknown: allow":                                                              `config-invalid`,
		"verbs: {push: {run: [x]}}":                                                           `config-invalid config.yaml:1: verbs.push: "push" is not the name of a verb`,
		"verbs: {git.push: {run: [x]}}":                                                       `config-invalid config.yaml:1: verbs.git.push: verbs that begin with git. are Caisson's own`,
		"verbs: {a.b: {}}":                                                                    `config-invalid config.yaml:1: verbs.a.b: the verb a.b has no program`,
		"verbs: {a.b: {run: []}}":                                                             `config-invalid`,
		"verbs: {a.b: {run: ['']}}":                                                           `config-invalid`,
		"verbs: {a.b: {run: [x, '{who}']}}":                                                   `config-invalid config.yaml:1: verbs.a.b.run[1]: there is no field {who}`,
		"verbs: {a.b: {run: ['{title}'], input: {title: string}}}":                            `config-invalid config.yaml:1: verbs.a.b.run[0]: the program has no values in it`,
		"verbs: {a.b: {run: [x, '{title'], input: {title: string}}}":                          `config-invalid`,
		"verbs: {a.b: {run: [x], input: {branch: string}}}":                                   `config-invalid`,
		"verbs: {a.b: {run: [x], input: {t: text}}}":                                          `config-invalid`,
		"verbs: {a.b: {run: [x], input: {t: {type: integer, pattern: a}}}}":                   `config-invalid`,
		"verbs: {a.b: {run: [x], input: {t: {pattern: '('}}}}":                                `config-invalid`,
		"verbs: {a.b: {run: [x, '{t}'], input: {t: {type: integer, enum: [a]}}}}":             `config-invalid config.yaml:1: verbs.a.b.input.t.enum: is for texts`,
		"verbs: {a.b: {run: [x, '{t}'], input: {t: {type: boolean, max: 3}}}}":                `config-invalid config.yaml:1: verbs.a.b.input.t.max: is for texts and integers`,
		"verbs: {a.b: {run: [x, '{t}'], input: {t: {max: 3, type: boolean}}}}":                `config-invalid config.yaml:1: verbs.a.b.input.t.max: is for texts and integers`,
		"verbs: {a.b: {run: [x, '{t}'], input: {t: {min: 3}}}}":                               `config-invalid config.yaml:1: verbs.a.b.input.t.min: is for integers`,
		"verbs: {a.b: {run: [x, '{t}'], input: {t: {type: integer, min: 3, max: 2}}}}":        `config-invalid config.yaml:1: verbs.a.b.input.t.min: is above max`,
		"verbs: {a.b: {run: [x, '{t}'], input: {t: {type: integer, max: 9007199254740992}}}}": `config-invalid config.yaml:1: verbs.a.b.input.t.max: is out of range`,
		"verbs: {a.b: {run: [x, '{t}'], input: {t: {type: integer, max: 2, default: 3}}}}":    `config-invalid config.yaml:1: verbs.a.b.input.t.default: is not between`,
		"verbs: {a.b: {run: [x, '{t}'], input: {t: {max: 2, default: abc}}}}":                 `config-invalid config.yaml:1: verbs.a.b.input.t.default: is longer`,
		"verbs: {a.b: {run: [x, '{t}'], input: {t: {enum: [a], default: b}}}}":                `config-invalid config.yaml:1: verbs.a.b.input.t.default: is not in enum`,
		"verbs: {a.b: {run: [x, '{t}'], input: {t: {pattern: a, default: b}}}}":               `config-invalid config.yaml:1: verbs.a.b.input.t.default: does not fit`,
		"verbs: {a.b: {run: [x, '{t}'], input: {t: {type: boolean, default: 1}}}}":            `config-invalid`,
		"verbs: {a.b: {run: [x, '{t}'], input: {t: {optional: false, default: b}}}}":          `config-invalid config.yaml:1: verbs.a.b.input.t.optional: a field with a default`,
		"verbs: {a.b: {run: [x, '{t}'], input: {t: {enum: []}}}}":                             `config-invalid config.yaml:1: verbs.a.b.input.t.enum: an empty list`,
		"verbs: {a.b: {run: [x], input: {t: string}}}":                                        `config-invalid config.yaml:1: verbs.a.b.input: nothing is done with t: run has no {t}`,
		"verbs: {a.b: {run: [x, -t, '{t}'], input: {t: {optional: true}}}}":                   `config-invalid config.yaml:1: verbs.a.b.run: "{t}" is left out where {t} is not given, and "-t" before it`,
		"verbs: {a.b: {run: [x, --task, '{task}']}}":                                          `config-invalid config.yaml:1: verbs.a.b.run: "{task}" is left out`,
		"verbs: {a.b: {run: [x, [-t, '{t}']], input: {t: string}}}":                           `config-invalid config.yaml:1: verbs.a.b.run: "-t" is in a list`,
		"verbs: {a.b: {run: [[x, '{t}']], input: {t: {optional: true}}}}":                     `config-invalid`,
		"verbs: {a.b: {run: [x, [[a, '{t}']]], input: {t: {optional: true}}}}":                `config-invalid`,
		"verbs: {a.b: {run: [sh, -c, 'echo {t}'], input: {t: string}}}":                       `config-invalid config.yaml:1: verbs.a.b.run: "echo {t}": {t} would be program text of sh -c`,
		"verbs: {a.b: {run: [sh, -c, '{branch}']}}":                                           `config-invalid config.yaml:1: verbs.a.b.run: "{branch}": {branch} would be program text of sh -c`,
		"verbs: {a.b: {run: [busybox, sh, -ec, '{t}'], input: {t: string}}}":                  `config-invalid config.yaml:1: verbs.a.b.run: "{t}": {t} would be program text of sh -c`,
		"verbs: {a.b: {run: [/usr/bin/env, python3, -c, 'x {t}'], input: {t: string}}}":       `config-invalid config.yaml:1: verbs.a.b.run: "x {t}": {t} would be program text of python3 -c`,
		"verbs: {a.b: {run: [x], memory: 1GiB}}":                                              `config-invalid config.yaml:1: verbs.a.b.memory: a verb that runs inside has the sandbox's memory`,
		"verbs: {a.b: {run: [x], timeout: 0s}}":                                               `config-invalid`,
		"verbs: {a.b: {run: [x], timeout: 48h}}":                                              `config-invalid`,
		"verbs: {a.b: {run: [x], output: 1GiB}}":                                              `config-invalid`,
		"verbs: {a.b: {run: [x], verdict: maybe}}":                                            `config-invalid`,
		"verbs: {a.b: {run: [x], dir: /tmp}}":                                                 `config-invalid`,
		"verbs: {a.b: {run: [x], env: [A]}}":                                                  `config-invalid config.yaml:1: verbs.a.b: a verb that runs inside gets the sandbox's environment`,
		"verbs: {a.b: {run: [./x], dir: host-repo}}":                                          `config-invalid config.yaml:1: verbs.a.b.run: "./x" would be looked for in the repository`,
		"verbs: {a.b: {run: [x], shell: true}}":                                               `config-invalid`,
		"credentials: [{env: A}]":                                                             `config-invalid config.yaml:1: credentials[0]: a credential has env and host`,
		"credentials: [{env: A-B, host: a.com}]":                                              `config-invalid`,
		"credentials: [{env: A, host: localhost}]":                                            `config-invalid`,
		"credentials: [{env: A, host: \"*.a.com\"}]":                                          `config-invalid`,
		"credentials: [{env: A, host: a.com, header: host}]":                                  `config-invalid`,
		"credentials: [{env: A, host: a.com, header: \"a: b\"}]":                              `config-invalid`,
		"credentials: [{env: A, host: a.com}, {env: A, host: b.com}]":                         `config-invalid`,
		"credentials: [{env: A, host: a.com}, {env: B, host: A.com}]":                         `config-invalid`,
		"agents: {credentials: [{expires: a}]}":                                               `config-invalid config.yaml:1: agents.credentials[0]: a login has a file`,
		"agents: {credentials: [{file: /etc/shadow}]}":                                        `config-invalid`,
		"agents: {credentials: [{file: ../x}]}":                                               `config-invalid`,
		"agents: {credentials: [{file: a/../x}]}":                                             `config-invalid`,
		"agents: {credentials: [{file: a//x}]}":                                               `config-invalid`,
		"agents: {credentials: [{file: ./x}]}":                                                `config-invalid`,
		"agents: {credentials: [{file: .}]}":                                                  `config-invalid`,
		"agents: {credentials: [{file: a/}]}":                                                 `config-invalid`,
		"agents: {credentials: [{file: \"a\\nb\"}]}":                                          `config-invalid`,
		"agents: {credentials: [{file: a, expires: b..c}]}":                                   `config-invalid`,
		"agents: {credentials: [{file: a, keys: [b, b]}]}":                                    `config-invalid`,
		"agents: {credentials: [{file: a}, {file: a}]}":                                       `config-invalid config.yaml:1: agents.credentials[1]: "a" is there twice`,
		"agents: {secrets: []}":                                                               `config-invalid`,
		"on_unknown: maybe":                                                                   `config-invalid`,
		"model_prices: {x/m: {input: 3 USD}}":                                                 `config-invalid config.yaml:1: model_prices.x/m: the price of output is missing`,
		"model_prices: {x/m: {input: -3 USD, output: 1 USD}}":                                 `limit-invalid`,
		"model_prices: {m: {input: 3 USD, output: 1 USD}}":                                    `config-invalid`,
		"instructions: [../x]":                                                                `config-invalid`,
		"state_dir: x":                                                                        `config-invalid`,
		"hooks: [x]":                                                                          `config-invalid`,
		"a: [":                                                                                `config-invalid config.yaml:`,
	} {
		_, err := load(user(text), File{}, "linux", 8)
		if err == nil {
			t.Errorf("%s: no error", text)
			continue
		}
		e := caisson.AsError(err)
		if got := string(e.Code) + " " + err.Error(); !strings.HasPrefix(got, want) {
			t.Errorf("%s\n got %s\nwant %s", text, got, want)
		}
		if e.Code.Info().Exit != 78 || e.Detail["file"] != "config.yaml" {
			t.Errorf("%s: exit %d, detail %v", text, e.Code.Info().Exit, e.Detail)
		}
	}
}

func TestPaths(t *testing.T) {
	env := func(pairs ...string) func(string) string {
		return func(name string) string {
			for i := 0; i < len(pairs); i += 2 {
				if pairs[i] == name {
					return pairs[i+1]
				}
			}
			return ""
		}
	}
	for _, c := range []struct {
		env  func(string) string
		want Dirs
	}{
		{env("HOME", "/h"), Dirs{"/h/.config/caisson", "/h/.local/state/caisson", "/h/.local/state/caisson"}},
		{env("HOME", "/h", "XDG_RUNTIME_DIR", "/run/u"), Dirs{"/h/.config/caisson", "/h/.local/state/caisson", "/run/u/caisson"}},
		{env("HOME", "/h", "XDG_CONFIG_HOME", "relative", "XDG_STATE_HOME", "/s", "XDG_RUNTIME_DIR", "x"), Dirs{"/h/.config/caisson", "/s/caisson", "/s/caisson"}},
		{env("XDG_CONFIG_HOME", "/c", "XDG_STATE_HOME", "/s"), Dirs{"/c/caisson", "/s/caisson", "/s/caisson"}},
	} {
		got, err := Paths(c.env)
		if err != nil || got != c.want {
			t.Errorf("%+v, %v, want %+v", got, err, c.want)
		}
	}
	for _, e := range []func(string) string{env(), env("HOME", "h"), env("XDG_CONFIG_HOME", "/c")} {
		if _, err := Paths(e); caisson.CodeOf(err) != caisson.CodeConfigInvalid {
			t.Errorf("without a home: %v", err)
		}
	}
	d := Dirs{"/c", "/s", "/s"}.WithState("/x")
	if d.Ledger() != "/x/ledger.db" || d.Instances() != "/x/instances" || d.UserPolicy() != "/c/policy.yaml" || d.Workspaces() != "/x/workspaces" {
		t.Errorf("%+v", d)
	}
	if d := (Dirs{"/c", "/s", "/r"}).WithState("/x"); d.Instances() != "/r/instances" {
		t.Errorf("%+v", d)
	}
}

func FuzzLoad(f *testing.F) {
	f.Add([]byte(everything), []byte("limits: {memory: 1GiB}"))
	f.Add([]byte("budget: {cost: 1 USD}"), []byte("budget: {cost: 2 USD}"))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		c, err := load(File{"a", a}, File{"b", b}, "linux", 4)
		if err != nil {
			if caisson.AsError(err).Code.Info().Exit != 78 {
				t.Fatal(err)
			}
			return
		}
		alone, err := load(File{"a", a}, File{}, "linux", 4)
		if err != nil {
			t.Fatalf("with a repository it is read, without not: %v", err)
		}
		if c.Limits.Memory > alone.Limits.Memory || c.Model != alone.Model || len(c.Env) != len(alone.Env) || len(c.Mounts) != len(alone.Mounts) {
			t.Fatalf("a repository widened %+v to %+v", alone, c)
		}
	})
}

func TestEveryValueIsShown(t *testing.T) {
	full := `
model: p/m
engine: namespace
env: [A]
caches: [go]
hide: ["*.pem"]
mounts: [{source: /a, target: /b, write: true}]
model_prices: {p/m: {input: 1 USD, output: 2 USD}}
state_dir: /s
credentials: [{env: T, host: a.com}]
agents: {credentials: [{file: .a/b}]}
containers: {image: i, base: b}
workspace: {mode: clone}
verbs: {a.b: {run: [x]}}
tasks: {roles: {executor: {agent: [a]}}}
`
	c, err := Load(File{Name: "f", Data: []byte(full)}, File{})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range Reference() {
		if c.Value(row.Key) == "" {
			t.Errorf("%s has a value that is not shown", row.Key)
		}
	}
	if got := c.Value("mounts"); got != "/a at /b read-write" {
		t.Errorf("mounts: %q", got)
	}
	if got := c.Value("limits.memory") + " " + c.Value("budget.tokens"); got != "4GiB none" {
		t.Errorf("numbers: %q", got)
	}
}

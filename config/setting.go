package config

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/caisson-run/caisson/internal/strictyaml"
)

// Setting is a row of the table of settings, from which docs/config.md is made.
type Setting struct {
	Key        string // dotted
	Type       string
	Default    string
	Repository string // what a repository's file may do with it
	Doc        string
}

type setting struct {
	Setting
	read func(reader, *Config, strictyaml.Value) error
	// tighten says why a repository's value does not tighten, or "". Nil: a
	// repository may not set it.
	tighten func(before, after *Config) string
	adds    bool // a repository's value is added to the user's
}

// Reference returns the table of all settings. The reader knows exactly these.
func Reference() []Setting {
	table := settings()
	out := make([]Setting, len(table))
	for i, s := range table {
		out[i] = s.Setting
		switch {
		case s.tighten == nil:
			out[i].Repository = "no"
		case out[i].Repository == "":
			out[i].Repository = "lower only"
		}
	}
	return out
}

func settingOf(key string) (setting, bool) {
	for _, s := range settings() {
		if s.Key == key {
			return s, true
		}
	}
	return setting{}, false
}

// keysOf returns the keys directly below one.
func keysOf(above string) []string {
	var keys []string
	for _, s := range settings() {
		rest := s.Key
		if above != "" {
			var below bool
			if rest, below = strings.CutPrefix(s.Key, above+"."); !below {
				continue
			}
		}
		first, _, _ := strings.Cut(rest, ".")
		if !slices.Contains(keys, first) {
			keys = append(keys, first)
		}
	}
	return keys
}

func settings() []setting {
	text := func(read func(*Config, strictyaml.Value) error) func(reader, *Config, strictyaml.Value) error {
		return func(_ reader, c *Config, v strictyaml.Value) error { return read(c, v) }
	}
	return slices.Concat([]setting{
		{Setting: Setting{"model", "provider/model", "", "", "The language model of Caisson's own agent."}, read: text(readModel)},
		{Setting: Setting{"engine", "name, or names by operating system", "the strongest usable", "", "The engine that makes sandboxes: one name, or a mapping of linux, darwin and windows."}, read: readEngine},
		{Setting: Setting{"preset", "supervised, sandboxed or unattended", "sandboxed", "tighten only", "What policy says of a call that no rule speaks about."}, read: text(readPreset), tighten: tightenPreset},
		{Setting: Setting{"require", "list of controls", "files, network, processes", "adds", "Controls that a sandbox must enforce, or the run is refused."}, read: text(readRequire), tighten: tightenRequire, adds: true},
	}, rows(limitNumbers()), floors(), rows(budgetNumbers()), []setting{
		{Setting: Setting{"env", "list of names", "none", "", "Environment variables that are passed into sandboxes."}, read: text(readEnv)},
		{Setting: Setting{"caches", "list of go, npm, pip, cargo", "none", "", "Your toolchains' caches that sandboxes may read; what they write over them ends with the sandbox."}, read: text(readCaches)},
		{Setting: Setting{"hide", "list of patterns", "none", "adds", "Files of the workspace that nothing in a sandbox can read, as `**/.env`; looked for again before each command."}, read: text(readHide), tighten: tightenHide, adds: true},
		{Setting: Setting{"ptrace", "true or false", "false", "", "Programs in a sandbox may trace each other, as debuggers do."}, read: text(readPtrace)},
		{Setting: Setting{"mounts", "list of source, target, write", "none", "", "Paths lent to sandboxes: absolute source, target (default: the same), write (default: false)."}, read: text(readMounts)},
		{Setting: Setting{"network", "none, or list of hosts", "none", "none only", "Hosts that programs inside may reach: HOST (ports 443 and 80), HOST:PORT, \"*.HOST\" for the names below one, or host, ports, private (true: it may be in a private network)."}, read: text(readNetwork), tighten: tightenNetwork},
		{Setting: Setting{"network_unknown", "deny or review", "deny", "deny only", "What happens when a program wants to reach a host that is not listed: it is refused, or policy judges it as a call of the tool network."}, read: text(readNetworkUnknown), tighten: tightenNetworkUnknown},
		{Setting: Setting{"credentials", "list of env, host, header", "none", "", "Secrets of your environment that programs inside use at one host and do not see: env holds a placeholder inside, for which the proxy puts the secret into header (default: Authorization) of requests to http://HOST, and sends them over TLS."}, read: text(readCredentials)},
		{Setting: Setting{"agents.credentials", "list of file, expires, keys", "none", "", "Files in your home in which agents keep a login that they renew: of yours and the sandbox's the newest goes to the other. file is relative to your home and to HOME inside, expires the keys, with dots between, that lead to the time until which it holds, keys those at the top of a file that you have none of yet. See [security](security.md)."}, read: text(readLogins)},
	}, rows(reviewNumbers()), []setting{
		{Setting: Setting{"on_unknown", "ask or tell", "ask", "ask only", "What happens when a call began and nobody saw its end: a person is asked, or only the model is told."}, read: text(readOnUnknown), tighten: tightenOnUnknown},
		{Setting: Setting{"model_prices", "prices by provider/model", "built in", "", "Prices per million tokens, as 3 USD: input, output, cache_read, cache_write."}, read: text(readPrices)},
		{Setting: Setting{"instructions", "list of files", "AGENTS.md, CLAUDE.md", "adds files of the repository", "Files whose text is given to Caisson's own agent; relative ones are the repository's."}, read: text(readInstructions), tighten: tightenInstructions, adds: true},
		{Setting: Setting{"containers.image", "image", "one of Caisson's, built from containers.base", "", "The image of sandboxes that a container engine makes. It needs a shell; nothing of Caisson need be in it."}, read: text(readImage(func(c *Config) *string { return &c.Containers.Image }))},
		{Setting: Setting{"containers.base", "image", "debian:bookworm-slim", "", "What Caisson's own image is built from; tools that it lacks are installed with apt-get."}, read: text(readImage(func(c *Config) *string { return &c.Containers.Base }))},
		{Setting: Setting{"containers.refresh", "time", "168h", "", "The age at which the image is built or pulled anew, while work goes on with the old one; 0s: never."}, read: text(readRefresh)},
		{Setting: Setting{"workspace.mode", "worktree or clone", "worktree; clone where the engine cannot cover a file", "", "How new workspaces are made: as a worktree whose .git is covered inside, which your editor and git know, or as a clone with a git directory of the agent's own, in which you should run no git yourself."}, read: text(readWorkspaceMode)},
		{Setting: Setting{"verbs", "verbs by name", "none", "", "Programs that a sandbox may ask for through its control channel: see [verbs](verbs.md). Each has run (the program and its arguments, with {field} where a value goes), and may have description, input (fields: string, integer, boolean, or type, description, optional, default, min, max, enum, pattern), dir (workspace, inside; or host-repo, outside), verdict (review, allow or deny, where policy has no rule), timeout, output, memory, env."}, read: text(readVerbs)},
		{Setting: Setting{"tasks.roles.executor", "agent or model", "Caisson's own agent on model", "", "Who does the stages of tasks: agent, a list of a program and its arguments ({prompt} where the prompt goes, else it is the last), or model, as provider/model."}, read: text(readRole(func(c *Config) *TaskRole { return &c.Tasks.Executor }))},
		{Setting: Setting{"tasks.roles.reviewer", "agent or model", "as tasks.roles.executor", "", "Who reviews what was done for tasks."}, read: text(readRole(func(c *Config) *TaskRole { return &c.Tasks.Reviewer }))},
		{Setting: Setting{"state_dir", "absolute directory", "$XDG_STATE_HOME/caisson", "", "Where the ledger, workspaces and sandboxes are."}, read: text(readStateDir)},
	})
}

// number is a setting that is a number, of which smaller is tighter.
type number struct {
	key, kind, shown, doc string
	parse                 func(strictyaml.Value) (int64, error)
	least, most           int64
	at                    func(*Config) *int64
	unbounded             bool // 0 is allowed and means no bound
}

func (n number) setting() setting {
	read := func(_ reader, c *Config, v strictyaml.Value) error {
		value, err := n.parse(v)
		if err != nil {
			return err
		}
		if value == 0 && n.unbounded {
			*n.at(c) = 0
			return nil
		}
		if value < n.least || value > n.most {
			return limitInvalid(v, "is out of range: at least %s, at most %s", n.show(n.least), n.show(n.most))
		}
		*n.at(c) = value
		return nil
	}
	tighten := func(before, after *Config) string {
		old, next := *n.at(before), *n.at(after)
		if next == old || n.unbounded && old == 0 || next < old && !(n.unbounded && next == 0) {
			return ""
		}
		if n.unbounded && next == 0 {
			return "would lift the bound of " + n.show(old)
		}
		return fmt.Sprintf("would raise %s to %s", n.show(old), n.show(next))
	}
	return setting{Setting: Setting{Key: n.key, Type: n.kind, Default: n.shown, Doc: n.doc}, read: read, tighten: tighten}
}

func (n number) show(value int64) string {
	switch n.kind {
	case "time":
		return time.Duration(value).String()
	case "money":
		return fmt.Sprintf("%d.%06d USD", value/1e6, value%1e6)
	case "size":
		for _, unit := range []string{"TiB", "GiB", "MiB", "KiB"} {
			if value >= sizeUnits[unit] && value%sizeUnits[unit] == 0 {
				return fmt.Sprintf("%d%s", value/sizeUnits[unit], unit)
			}
		}
		return fmt.Sprintf("%d bytes", value)
	default:
		return fmt.Sprint(value)
	}
}

// The ranges of limits keep out what no machine has and what no program can
// start with: they are slips, not wishes.
func limitNumbers() []number {
	return []number{
		{"limits.memory", "size", "4GiB", "Memory of all processes of a sandbox together.", sizeOf, 16 << 20, 1 << 44, func(c *Config) *int64 { return &c.Limits.Memory }, false},
		{"limits.pids", "number", "512", "Processes and threads of a sandbox.", countOf, 8, 1 << 22, func(c *Config) *int64 { return &c.Limits.Pids }, false},
		{"limits.cpus", "number", "the host's less one, at least 1", "Processors of a sandbox.", countOf, 1, 4096, func(c *Config) *int64 { return &c.Limits.CPUs }, false},
		{"limits.files", "number", "4096", "Open files of each process.", countOf, 32, 1 << 20, func(c *Config) *int64 { return &c.Limits.Files }, false},
		{"limits.size", "size", "16GiB", "Size of one file.", sizeOf, 1 << 20, 1 << 50, func(c *Config) *int64 { return &c.Limits.Size }, false},
		{"limits.tmp", "size", "1GiB", "Size of the private /tmp, and of /var/tmp and /dev/shm: each at most a third of limits.memory less 16 MiB, so that files alone do not use it up.", sizeOf, 1 << 20, 1 << 44, func(c *Config) *int64 { return &c.Limits.Tmp }, false},
	}
}

func floorNumbers() []number {
	return []number{
		{"floor.disk", "size", "2GiB", "What must stay free on the disk of the state directory, or no run begins and no long output is kept; 0: nothing.", sizeOf, 1, 1 << 50, func(c *Config) *int64 { return &c.Floors.Disk }, true},
		{"floor.memory", "size", "512MiB", "Memory that must be available on the host, or no run begins; 0: none.", sizeOf, 1, 1 << 44, func(c *Config) *int64 { return &c.Floors.Memory }, true},
		{"trash.days", "number", "14", "Days for which a removed workspace is kept, unless the disk comes to its floor before.", countOf, 1, 36500, func(c *Config) *int64 { return &c.TrashDays }, false},
	}
}

// floors are the user's alone: a repository could keep its own runs from
// beginning, let them fill the disk, or have what was removed go too soon.
func floors() []setting {
	out := rows(floorNumbers())
	for i := range out {
		out[i].tighten = nil
	}
	return out
}

func budgetNumbers() []number {
	const most = 1 << 50
	return []number{
		{"budget.tokens", "number", "0 (no bound)", "Tokens of a run and its children.", countOf, 1, most, func(c *Config) *int64 { return &c.Budget.Tokens }, true},
		{"budget.cost", "money", "0 USD (no bound)", "Cost of a run and its children.", costOf, 1, most, func(c *Config) *int64 { return &c.Budget.Cost }, true},
		{"budget.wall", "time", "0s (no bound)", "Running time over all lives of a run; waiting for a person does not count.", durationOf, int64(time.Second), int64(10 * 365 * 24 * time.Hour), func(c *Config) *int64 { return (*int64)(&c.Budget.Wall) }, true},
		{"budget.turns", "number", "0 (no bound)", "Turns of a run and its children.", countOf, 1, most, func(c *Config) *int64 { return &c.Budget.Turns }, true},
		{"budget.calls", "number", "0 (no bound)", "Calls of a run and its children.", countOf, 1, most, func(c *Config) *int64 { return &c.Budget.Calls }, true},
		{"budget.output", "size", "0 (no bound)", "Output of all calls of a run and its children.", sizeOf, 1, most, func(c *Config) *int64 { return &c.Budget.Output }, true},
	}
}

func reviewNumbers() []number {
	year := int64(365 * 24 * time.Hour)
	return []number{
		{"review.expire", "time", "24h", "How long a review can be decided.", durationOf, int64(time.Second), year, func(c *Config) *int64 { return (*int64)(&c.Review.Expire) }, false},
		{"review.use_for", "time", "24h", "How long an approval can be used; then it is asked again.", durationOf, int64(time.Second), year, func(c *Config) *int64 { return (*int64)(&c.Review.UseFor) }, false},
		{"review.park_after", "time", "30s", "How long a run waits for reviews before it is parked.", durationOf, int64(time.Millisecond), year, func(c *Config) *int64 { return (*int64)(&c.Review.ParkAfter) }, false},
	}
}

func numbers() []number {
	return slices.Concat(limitNumbers(), floorNumbers(), budgetNumbers(), reviewNumbers())
}

func rows(numbers []number) []setting {
	out := make([]setting, len(numbers))
	for i, n := range numbers {
		out[i] = n.setting()
	}
	return out
}

func tightenPreset(before, after *Config) string {
	// Supervised and unattended are both stricter than sandboxed in one way, and
	// neither than the other in all.
	if before.Preset == after.Preset || before.Preset == "sandboxed" {
		return ""
	}
	return fmt.Sprintf("%s does not only tighten %s", after.Preset, before.Preset)
}

// tightenRequire adds: what the user requires is required still.
func tightenRequire(before, after *Config) string {
	after.Require = union(before.Require, after.Require)
	return ""
}

// tightenHide adds: what the user hides is hidden still.
func tightenHide(before, after *Config) string {
	after.Hide = union(before.Hide, after.Hide)
	return ""
}

func tightenOnUnknown(before, after *Config) string {
	if after.OnUnknown == "tell" && before.OnUnknown != "tell" {
		return "tell would leave out a question to a person"
	}
	return ""
}

func tightenInstructions(before, after *Config) string {
	for _, file := range after.Instructions {
		if !localPath(file) {
			return fmt.Sprintf("%q is not a file of the repository", file)
		}
	}
	after.Instructions = union(before.Instructions, after.Instructions)
	return ""
}

func union[T comparable](a, b []T) []T {
	out := slices.Clone(a)
	for _, item := range b {
		if !slices.Contains(out, item) {
			out = append(out, item)
		}
	}
	return out
}

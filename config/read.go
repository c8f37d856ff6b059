package config

import (
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/glob"
	"github.com/caisson-run/caisson/internal/strictyaml"
)

var (
	modelText = regexp.MustCompile(`^[A-Za-z0-9_.-]+/[^\s/][^\s]*$`)
	envText   = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

func oneOf(v strictyaml.Value, words ...string) (string, error) {
	text, err := v.String()
	if err == nil && !slices.Contains(words, text) {
		err = v.Errorf("must be one of %s, not %q", strings.Join(words, ", "), text)
	}
	return text, err
}

// listOf reads strings that may not repeat. An empty list is none of them.
func listOf(v strictyaml.Value, check func(item strictyaml.Value, text string) error) ([]string, error) {
	items, err := v.List()
	if err != nil {
		return nil, err
	}
	out := []string{}
	for _, item := range items {
		text, err := item.String()
		if err != nil {
			return nil, err
		}
		if slices.Contains(out, text) {
			return nil, item.Errorf("%q is there twice", text)
		}
		if err := check(item, text); err != nil {
			return nil, err
		}
		out = append(out, text)
	}
	return out, nil
}

func readModel(c *Config, v strictyaml.Value) (err error) {
	if c.Model, err = v.String(); err == nil && !modelText.MatchString(c.Model) {
		err = v.Errorf("%q is not of the form provider/model", c.Model)
	}
	return err
}

func readEngine(r reader, c *Config, v strictyaml.Value) error {
	name := func(v strictyaml.Value, system string) (string, error) {
		text, err := v.String()
		known := caisson.EngineNames(system)
		switch {
		case err != nil:
			return "", err
		case text == "none":
			return "", v.Errorf("there is no way to run without a boundary; the engines are %s", strings.Join(known, ", "))
		case slices.Contains(known, text):
			return text, nil
		case slices.Contains(caisson.EngineNames(""), text):
			return "", v.Errorf("the engine %s is not for %s, where there are %s", text, system, strings.Join(known, ", "))
		}
		return "", v.Errorf("there is no engine %q; there are %s", text, strings.Join(known, ", "))
	}
	if !v.IsMap() {
		text, err := name(v, r.system)
		c.Engine = text
		return err
	}
	fields, err := v.Fields("linux", "darwin", "windows")
	if err != nil {
		return err
	}
	for _, f := range fields {
		text, err := name(f.Value, f.Name)
		if err != nil {
			return err
		}
		if f.Name == r.system {
			c.Engine = text
		}
	}
	return nil
}

func readPreset(c *Config, v strictyaml.Value) (err error) {
	c.Preset, err = oneOf(v, "supervised", "sandboxed", "unattended")
	return err
}

func readRequire(c *Config, v strictyaml.Value) error {
	c.Require = nil
	_, err := listOf(v, func(item strictyaml.Value, text string) error {
		if !slices.Contains(caisson.Controls(), caisson.Control(text)) {
			return item.Errorf("there is no control %q; there are %v", text, caisson.Controls())
		}
		c.Require = append(c.Require, caisson.Control(text))
		return nil
	})
	return err
}

func readEnv(c *Config, v strictyaml.Value) (err error) {
	c.Env, err = listOf(v, func(item strictyaml.Value, text string) error {
		if !envText.MatchString(text) {
			return item.Errorf("%q is not the name of a variable; its value is taken from your environment", text)
		}
		return nil
	})
	return err
}

func readCaches(c *Config, v strictyaml.Value) (err error) {
	c.Caches, err = listOf(v, func(item strictyaml.Value, text string) error {
		_, err := oneOf(item, "go", "npm", "pip", "cargo")
		return err
	})
	return err
}

// maxHide is how many patterns a file may name: each is matched against every path.
const maxHide = 128

func readHide(c *Config, v strictyaml.Value) (err error) {
	c.Hide, err = listOf(v, func(item strictyaml.Value, text string) error {
		if _, err := glob.Beneath(text); err != nil {
			return item.Errorf("%v", err)
		}
		return nil
	})
	if err == nil && len(c.Hide) > maxHide {
		err = v.Errorf("%d patterns, more than %d", len(c.Hide), maxHide)
	}
	return err
}

func readWorkspaceMode(c *Config, v strictyaml.Value) error {
	text, err := v.Text()
	if err != nil {
		return err
	}
	switch mode := caisson.WorkspaceMode(text); mode {
	case caisson.WorkspaceWorktree, caisson.WorkspaceClone:
		c.WorkspaceMode = mode
		return nil
	}
	return v.Errorf("a workspace is a worktree or a clone, not %q", text)
}

func readPtrace(c *Config, v strictyaml.Value) (err error) {
	c.Ptrace, err = v.Bool()
	return err
}

func readMounts(c *Config, v strictyaml.Value) error {
	items, err := v.List()
	if err != nil {
		return err
	}
	c.Mounts = nil
	for _, item := range items {
		mount, err := readMount(item)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(c.Mounts, func(m caisson.Mount) bool { return m.Target == mount.Target }) {
			return item.Errorf("a second mount at %s", mount.Target)
		}
		c.Mounts = append(c.Mounts, mount)
	}
	return nil
}

func readMount(v strictyaml.Value) (m caisson.Mount, err error) {
	fields, err := v.Fields("source", "target", "write")
	if err != nil {
		return m, err
	}
	for _, f := range fields {
		switch f.Name {
		case "source":
			m.Source, err = absolute(f.Value)
		case "target":
			m.Target, err = absolute(f.Value)
		case "write":
			m.Write, err = f.Value.Bool()
		}
		if err != nil {
			return m, err
		}
	}
	if m.Source == "" {
		return m, v.Errorf("a mount without a source")
	}
	if m.Target == "" {
		m.Target = m.Source
	}
	if m.Target == "/" {
		return m, v.Errorf("nothing can be mounted at /")
	}
	return m, nil
}

func absolute(v strictyaml.Value) (string, error) {
	text, err := v.String()
	if err == nil && (!path.IsAbs(text) || path.Clean(text) != text || !plain(text)) {
		err = v.Errorf("%q is not a clean absolute path", text)
	}
	return text, err
}

func readOnUnknown(c *Config, v strictyaml.Value) (err error) {
	c.OnUnknown, err = oneOf(v, "ask", "tell")
	return err
}

func readPrices(c *Config, v strictyaml.Value) error {
	models, err := v.Fields()
	if err != nil {
		return err
	}
	c.Prices = maps.Clone(c.Prices)
	for _, m := range models {
		if !modelText.MatchString(m.Name) {
			return m.Value.Errorf("%q is not of the form provider/model", m.Name)
		}
		fields, err := m.Value.Fields("input", "output", "cache_read", "cache_write")
		if err != nil {
			return err
		}
		price, err := readPrice(m.Value, fields)
		if err != nil {
			return err
		}
		c.Prices[m.Name] = price
	}
	return nil
}

// readPrice wants input and output; what a cache costs is the input's price
// where nothing is said, so that a cost is never guessed too low.
func readPrice(v strictyaml.Value, fields []strictyaml.Field) (caisson.Price, error) {
	given := map[string]int64{}
	for _, f := range fields {
		cost, err := costOf(f.Value)
		if err != nil {
			return caisson.Price{}, err
		}
		if cost < 0 || cost > 1e12 {
			return caisson.Price{}, limitInvalid(f.Value, "is out of range: 0 USD to 1000000 USD per million tokens")
		}
		given[f.Name] = cost
	}
	price := caisson.Price{Input: given["input"], Output: given["output"], CacheRead: given["input"], CacheWrite: given["input"]}
	for name, at := range map[string]*int64{"cache_read": &price.CacheRead, "cache_write": &price.CacheWrite} {
		if cost, ok := given[name]; ok {
			*at = cost
		}
	}
	for _, name := range []string{"input", "output"} {
		if _, ok := given[name]; !ok {
			return price, v.Errorf("the price of %s is missing", name)
		}
	}
	return price, nil
}

func readInstructions(c *Config, v strictyaml.Value) (err error) {
	c.Instructions, err = listOf(v, func(item strictyaml.Value, text string) error {
		if !plain(text) || path.Clean(text) != text || !path.IsAbs(text) && !localPath(text) {
			return item.Errorf("%q is neither a clean absolute path nor one inside the repository", text)
		}
		return nil
	})
	return err
}

// localPath tells whether a path stays below where it starts, links aside.
func localPath(p string) bool {
	return p != "" && !path.IsAbs(p) && path.Clean(p) == p && p != ".." && p != "." && !strings.HasPrefix(p, "../") && !strings.Contains(p, `\`)
}

func readStateDir(c *Config, v strictyaml.Value) (err error) {
	c.StateDir, err = absolute(v)
	return err
}

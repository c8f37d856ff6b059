package config

import (
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/caisson-run/caisson/internal/strictyaml"
)

// Login is a file in the person's home that an agent keeps a login in.
type Login struct {
	File    string   // relative to the home
	Expires string   // dotted keys that lead to the time at which it ends; may be empty
	Keys    []string // at its top, for when the person has none; may be empty
}

// maxLogins bounds what is done before each run begins.
const maxLogins = 16

func readLogins(c *Config, v strictyaml.Value) error {
	items, err := v.List()
	if err != nil {
		return err
	}
	if len(items) > maxLogins {
		return v.Errorf("%d files; at most %d", len(items), maxLogins)
	}
	c.Logins = nil
	for _, item := range items {
		login, err := readLogin(item)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(c.Logins, func(other Login) bool { return other.File == login.File }) {
			return item.Errorf("%q is there twice", login.File)
		}
		c.Logins = append(c.Logins, login)
	}
	return nil
}

func readLogin(v strictyaml.Value) (Login, error) {
	var out Login
	fields, err := v.Fields("file", "expires", "keys")
	if err != nil {
		return out, err
	}
	for _, f := range fields {
		switch f.Name {
		case "file":
			if out.File, err = f.Value.String(); err == nil && !homePath(out.File) {
				err = f.Value.Errorf("%q is not a path in your home: relative, without .. and what could be left out", out.File)
			}
		case "expires":
			if out.Expires, err = f.Value.String(); err == nil && slices.Contains(strings.Split(out.Expires, "."), "") {
				err = f.Value.Errorf("%q is not keys with dots between them", out.Expires)
			}
		case "keys":
			if out.Keys, err = f.Value.Strings(); err == nil && len(slices.Compact(slices.Sorted(slices.Values(out.Keys)))) != len(out.Keys) {
				err = f.Value.Errorf("a key is there twice")
			}
		}
		if err != nil {
			return out, err
		}
	}
	if out.File == "" {
		return out, v.Errorf("a login has a file")
	}
	return out, nil
}

// homePath tells whether a path names something below a home in the one way in
// which it can be named.
func homePath(path string) bool {
	return path != "." && len(path) < 1024 && filepath.IsLocal(path) && filepath.Clean(path) == path && !strings.ContainsFunc(path, unicode.IsControl)
}

func loginTexts(all []Login) []string {
	out := make([]string, len(all))
	for i, l := range all {
		out[i] = l.File
	}
	return out
}

package workspace

import (
	"bytes"
	"slices"
	"strings"
)

// setting is one value of git's configuration.
type setting struct {
	key   string // section and name in lower case
	value string
	own   bool // of the system or the person, not of the repository
}

// parseSettings reads `git config --list -z --show-scope`, without what our own
// command line set.
func parseSettings(out []byte) []setting {
	fields := bytes.Split(out, []byte{0})
	var all []setting
	for i := 0; i+1 < len(fields); i += 2 {
		key, value, has := strings.Cut(string(fields[i+1]), "\n")
		if !has {
			value = "true"
		}
		scope := string(fields[i])
		if scope == "command" {
			continue
		}
		all = append(all, setting{key, value, scope == "system" || scope == "global"})
	}
	return all
}

// last returns the value that holds for a key.
func last(all []setting, key string) string {
	for _, s := range slices.Backward(all) {
		if s.key == key {
			return s.value
		}
	}
	return ""
}

// truth reads a boolean as git does.
func truth(value string) bool {
	switch strings.ToLower(value) {
	case "true", "yes", "on", "1":
		return true
	}
	return false
}

// plain are settings that only say how content and names are written: they
// name no program and no file, so they may come from the repository too.
var plain = [...]string{
	"user.name", "user.email", "author.name", "author.email", "committer.name", "committer.email",
	"core.autocrlf", "core.eol", "core.safecrlf", "core.ignorecase", "core.symlinks", "core.filemode",
	"core.precomposeunicode", "core.bigfilethreshold",
	"core.logallrefupdates", "core.sharedrepository", "i18n.commitencoding",
}

// forHost chooses what the host's git may know: plain settings of anyone, and
// filters and signing of the person's own configuration only.
func forHost(s setting) bool {
	if slices.Contains(plain[:], s.key) {
		return true
	}
	if !s.own {
		return false
	}
	return strings.HasPrefix(s.key, "core.protect") || strings.HasPrefix(s.key, "filter.") || strings.HasPrefix(s.key, "gpg.") ||
		s.key == "user.signingkey" || s.key == "commit.gpgsign"
}

// forBox chooses what a shadow is given. Programs named there run inside the
// box only. What may hold a secret (addresses, headers, helpers) stays out.
func forBox(s setting) bool {
	if slices.Contains(plain[:], s.key) {
		return s.key != "core.sharedrepository"
	}
	if s.own && strings.HasPrefix(s.key, "core.protect") {
		return true
	}
	section, _, _ := strings.Cut(s.key, ".")
	switch section {
	case "filter", "merge", "diff", "rebase", "rerere":
		return true
	}
	switch s.key {
	case "pull.rebase", "core.whitespace", "core.commentchar", "core.abbrev", "commit.cleanup", "commit.verbose":
		return true
	case "core.hookspath":
		return !s.own && relative(s.value)
	}
	return false
}

// relative tells whether a path stays below where it is taken from.
func relative(path string) bool {
	return path != "" && path[0] != '/' && path[0] != '~' && !slices.Contains(strings.Split(path, "/"), "..")
}

// writeSettings writes settings in the form of a git configuration file.
func writeSettings(b *bytes.Buffer, all []setting) {
	quote := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\t", `\t`, "\b", `\b`)
	subsection := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	for _, s := range all {
		section, rest, ok := strings.Cut(s.key, ".")
		if !ok {
			continue
		}
		b.WriteString("[" + section)
		name := rest
		if dot := strings.LastIndexByte(rest, '.'); dot >= 0 {
			b.WriteString(` "` + subsection.Replace(rest[:dot]) + `"`)
			name = rest[dot+1:]
		}
		b.WriteString("]\n\t" + name + ` = "` + quote.Replace(s.value) + "\"\n")
	}
}

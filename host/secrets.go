package host

import (
	"cmp"
	"os"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/config"
)

// minSecret is the length below which a value is too common to be taken out
// wherever it stands.
const minSecret = 8

// redact returns what takes the values of the person's keys and tokens out of
// texts before they are written: what is called one in their environment, and
// what their config names as a credential. Nil where there are none.
func redact(c config.Config) func(string) string {
	return redactEnv(os.Environ(), c)
}

// hideSecrets is redact with the person's config as it is now; where that cannot
// be read, as it was when this process began.
func (h *Host) hideSecrets(text string) string {
	c, err := h.configWith(repoFiles{})
	if err != nil {
		c = h.Config
	}
	if hide := redact(c); hide != nil {
		return hide(text)
	}
	return text
}

func redactEnv(environ []string, c config.Config) func(string) string {
	type secret struct{ name, value string }
	var all []secret
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		named := slices.ContainsFunc(c.Credentials, func(one config.Credential) bool { return one.Env == name })
		if (named || callsSecret(name)) && len(value) >= minSecret {
			all = append(all, secret{name, value})
		}
	}
	if len(all) == 0 {
		return nil
	}
	// The longest first: one may be the beginning of another, whose rest would stay.
	slices.SortStableFunc(all, func(a, b secret) int { return cmp.Compare(len(b.value), len(a.value)) })
	pairs := make([]string, 0, 2*len(all))
	for _, s := range all {
		pairs = append(pairs, s.value, "["+s.name+"]")
	}
	return strings.NewReplacer(pairs...).Replace
}

// callsSecret tells whether a variable's name says that its value is a secret.
func callsSecret(name string) bool {
	name = strings.ToUpper(name)
	words := strings.Split(name, "_")
	switch last := words[len(words)-1]; last {
	case "KEY", "PASS", "PASSWD", "PASSPHRASE", "PAT", "APIKEY":
		return true
	case "PWD":
		return len(words) > 1 // else where one is
	default:
		return strings.HasSuffix(last, "TOKEN") || strings.HasSuffix(last, "SECRET") || strings.HasSuffix(last, "PASSWORD")
	}
}

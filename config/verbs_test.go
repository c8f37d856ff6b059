package config

import (
	"strings"
	"testing"
)

// What a value may be given to is not refused: as an argument behind fixed text, as
// a part of one, or left out with the option that it is of.
func TestVerbsThatAreTaken(t *testing.T) {
	for _, text := range []string{
		`run: [sh, -c, 'echo "$1"', sh, "{t}"], input: {t: string}`,
		`run: [env, "X={t}", prog], input: {t: string}`,
		`run: [x, "--t={t}"], input: {t: {optional: true}}`,
		`run: [x, [-t, "{t}"]], input: {t: {optional: true}}`,
		`run: [x, -t, "{t}"], input: {t: {default: a}}`,
		`run: [x, "-t{{}}", "{t}"], input: {t: {optional: true, type: integer, max: 3}}`,
		`run: [x, --, "{t}"], input: {t: {optional: true}}`,
		`run: [x, "{t}"], input: {t: {max: 3, type: integer}}`,
		`run: [x, "{t}"], input: {t: {optional: true, default: ""}}`,
	} {
		want := !strings.Contains(text, `"-t{{}}"`)
		if _, err := Load(user("verbs: {a.b: {"+text+"}}"), File{}); (err == nil) != want {
			t.Errorf("%s: %v", text, err)
		}
	}
}

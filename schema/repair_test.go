package schema

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"testing"
)

// added is what a mended text may have after the part it shares with its input.
var added = regexp.MustCompile(`^(rue|ue|alse|lse|se|ull|ll|e|l)?"?[}\]]*$`)

func checkRepair(t *testing.T, in []byte) {
	t.Helper()
	if json.Valid(in) {
		return
	}
	mended, _, err := repair(bytes.Clone(in))
	if err != nil {
		return
	}
	if !json.Valid(mended) {
		t.Fatalf("%q was mended to %q, which is not JSON", in, mended)
	}
	if len(bytes.TrimSpace(in)) == 0 {
		return
	}
	n := 0
	for n < len(in) && n < len(mended) && in[n] == mended[n] {
		n++
	}
	if !added.Match(mended[n:]) {
		t.Fatalf("%q was mended to %q: after the first %d bytes it is something else", in, mended, n)
	}
}

func TestRepair(t *testing.T) {
	for _, c := range []struct {
		in, want string
		cut      bool
	}{
		{``, `{}`, false},
		{`{`, `{}`, true},
		{`{"a"`, `{}`, true},
		{`{"a":`, `{}`, true},
		{`{"a":1,`, `{"a":1}`, true},
		{`{"a":-`, `{}`, true},
		{`{"a":1.`, `{}`, true},
		{`{"a":1e5`, `{"a":1e5}`, true},
		{`{"a":tr`, `{"a":true}`, false},
		{`{"a":n`, `{"a":null}`, false},
		{`{"a":[`, `{"a":[]}`, true},
		{`{"a":[1,2],"b":{"c":[{"d":"x"`, `{"a":[1,2],"b":{"c":[{"d":"x"}]}}`, false},
		{`{"a":["x",]}`, `{"a":["x"]}`, false},
		{`{"a":["x",]`, `{"a":["x"]}`, false},
		{`{"a":"x\`, `{"a":"x"}`, true},
		{`{"a":"x\u00`, `{"a":"x"}`, true},
		{`{"a":"x\ud83d`, `{"a":"x"}`, true},
		{`{"a":"x\ud83d\ude0`, `{"a":"x"}`, true},
		{"{\"a\":\"x\xc3", `{"a":"x"}`, true},
		{"{\"a\":1}\n```", `{"a":1}`, false},
	} {
		mended, cut, err := repair([]byte(c.in))
		if err != nil || string(mended) != c.want || cut != c.cut {
			t.Errorf("%q: got %q cut=%t %v, want %q cut=%t", c.in, mended, cut, err, c.want, c.cut)
		}
		checkRepair(t, []byte(c.in))
	}
	for _, in := range []string{
		`{"a":1 "b":2}`, `{a:1}`, `{"a":1]`, `{"a":1}x`, `{"a":1}{"a":2}`, `{"a":,}`, `{,}`, `{"a":[,1]}`,
		`{"a":01}`, `{"a":tru,"b":1}`, "{\"a\":\"x\ny\"", `[1`, `"x`, `12`, `{"a":1,}[`, `{"a":1,]`, `{"a":1}: 2`,
		`{"a":` + strings.Repeat("[", 600),
	} {
		if mended, _, err := repair([]byte(in)); err == nil {
			t.Errorf("%q was mended to %q", in, mended)
		}
	}
}

func FuzzRepair(f *testing.F) {
	f.Add([]byte(`{"a":[1,{"b":"x\u00e9\ud83d\ude00"},true,null,-1.5e3],"c":{}}`), 20)
	f.Add([]byte(`{"a":"x",}`), 10)
	f.Add([]byte(`{"a":1}{"b":2}`), 9)
	f.Add([]byte(`{"a":[[[],],],}`), 15)
	f.Fuzz(func(t *testing.T, in []byte, cut int) {
		checkRepair(t, in)
		if cut < 0 || cut >= len(in) {
			return
		}
		checkRepair(t, in[:cut])
		// Every cut of an object can be completed.
		if trimmed := bytes.TrimSpace(in[:cut]); json.Valid(in) && len(trimmed) > 0 && trimmed[0] == '{' && !json.Valid(in[:cut]) {
			if _, _, err := repair(in[:cut]); err != nil && !strings.Contains(err.Error(), "deeper") {
				t.Fatalf("%q, a cut of %q, was not mended: %v", in[:cut], in, err)
			}
		}
	})
}

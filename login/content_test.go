package login

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// now is when the copies in these tests are looked at.
var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestRead(t *testing.T) {
	at := func(offset time.Duration) string { return fmt.Sprint(now.Add(offset).Unix()) }
	for raw, want := range map[string]string{
		`{"a":{"exp":` + at(time.Hour) + `}}`:                      "",
		`{"a":{"exp":` + at(time.Hour) + `123}}`:                   "",
		`{"a":{"exp":` + at(time.Hour) + `.75}}`:                   "",
		`{"a":{"exp":"2026-03-01T14:00:00.5+01:00"}}`:              "",
		` {"a":{"exp":1}} `:                                        "",
		"":                                                         "is no JSON",
		`{"a":`:                                                    "is no JSON",
		`{"a":{"exp":1}} {}`:                                       "is no JSON",
		"{\"a\":{\"exp\":1},\"b\":\"\xff\"}":                       "is no JSON",
		`[{"a":{"exp":1}}]`:                                        "is no JSON object",
		`null`:                                                     "is no JSON object",
		`{"a":{"exp":1},"a":{"exp":2}}`:                            "has a key twice",
		`{"a":{"exp":1,"x":[{"y":1,"\u0079":2}]}}`:                 "has a key twice",
		`{"a":{"exp":1},"b":` + nested(maxDepth-1) + `}`:           "",
		`{"a":{"exp":1},"b":` + nested(maxDepth) + `}`:             "is nested too deep",
		`{"a":{"exp":1},"b":` + nested(300_000) + `}`:              "is no JSON",
		`{"a":{"exp":1},"b":"` + strings.Repeat("x", 1<<20) + `"}`: "is larger than 1 MiB",
		`{"a":{}}`:                                                 "has no time at a.exp",
		`{"a":[1]}`:                                                "has no time at a.exp",
		`{"b":{"exp":1}}`:                                          "has no time at a.exp",
		`{"a.exp":1}`:                                              "has no time at a.exp",
		`{"A":{"EXP":1}}`:                                          "has no time at a.exp",
		`{"a":{"exp":null}}`:                                       "has no time at a.exp",
		`{"a":{"exp":-5}}`:                                         "has no time at a.exp",
		`{"a":{"exp":0}}`:                                          "has no time at a.exp",
		`{"a":{"exp":1e999}}`:                                      "has no time at a.exp",
		`{"a":{"exp":1e300}}`:                                      "has no time at a.exp",
		`{"a":{"exp":"tomorrow"}}`:                                 "has no time at a.exp",
		`{"a":{"exp":"` + at(time.Hour) + `"}}`:                    "has no time at a.exp",
		`{"a":{"exp":` + at(farthest-time.Minute) + `}}`:           "",
		`{"a":{"exp":` + at(farthest+time.Minute) + `}}`:           "expires more than ten years from now",
		`{"a":{"exp":"9999-12-31T23:59:59Z"}}`:                     "expires more than ten years from now",
		`{"a":{"exp":9e15}}`:                                       "expires more than ten years from now",
	} {
		if c := read([]byte(raw), "a.exp", now); c.why != want || c.valid() != (want == "") || !c.there() {
			t.Errorf("%.60s: %q, want %q", raw, c.why, want)
		}
	}
	seconds, millis := read([]byte(`{"e":1772370000}`), "e", now), read([]byte(`{"e":1772370000000}`), "e", now)
	if !seconds.until.Equal(millis.until) || !seconds.until.Equal(time.Date(2026, 3, 1, 13, 0, 0, 0, time.UTC)) {
		t.Errorf("%v, %v", seconds.until, millis.until)
	}
	if c := read([]byte(`{"x":1}`), "", now); !c.valid() || c.dated {
		t.Errorf("one that need not be dated: %+v", c)
	}
}

func nested(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }

func TestDecide(t *testing.T) {
	const expires = "e"
	copyOf := func(raw, expires string) content {
		if raw == "" {
			return content{}
		}
		return read([]byte(raw), expires, now)
	}
	early, late := `{"e":1772370000,"k":"a"}`, `{"e":1772373600,"k":"b"}`
	for name, c := range map[string]struct {
		theirs, ours string
		keys         []string
		undated      bool
		want         Way
		problem      bool
	}{
		"neither":                      {},
		"only yours":                   {theirs: early, want: In},
		"yours is newer":               {theirs: late, ours: early, want: In},
		"theirs is newer":              {theirs: early, ours: late, want: Out},
		"the same":                     {theirs: early, ours: early},
		"same time":                    {theirs: early, ours: `{"e":1772370000,"k":"b"}`},
		"inside is broken":             {theirs: early, ours: "{", want: In},
		"yours is broken":              {theirs: "{", ours: late, problem: true},
		"yours is broken, none inside": {theirs: "{", problem: true},
		"both are broken":              {theirs: "{", ours: "[", problem: true},
		"only inside, broken":          {ours: "{", keys: []string{"e", "k"}, problem: true},
		"only inside, empty":           {ours: " ", keys: []string{"e", "k"}, problem: true},
		"only inside":                  {ours: late, problem: true},
		"only inside, keys":            {ours: late, keys: []string{"k", "e"}, want: Out},
		"only inside, too few keys":    {ours: late, keys: []string{"k", "e", "x"}, problem: true},
		"only inside, too many keys":   {ours: late, keys: []string{"e"}, problem: true},
		"a key more":                   {theirs: early, ours: `{"e":1772373600,"k":"b","x":1}`, problem: true},
		"a key less":                   {theirs: early, ours: `{"e":1772373600}`, problem: true},
		"another key":                  {theirs: early, ours: `{"e":1772373600,"K":"b"}`, problem: true},
		"another kind":                 {theirs: early, ours: `{"e":1772373600,"k":["b"]}`, problem: true},
		"null made a string":           {theirs: `{"e":1772370000,"k":null}`, ours: late, problem: true},
		"another kind of time":         {theirs: early, ours: `{"e":"2026-03-01T14:00:00Z","k":"b"}`, problem: true},
		"the config's keys of no use":  {theirs: early, ours: `{"e":1772373600,"x":"b"}`, keys: []string{"e", "x"}, problem: true},
		"undated, differ":              {theirs: `{"k":"a"}`, ours: `{"k":"b"}`, undated: true},
		"undated, none inside":         {theirs: `{"k":"a"}`, undated: true, want: In},
		"undated, only inside":         {ours: `{"k":"a"}`, keys: []string{"k"}, undated: true, want: Out},
	} {
		f := File{Path: "f", Expires: expires, Keys: c.keys}
		if c.undated {
			f.Expires = ""
		}
		theirs, ours := copyOf(c.theirs, f.Expires), copyOf(c.ours, f.Expires)
		to, why, problem := decide(theirs, ours, f, Both)
		if to != c.want || problem != c.problem || (to == 0) == (why == "") {
			t.Errorf("%s: %v %q %v", name, to, why, problem)
		}
		for _, way := range []Way{In, Out} {
			if to, _, _ := decide(theirs, ours, f, way); to != c.want&way {
				t.Errorf("%s, only %v: %v", name, way, to)
			}
		}
	}
	if _, _, problem := decide(copyOf("", expires), copyOf(late, expires), File{Expires: expires}, In); problem {
		t.Error("a problem of the way out is told on the way in")
	}
}

// Nothing that a copy says is in what is said of it.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"a":{"exp":1772370000},"b":"SECRET"}`))
	f.Add([]byte(`{"SECRET`))
	known := map[string]bool{
		"": true, "is no JSON": true, "is no JSON object": true, "has a key twice": true, "is nested too deep": true, "is larger than 1 MiB": true,
		"has no time at a.exp": true, "expires more than ten years from now": true,
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		c := read(raw, "a.exp", now)
		if !known[c.why] || !c.there() || c.valid() && (!c.dated || len(c.keys) == 0) {
			t.Errorf("%+v", c)
		}
	})
}

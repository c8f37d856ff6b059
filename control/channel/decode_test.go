package channel_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/control/channel"
)

const good = `{"version":1,"id":"0000000000000001","generation":2,"epoch":3,"wait":10000,"verb":"ask","input":{"text":"marker"}}`

func TestDecode(t *testing.T) {
	r, err := channel.Decode([]byte(" "+good+"\n"), id(1))
	if err != nil || r.Version != 1 || r.ID != id(1) || r.Generation != 2 || r.Epoch != 3 || r.Wait != 10000 || r.Verb != "ask" || string(r.Input) != `{"text":"marker"}` {
		t.Fatalf("%+v, %v", r, err)
	}
	change := func(from, to string) string {
		if !strings.Contains(good, from) {
			t.Fatalf("%s is not in it", from)
		}
		return strings.Replace(good, from, to, 1)
	}
	for raw, want := range map[string]string{
		"":                         "not one JSON text",
		"[]":                       "not an object",
		`"marker"`:                 "not an object",
		good + "x":                 "not one JSON text",
		good + good:                "not one JSON text",
		good[:60]:                  "not one JSON text",
		change("ask", "a\xff"):     "not UTF-8",
		change(`"version":1,`, ``): "version is not there",
		change(`"input":{"text":"marker"}`, `"inputs":{}`):                        "a field that is none",
		change(`"verb":"ask"`, `"verb":"ask","marker":1`):                         "a field that is none",
		change(`"verb"`, `"Verb"`):                                                "a field that is none",
		change(`"version":1`, `"version":2`):                                      "version is not 1",
		change(`"version":1`, `"version":"1"`):                                    "version is not a whole number",
		change(`"version":1`, `"version":1.0`):                                    "version is not a whole number",
		change(`"version":1`, `"version":null`):                                   "version is not a whole number",
		change(`"epoch":3`, `"epoch":1e1`):                                        "epoch is not a whole number",
		change(`"epoch":3`, `"epoch":-1`):                                         "epoch is not a whole number",
		change(`"epoch":3`, `"epoch":9223372036854775808`):                        "epoch is not a whole number",
		change(`"epoch":3`, `"epoch":-0`):                                         "epoch is not a whole number, written in digits alone",
		change(`"wait":10000`, `"wait":-0`):                                       "wait is not a whole number",
		change(`"wait":10000`, `"wait":-1`):                                       "wait is not a whole number",
		change(`"generation":2`, `"generation":0`):                                "generation is not between",
		change(`"wait":10000`, `"wait":10001`):                                    "wait is not between 0 and 10000",
		change(`"0000000000000001"`, `"0000000000000002"`):                        "id is not the file's name",
		change(`"0000000000000001"`, `1`):                                         "id is not a string",
		change(`"0000000000000001"`, `null`):                                      "id is not a string",
		change(`"ask"`, `null`):                                                   "verb is not a string",
		change(`"ask"`, `""`):                                                     "verb has not between",
		change(`"ask"`, `"`+strings.Repeat("marker", 30)+`"`):                     "verb has not between",
		change(`{"text":"marker"}`, `null`):                                       "input is not an object",
		change(`{"text":"marker"}`, `["marker"]`):                                 "input is not an object",
		change(`"epoch":3`, `"epoch":3,"epoch":3`):                                "a key twice",
		change(`"epoch":3`, `"epoch":3,"\u0065poch":3`):                           "a key twice",
		change(`"marker"`, `[{"marker":1,"x":2,"marker":3}]`):                     "a key twice",
		change(`"marker"`, `[1e999]`):                                             "input has no canonical form",
		change(`"marker"`, `-1E+4000`):                                            "input has no canonical form",
		change(`"marker"`, strings.Repeat("[", 63)+strings.Repeat("]", 63)):       "it is nested deeper than 64",
		change(`"marker"`, strings.Repeat("[", 11000)+strings.Repeat("]", 11000)): "it is nested deeper than 64",
		change(`marker`, strings.Repeat("m", caisson.ControlBody)):                "larger than 65536 bytes",
	} {
		_, err := channel.Decode([]byte(raw), id(1))
		if err == nil || err.Code != caisson.CodeRequestInvalid || !strings.Contains(err.Message, want) || strings.Contains(err.Message, "marker") {
			t.Errorf("%.200s: %v, want %s", raw, err, want)
			continue
		}
		about, _, _ := strings.Cut(want, " ")
		if !strings.Contains(good, `"`+about+`":`) { // it is about the whole
			about = ""
		}
		if field, _ := err.Detail["field"].(string); field != about {
			t.Errorf("%.200s: detail %v, want the field %q", raw, err.Detail, about)
		}
	}
	for _, ok := range []string{
		change(`"marker"`, strings.Repeat("[", 62)+strings.Repeat("]", 62)), change(`"marker"`, `[{"x":1},{"x":1}]`),
		change(`{"text":"marker"}`, ` { } `), change(`"wait":10000`, `"wait": 0 `),
	} {
		if _, err := channel.Decode([]byte(ok), id(1)); err != nil {
			t.Errorf("%s: %v", ok, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	fields := []any{"version", "id", "generation", "epoch", "wait", "verb", "input"}
	f.Add([]byte(good))
	f.Add([]byte(strings.Repeat(`{"a":[`, 100)))
	f.Add([]byte(`{"version":1,"version":1}`))
	f.Add([]byte(strings.Replace(good, `"marker"`, `1e999`, 1)))
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, err := channel.Decode(raw, id(1))
		if err != nil {
			// Rule and field come from a fixed set of texts.
			if err.Code != caisson.CodeRequestInvalid || len(err.Message) > 120 || len(err.Detail) > 1 || len(err.Detail) == 1 && !slices.Contains(fields, err.Detail["field"]) {
				t.Fatalf("%+v", err)
			}
			return
		}
		if !utf8.Valid(raw) || !json.Valid(raw) || !json.Valid(r.Input) {
			t.Fatalf("%q was taken", raw)
		}
		if _, err := caisson.Canonical(raw); err != nil {
			t.Fatalf("%q was taken: %v", raw, err)
		}
		again, marshalErr := json.Marshal(r)
		if marshalErr != nil {
			t.Fatal(marshalErr)
		}
		same, err := channel.Decode(again, id(1))
		if len(again) <= caisson.ControlBody && (err != nil || fmt.Sprint(same.Version, same.ID, same.Generation, same.Epoch, same.Wait, same.Verb) != fmt.Sprint(r.Version, r.ID, r.Generation, r.Epoch, r.Wait, r.Verb)) {
			t.Fatalf("%q became %q: %v", raw, again, err)
		}
		var a, b bytes.Buffer
		if json.Compact(&a, r.Input) == nil && json.Compact(&b, same.Input) == nil && len(again) <= caisson.ControlBody && !strings.ContainsAny(a.String(), "<>&\u2028\u2029") && a.String() != b.String() {
			t.Fatalf("%q became %q", a.String(), b.String())
		}
	})
}

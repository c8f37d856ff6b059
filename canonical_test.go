package caisson_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/caisson-run/caisson"
	"pgregory.net/rapid"
)

func TestCanonical(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"order and space", `{ "b" : 1, "a" : [ true , null ] }`, `{"a":[true,null],"b":1}`},
		{"order by UTF-16", `{"\ud83d\ude00":1,"\ufb33":2}`, "{\"\U0001F600\":1,\"\ufb33\":2}"},
		{"order of nested members", `{"b":{"z":[{"n":2,"m":1}],"y":3},"a":4}`, `{"a":4,"b":{"y":3,"z":[{"m":1,"n":2}]}}`},
		{"order by what escapes say", `{"b":1,"\u0061":2}`, `{"a":2,"b":1}`},
		{"quotes and backslashes", `["\"","\\","\\\"","\\\\"]`, `["\"","\\","\\\"","\\\\"]`},
		{"numbers", `[1.0,1e2,0.000001,1e-7,1e21,-0,333333333.33333329]`, `[1,100,0.000001,1e-7,1e+21,0,333333333.3333333]`},
		{"integer of 2^53", `9007199254740992`, `"9007199254740992"`},
		{"integer under 2^53", `9007199254740991`, `9007199254740991`},
		{"escapes", `"\u0041\/\u000f\n\u2028"`, "\"A/\\u000f\\n\u2028\""},
		{"not UTF-8", "{\"a\":\"x\xff\\n\"}", `{"a":{"$base64":"eP8K"}}`},
		{"key not UTF-8", "{\"\xff\":1}", `{"$base64:/w==":1}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := caisson.Canonical([]byte(c.in))
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestCanonicalRefuses(t *testing.T) {
	deep := bytes.Repeat([]byte("["), 10_000)
	for name, in := range map[string][]byte{
		"duplicate key": []byte(`{"a":1,"a":2}`), "duplicate key behind an escape": []byte(`{"a":1,"b":2,"\u0061":3}`), "two values": []byte(`1 2`), "cut": []byte(`{"a":`),
		"empty": nil, "too large": []byte(`1e999`), "deep": deep, "not JSON": []byte(`{a:1}`), "cut and not UTF-8": []byte("\"\xff"),
	} {
		if got, err := caisson.Canonical(in); err == nil {
			t.Errorf("%s: got %s, want an error", name, got)
		}
	}
}

// TestCanonicalOfIsCanonical compares the two ways to a canonical form, of which
// one trusts what was marshalled.
func TestCanonicalOfIsCanonical(t *testing.T) {
	value := rapid.Deferred(func() *rapid.Generator[any] { return anyJSON(3) })
	rapid.Check(t, func(t *rapid.T) {
		v := value.Draw(t, "value")
		raw, err := json.MarshalIndent(v, "", "\t")
		if err != nil {
			t.Fatal(err)
		}
		want, err := caisson.Canonical(raw)
		if err != nil {
			t.Fatal(err)
		}
		got, err := caisson.CanonicalOf(v)
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("got %s (%v), want %s", got, err, want)
		}
	})
}

func TestCanonicalIsStable(t *testing.T) {
	value := rapid.Deferred(func() *rapid.Generator[any] { return anyJSON(3) })
	rapid.Check(t, func(t *rapid.T) {
		raw, err := json.Marshal(value.Draw(t, "value"))
		if err != nil {
			t.Fatal(err)
		}
		once, err := caisson.Canonical(raw)
		if err != nil {
			t.Fatal(err)
		}
		twice, err := caisson.Canonical(once)
		if err != nil || !bytes.Equal(once, twice) {
			t.Fatalf("canonical of canonical: %s, then %s, %v", once, twice, err)
		}
	})
}

func anyJSON(depth int) *rapid.Generator[any] {
	leaves := []*rapid.Generator[any]{
		rapid.String().AsAny(), rapid.Int64().AsAny(), rapid.Bool().AsAny(),
		rapid.Float64Range(-1e300, 1e300).AsAny(),
	}
	if depth == 0 {
		return rapid.OneOf(leaves...)
	}
	inner := anyJSON(depth - 1)
	return rapid.OneOf(append(leaves, rapid.SliceOfN(inner, 0, 4).AsAny(), rapid.MapOfN(rapid.String(), inner, 0, 4).AsAny())...)
}

func FuzzCanonical(f *testing.F) {
	f.Add([]byte(`{"a":[1,2.5,"x"]}`))
	f.Add([]byte("{\"\xff\":\"\\\xff\"}"))
	f.Fuzz(func(t *testing.T, in []byte) {
		once, err := caisson.Canonical(in)
		if err != nil {
			return
		}
		if twice, err := caisson.Canonical(once); err != nil || !bytes.Equal(once, twice) {
			t.Fatalf("%q: %s, then %s, %v", in, once, twice, err)
		}
	})
}

func TestBytesSurviveJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := caisson.Bytes(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes"))
		raw, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var got caisson.Bytes
		if err := json.Unmarshal(raw, &got); err != nil || got != want {
			t.Fatalf("%q came back as %q, %v", want, got, err)
		}
	})
}

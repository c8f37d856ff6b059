package plan

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/caisson-run/caisson/guest/pack"
)

// fill gives each field below v a value that no other has.
func fill(v reflect.Value, n *int) {
	*n++
	switch v.Kind() {
	case reflect.String:
		v.SetString(fmt.Sprintf("text %d\x00\xff", *n))
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(*n) * 1_000_003 * int64(1-*n%2*2)) // also negative
	case reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(*n) * 257) //nolint:gosec // small
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range 2 {
			fill(v.Index(i), n)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), n)
		}
	default:
		panic(v.Type().String())
	}
}

// A field that is forgotten in Pack does not come over.
func TestPackHasAllFields(t *testing.T) {
	for _, c := range []struct{ in, out, zero, zeroOut pack.Value }{
		{&Plan{}, &Plan{}, &Plan{}, &Plan{}}, {&Report{}, &Report{}, &Report{}, &Report{}}, {&Stage{}, &Stage{}, &Stage{}, &Stage{}},
	} {
		n := 0
		fill(reflect.ValueOf(c.in).Elem(), &n)
		raw := pack.Bytes(c.in)
		if err := pack.Read(raw, c.out); err != nil || !reflect.DeepEqual(c.in, c.out) {
			t.Errorf("%v: %+v became %+v", err, c.in, c.out)
		}
		if err := pack.Read(pack.Bytes(c.zero), c.zeroOut); err != nil || !reflect.DeepEqual(c.zero, c.zeroOut) {
			t.Errorf("%v: %+v became %+v", err, c.zero, c.zeroOut)
		}
		for i := range raw {
			out := reflect.New(reflect.TypeOf(c.in).Elem()).Interface().(pack.Value)
			if pack.Read(raw[:i], out) == nil {
				t.Errorf("%T: %d of %d bytes were enough", c.in, i, len(raw))
			}
		}
		out := reflect.New(reflect.TypeOf(c.in).Elem()).Interface().(pack.Value)
		if pack.Read(append(raw, 0), out) == nil {
			t.Errorf("%T: a byte too many was not noticed", c.in)
		}
	}
}

// FuzzReport reads what any guest may answer: it takes no more memory than a
// fixed part of its length, and what was read is written as the same value.
func FuzzReport(f *testing.F) {
	full := &Report{}
	n := 0
	fill(reflect.ValueOf(full).Elem(), &n)
	f.Add(pack.Bytes(full))
	f.Add(pack.Bytes(&Report{}))
	f.Add([]byte("\x00\x00\x00\x00\xff\xff\xff\xff\x0f"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var r, again Report
		if pack.Read(raw, &r) != nil {
			return
		}
		if len(r.Tests) > len(raw) {
			t.Errorf("%d tests in %d bytes", len(r.Tests), len(raw))
		}
		if err := pack.Read(pack.Bytes(&r), &again); err != nil || !reflect.DeepEqual(r, again) {
			t.Errorf("%+v became %+v: %v", r, again, err)
		}
	})
}

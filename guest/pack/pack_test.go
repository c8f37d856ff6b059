package pack_test

import (
	"fmt"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/caisson-run/caisson/guest/pack"
	"github.com/caisson-run/caisson/guest/plan"
	"github.com/caisson-run/caisson/guest/wire"
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
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Unix(int64(*n), 5)))
			return
		}
		for i := range v.NumField() {
			fill(v.Field(i), n)
		}
	default:
		panic(v.Type().String())
	}
}

// all are the zero values of what is packed.
func all() []pack.Value {
	return []pack.Value{
		&plan.Plan{}, &plan.Report{}, &plan.Stage{},
		&wire.Hello{}, &wire.Hold{}, &wire.Held{}, &wire.Stop{}, &wire.Signal{}, &wire.Resize{}, &wire.Ended{},
		&wire.Failed{}, &wire.File{}, &wire.Done{},
	}
}

func zero(v pack.Value) pack.Value {
	return reflect.New(reflect.TypeOf(v).Elem()).Interface().(pack.Value)
}

// A field that is forgotten in Pack does not come over, and nothing but the whole
// of a value can be read.
func TestPackHasAllFields(t *testing.T) {
	for _, full := range all() {
		empty, n := zero(full), 0
		fill(reflect.ValueOf(full).Elem(), &n)
		raw := pack.Bytes(full)
		for _, in := range []pack.Value{full, empty} {
			out := zero(in)
			if err := pack.Read(pack.Bytes(in), out); err != nil || !reflect.DeepEqual(in, out) {
				t.Errorf("%v: %+v became %+v", err, in, out)
			}
		}
		for i := range raw {
			if pack.Read(raw[:i], zero(full)) == nil {
				t.Errorf("%T: %d of %d bytes were enough", full, i, len(raw))
			}
		}
		if pack.Read(append(raw, 0), zero(full)) == nil {
			t.Errorf("%T: a byte too many was not noticed", full)
		}
	}
}

// timeOf is the Done of a guest that makes up a time.
type timeOf struct{ seconds, rest int64 }

func (m timeOf) Pack(p *pack.Packer) {
	info, done := &wire.Info{}, wire.Done{}
	pack.Maybe(p, &info, func(p *pack.Packer, i *wire.Info) {
		pack.Number(p, &i.Size)
		pack.Number(p, &i.Mode)
		pack.Text(p, &i.Kind)
		pack.Number(p, &m.seconds)
		pack.Number(p, &m.rest)
		pack.Text(p, &i.Digest)
	})
	pack.Number(p, &done.Total)
	pack.Number(p, &done.Skipped)
}

// FuzzRead reads what any guest may say, as each of the values: it takes no more
// memory than a fixed part of its length, and what was read is written as the same
// value.
func FuzzRead(f *testing.F) {
	for i, v := range all() {
		f.Add(i, pack.Bytes(v))
		n := 0
		fill(reflect.ValueOf(v).Elem(), &n)
		f.Add(i, pack.Bytes(v))
	}
	f.Add(1, []byte("\x00\x00\x00\x00\xff\xff\xff\xff\x0f")) // four billion tests
	for _, at := range []timeOf{{math.MaxInt64, 0}, {math.MinInt64, 0}, {0, math.MaxInt64}, {0, math.MinInt64}} {
		f.Add(len(all())-1, pack.Bytes(at))
	}
	f.Fuzz(func(t *testing.T, which int, raw []byte) {
		values := all()
		v := values[uint(which)%uint(len(values))] //nolint:gosec // any will do
		again := zero(v)
		if pack.Read(raw, v) != nil {
			return
		}
		if r, is := v.(*plan.Report); is && len(r.Tests) > len(raw) {
			t.Errorf("%d tests in %d bytes", len(r.Tests), len(raw))
		}
		if done, is := v.(*wire.Done); is && done.Info != nil {
			if _, err := done.Info.ModTime.MarshalJSON(); err != nil {
				t.Errorf("a time that nobody can write: %v", err)
			}
		}
		if err := pack.Read(pack.Bytes(v), again); err != nil || !reflect.DeepEqual(v, again) {
			t.Errorf("%+v became %+v: %v", v, again, err)
		}
	})
}

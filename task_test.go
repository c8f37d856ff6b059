package caisson_test

import (
	"reflect"
	"testing"

	"github.com/caisson-run/caisson"
)

// A clone shares nothing that can be changed with what it was made of, whatever
// fields a task comes to have; and empty lists are none.
func TestTaskClone(t *testing.T) {
	full, empty := reflect.ValueOf(new(caisson.Task)).Elem(), reflect.ValueOf(new(caisson.Task)).Elem()
	for i := range full.NumField() {
		switch f := full.Field(i); f.Kind() {
		case reflect.Slice:
			f.Set(reflect.MakeSlice(f.Type(), 1, 1))
			empty.Field(i).Set(reflect.MakeSlice(f.Type(), 0, 1))
			if e := f.Type().Elem(); e.Kind() != reflect.String && e.Kind() != reflect.Struct {
				t.Errorf("%s: what a list of %s shares is not known", full.Type().Field(i).Name, e)
			}
		case reflect.Pointer:
			f.Set(reflect.New(f.Type().Elem()))
		case reflect.Map, reflect.Interface, reflect.Array:
			t.Errorf("%s: a clone of it is not known", full.Type().Field(i).Name)
		default:
		}
	}
	was := full.Interface().(caisson.Task)
	is := was.Clone()
	if !reflect.DeepEqual(was, is) {
		t.Errorf("%+v, want %+v", is, was)
	}
	for i := range full.NumField() {
		if f := full.Field(i); (f.Kind() == reflect.Slice || f.Kind() == reflect.Pointer) && f.Pointer() == reflect.ValueOf(is).Field(i).Pointer() {
			t.Errorf("%s is shared", full.Type().Field(i).Name)
		}
	}
	if none := empty.Interface().(caisson.Task).Clone(); !reflect.DeepEqual(none, caisson.Task{}) {
		t.Errorf("%+v", none)
	}
}

package workspace

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestThinned(t *testing.T) {
	upTo := func(from, to int) (all []int) {
		for n := from; n <= to; n++ {
			all = append(all, n)
		}
		return all
	}
	for _, c := range []struct{ have, drop []int }{
		{nil, nil},
		{upTo(1, 20), nil},
		{upTo(1, 21), []int{1}},
		{upTo(1, 32), []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12}},
		{append([]int{10, 20, 25}, upTo(31, 50)...), []int{25}},
		{[]int{10, 20, 30}, nil},
		{[]int{3, 700, 9000}, nil},
	} {
		if d := cmp.Diff(c.drop, thinned(c.have)); d != "" {
			t.Errorf("%v: %s", c.have, d)
		}
	}
	// Thinned one by one, as it happens, the same stay.
	var kept []int
	for n := range 200 {
		kept = append(kept, n+1)
		drop := map[int]bool{}
		for _, d := range thinned(kept) {
			drop[d] = true
		}
		var left []int
		for _, k := range kept {
			if !drop[k] {
				left = append(left, k)
			}
		}
		kept = left
	}
	want := []int{}
	for n := 10; n <= 180; n += 10 {
		want = append(want, n)
	}
	if d := cmp.Diff(fmt.Sprint(append(want, upTo(181, 200)...)), fmt.Sprint(kept)); d != "" {
		t.Error(d)
	}
}

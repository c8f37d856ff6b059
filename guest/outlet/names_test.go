package outlet

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestNamesKeepTheirAddress(t *testing.T) {
	n := newNames(ownRange, maxNames)
	first := n.give("one.example")
	if first == n.give("two.example") || first != n.give("one.example") {
		t.Error("an address is another name's")
	}
	if first == ownAddr || first != [4]byte{198, 18, 0, 2} {
		t.Errorf("the first is %v", first)
	}
	if name, ok := n.name(first); !ok || name != "one.example" {
		t.Errorf("%v is %q", first, name)
	}
	for _, addr := range [][4]byte{{198, 18, 0, 0}, {198, 18, 0, 1}, {198, 18, 9, 9}, {198, 20, 0, 2}, {127, 0, 0, 1}, {198, 17, 255, 255}} {
		if name, ok := n.name(addr); ok {
			t.Errorf("%v is %q", addr, name)
		}
	}
}

// The name that was not used for longest is forgotten, and its address is given
// to another one only when all were given out.
func TestNamesAreForgotten(t *testing.T) {
	n := newNames(ownRange, 3)
	a, b := n.give("a"), n.give("b")
	n.give("c")
	n.name(a) // a connection
	n.give("d")
	if _, known := n.name(b); known {
		t.Error("b is known")
	}
	if name, _ := n.name(a); name != "a" {
		t.Errorf("a is %q", name)
	}
	for i := range rangeSize - 3 - 4 { // all others but a's
		if n.name(a); n.give(fmt.Sprint(i)) == b {
			t.Fatalf("b's address was given out again after %d", i)
		}
	}
	if again := n.give("last"); again != b {
		t.Errorf("%v was given out, want b's %v: a's is in use", again, b)
	}
	if name, _ := n.name(a); name != "a" {
		t.Errorf("a's address is %q's", name)
	}
}

func TestNamesAreFreshForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNames(ownRange, maxNames)
		n.give("a")
		if _, ok := n.fresh("a"); !ok {
			t.Error("it is not fresh")
		}
		time.Sleep(freshFor + 1)
		if _, ok := n.fresh("a"); ok {
			t.Error("it is fresh for ever")
		}
	})
}

func TestNamesAreBoundedInMemory(t *testing.T) {
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	n := newNames(ownRange, maxNames)
	for i := range 200_000 {
		n.give(fmt.Sprintf("%s%d.example", strings.Repeat("x", 240), i))
	}
	if grown := int64(heap()) - int64(before); grown > 6<<20 {
		t.Errorf("200,000 names take %d bytes", grown)
	}
	if len(n.byName) != maxNames || len(n.byAddr) != maxNames || n.recent.Len() != maxNames {
		t.Errorf("%d names, %d addresses, %d in order", len(n.byName), len(n.byAddr), n.recent.Len())
	}
}

package outlet

import (
	"container/list"
	"encoding/binary"
	"sync"
	"time"
)

const (
	// maxNames bounds the table: at most 4 MiB, with the longest names.
	maxNames = 8192
	// freshFor is how long the host's yes to a name holds. A connection is
	// judged by itself, so this only spares questions.
	freshFor = 5 * time.Second
	// rangeSize is the number of made-up addresses: a /15, which is what
	// 198.18.0.0/15 (RFC 2544: never seen on the internet) has. The first two and
	// the last are not given out.
	rangeSize  = 1 << 17
	rangeFirst = 2
)

// names gives each name an address of its own.
//
// A name that was not looked up or connected to for longest is forgotten when
// there are too many; its address is then nobody's. Addresses are given out one
// after the other, so that one is another name's only after all others were
// given out: a program that kept an old one is refused, not led astray. A
// connection keeps the name that it was made with.
type names struct {
	base uint32 // of the range
	max  int

	mu     sync.Mutex
	next   uint32 // offset that is tried next
	byName map[string]*list.Element
	byAddr map[uint32]*list.Element // by offset
	recent *list.List               // of *entry, the latest first
}

type entry struct {
	name  string
	at    uint32 // offset in the range
	asked time.Time
}

func newNames(base [4]byte, limit int) *names {
	return &names{
		base: binary.BigEndian.Uint32(base[:]), max: limit, next: rangeFirst,
		byName: map[string]*list.Element{}, byAddr: map[uint32]*list.Element{}, recent: list.New(),
	}
}

// fresh returns the address of a name about which the host was asked just now.
func (n *names) fresh(name string) (addr [4]byte, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	e := n.byName[name]
	if e == nil || time.Since(e.Value.(*entry).asked) > freshFor { //nolint:forcetypeassert // the list is ours
		return addr, false
	}
	n.recent.MoveToFront(e)
	return n.addr(e), true
}

// give returns the address of a name that the host has just said yes to.
func (n *names) give(name string) [4]byte {
	n.mu.Lock()
	defer n.mu.Unlock()
	e := n.byName[name]
	if e == nil {
		if len(n.byName) >= n.max {
			n.forget(n.recent.Back())
		}
		for n.byAddr[n.next] != nil { // ends: there are more addresses than names
			n.advance()
		}
		e = n.recent.PushFront(&entry{name: name, at: n.next})
		n.byName[name], n.byAddr[n.next] = e, e
		n.advance()
	}
	e.Value.(*entry).asked = time.Now() //nolint:forcetypeassert // the list is ours
	n.recent.MoveToFront(e)
	return n.addr(e)
}

// name returns whose address it is.
func (n *names) name(addr [4]byte) (string, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	e := n.byAddr[binary.BigEndian.Uint32(addr[:])-n.base]
	if e == nil {
		return "", false
	}
	n.recent.MoveToFront(e)
	return e.Value.(*entry).name, true //nolint:forcetypeassert // the list is ours
}

func (n *names) forget(e *list.Element) {
	was := n.recent.Remove(e).(*entry) //nolint:forcetypeassert // the list is ours
	delete(n.byName, was.name)
	delete(n.byAddr, was.at)
}

func (n *names) advance() {
	if n.next++; n.next == rangeSize-1 {
		n.next = rangeFirst
	}
}

func (n *names) addr(e *list.Element) (addr [4]byte) {
	binary.BigEndian.PutUint32(addr[:], n.base+e.Value.(*entry).at) //nolint:forcetypeassert // the list is ours
	return addr
}

package egress

// Sizes of a tunnel's buffers, one a direction. What is woken less often is
// quicker: with 1 MiB a download costs the processor a quarter less than with
// 256 KiB, and twice that saves little more.
const (
	leastBuffer = 4 << 10
	mostBuffer  = 1 << 20
	growBy      = 4
	// maxLent bounds what all tunnels of a proxy hold beyond leastBuffer: room for
	// 32 directions at full speed. Others go on with what they have.
	maxLent = 32 << 20
	// quietAfter is how many reads in a row that fill little of the smaller buffer
	// show that the larger one is not needed.
	quietAfter = 16
)

// buffer is that of one direction. It grows while it is filled, and becomes
// small again when it is not, so that connections that are quiet hold little.
type buffer struct {
	p     *Proxy
	bytes []byte
	small int // reads in a row that were small
}

// fit makes the buffer right for a next read after one of n bytes: 0 says that
// nothing came for long, or ever will.
func (b *buffer) fit(n int) {
	size := len(b.bytes)
	if n > size/growBy/growBy {
		b.small = 0
	} else {
		b.small++
	}
	switch {
	case n == 0:
		b.resize(leastBuffer)
	case n == size && size < mostBuffer:
		b.resize(size * growBy)
	case b.small >= quietAfter && size > leastBuffer:
		b.resize(size / growBy)
	}
}

// resize does nothing where there is no room for more.
func (b *buffer) resize(size int) {
	if size == len(b.bytes) {
		return
	}
	more := int64(size - len(b.bytes))
	if b.p.lent.Add(more) > maxLent && more > 0 {
		b.p.lent.Add(-more)
		return
	}
	b.bytes, b.small = make([]byte, size), 0
}

package egress

import (
	"io"
	"net"
	"syscall"
	"testing"
	"time"
)

// BenchmarkDownload is 64 MiB from a host to a program inside; beside the
// processor time that the same takes without a proxy in between.
func BenchmarkDownload(b *testing.B) {
	const size = 64 << 20
	block := make([]byte, 1<<20)
	send := func(c net.Conn) {
		for range size / len(block) {
			if _, err := c.Write(block); err != nil {
				return
			}
		}
	}
	receive := func(b *testing.B, c net.Conn) {
		buffer := make([]byte, 128<<10)
		n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{c}, buffer)
		if n != size || err != nil {
			b.Fatalf("%d bytes, %v", n, err)
		}
	}
	b.Run("direct", func(b *testing.B) {
		measured(b, size, func() {
			l := must(net.Listen("tcp", "127.0.0.1:0"))
			go func() {
				c := must(l.Accept())
				send(c)
				_ = c.Close()
			}()
			c := must(net.Dial("tcp", l.Addr().String()))
			receive(b, c)
			_ = c.Close()
			_ = l.Close()
		})
	})
	b.Run("carried", func(b *testing.B) {
		w := newWorld(b, Options{}, "site.com:9")
		w.tcp("site.com", "9", func(c net.Conn) {
			send(c)
			_ = c.(*net.TCPConn).CloseWrite()
			_, _ = io.Copy(io.Discard, c)
		})
		measured(b, size, func() {
			c := w.open("site.com:9")
			receive(b, c.TCPConn)
			_ = c.Close()
			<-c.done
		})
	})
}

// measured runs a benchmark that moves size bytes, and reports the processor time of each.
func measured(b *testing.B, size int64, do func()) {
	b.SetBytes(size)
	before := processorTime()
	for b.Loop() {
		do()
	}
	b.ReportMetric(float64(processorTime()-before)/float64(int64(b.N)*size>>20)/1e3, "µs-cpu/MiB")
}

func processorTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // of this process, which is there
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

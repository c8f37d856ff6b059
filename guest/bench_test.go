package guest_test

import (
	"context"
	"io"
	"os/exec"
	"testing"

	"github.com/caisson-run/caisson"
)

// BenchmarkExec compares a warm command with a plain fork and exec of the same
// program; at most twice as long is wanted.
func BenchmarkExec(b *testing.B) {
	b.Run("plain", func(b *testing.B) {
		for b.Loop() {
			if err := exec.Command("/bin/true").Run(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("warm", func(b *testing.B) {
		box := openProgram(b, builtGuest(b))
		for b.Loop() {
			p := box.start(b, caisson.Command{Argv: []string{"/bin/true"}})
			if _, err := p.Wait(context.Background()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("warm-output", func(b *testing.B) {
		box := openProgram(b, builtGuest(b))
		for b.Loop() {
			p := box.start(b, caisson.Command{Argv: []string{"/bin/echo", "x"}, Stdout: io.Discard, Stderr: io.Discard})
			if _, err := p.Wait(context.Background()); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// counter counts what it is given.
type counter struct{ n int64 }

func (c *counter) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	return len(p), nil
}

// BenchmarkOutput measures 256 MiB of output; half the speed of cat to a file is wanted.
func BenchmarkOutput(b *testing.B) {
	const line = "head -c 268435456 /dev/zero"
	b.Run("file", func(b *testing.B) {
		b.SetBytes(256 << 20)
		file := b.TempDir() + "/out"
		for b.Loop() {
			if err := exec.Command("sh", "-c", line+" | cat > "+file).Run(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("guest", func(b *testing.B) {
		b.SetBytes(256 << 20)
		box := openProgram(b, builtGuest(b))
		for b.Loop() {
			got := &counter{}
			p := box.start(b, caisson.Command{Line: line, Stdout: got})
			if _, err := p.Wait(context.Background()); err != nil {
				b.Fatal(err)
			}
			if got.n != 256<<20 {
				b.Fatalf("%d bytes", got.n)
			}
		}
	})
}

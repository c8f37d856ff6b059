package guest_test

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/caisson-run/caisson"
)

// What is longer than a frame may be is refused, and is not the end of all else.
func TestTooLongIsRefused(t *testing.T) {
	b := open(t)
	ctx := context.Background()
	long := strings.Repeat("x", 9<<20)
	for name, cmd := range map[string]caisson.Command{
		"argument":    {Argv: []string{"true", long}},
		"line":        {Line: ": " + long},
		"environment": {Argv: []string{"true"}, Env: []string{"LONG=" + long}},
	} {
		if _, err := b.Hold(ctx, cmd); caisson.CodeOf(err) != caisson.CodeCallInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := b.Files().Stat(ctx, long); caisson.CodeOf(err) != caisson.CodeCallInvalid {
		t.Errorf("path: %v", err)
	}
	// What the kernel takes passes, and what it does not take is told as such.
	var out bytes.Buffer
	args := []string{"sh", "-c", `for a; do printf %s "$a"; done | wc -c`, "sh"}
	for range 19 {
		args = append(args, strings.Repeat("a", 100<<10))
	}
	for _, c := range []struct {
		argv []string
		code int
		out  string
	}{{args, 0, "1945600"}, {[]string{"true", strings.Repeat("b", 2<<20)}, 126, ""}} {
		out.Reset()
		p, err := b.Hold(ctx, caisson.Command{Argv: c.argv, Stdout: &out})
		if err == nil {
			err = p.Release()
		}
		if err != nil {
			t.Fatal(err)
		}
		exit, err := p.Wait(ctx)
		if err != nil || exit.Code != c.code || strings.TrimSpace(out.String()) != c.out {
			t.Errorf("got %+v, %v, %q; want %d and %q", exit, err, out.String(), c.code, c.out)
		}
	}
}

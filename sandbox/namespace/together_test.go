//go:build linux

package namespace_test

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/caisson-run/caisson"
)

// Commands of one sandbox are processes of one box: whichever thread of the
// guest served each, one may look at another's program and end it.
func TestCommandsSeeEachOther(t *testing.T) {
	box, err := engine(t).Open(t.Context(), caisson.SandboxSpec{ID: caisson.NewSandboxID()})
	if err != nil {
		t.Fatal(err)
	}
	defer box.Close()
	run := func(line string) (string, caisson.Exit, error) {
		var out bytes.Buffer
		p, err := box.Hold(t.Context(), caisson.Command{Line: line, Stdout: &out, Stderr: &out})
		if err == nil {
			err = p.Release()
		}
		if err != nil {
			return "", caisson.Exit{}, err
		}
		exit, err := p.Wait(t.Context())
		return out.String(), exit, err
	}
	var all sync.WaitGroup
	defer all.Wait()
	for i := range 16 {
		all.Go(func() {
			// The one is stopped by the other, or by its own end of time.
			if out, exit, err := run(fmt.Sprintf("echo $$ > /tmp/%d; exec sleep 600", i)); err != nil || exit.Signal != 9 {
				t.Errorf("%+v %v: %s", exit, err, out)
			}
		})
		all.Go(func() {
			out, exit, err := run(fmt.Sprintf(`until [ -s /tmp/%d ]; do :; done; read pid < /tmp/%d
				until [ "$(readlink /proc/$pid/exe)" = "$(readlink -f /bin/sleep)" ]; do n=$((n+1)); [ $n -lt 2000 ] || exit 3; done
				kill -9 $pid && echo ended`, i, i))
			if err != nil || exit.Code != 0 || strings.TrimSpace(out) != "ended" {
				t.Errorf("%+v %v: %s", exit, err, out)
			}
		})
	}
}

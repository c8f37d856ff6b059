package container

import (
	"path/filepath"
	"testing"

	"github.com/caisson-run/caisson"
)

// An engine that is stopped before the streams of a container are taken is one that
// does not answer, and not one that refuses it.
func TestStoppedBeforeAttach(t *testing.T) {
	e := New(Options{Name: Docker, Endpoint: "unix://" + filepath.Join(t.TempDir(), "nothing.sock")})
	cli, err := e.dial()
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	b := &box{engine: e, client: cli, container: "c"}
	if _, err := b.attach(t.Context()); caisson.CodeOf(err) != caisson.CodeEngineUnavailable {
		t.Errorf("%v, want engine-unavailable", err)
	}
}

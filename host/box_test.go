package host

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/sandbox/container"
	"github.com/caisson-run/caisson/workspace"
)

// A process that lives long opens boxes, and is told of images, under the person's
// settings as they are then.
func TestBoxUnderSettingsOfToday(t *testing.T) {
	h := opened(t, "", nil)
	repo := filepath.Join(h.dir, "repo")
	if err := os.Mkdir(repo, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(repo, "secret.txt"), "a secret\n")
	for _, line := range []string{"init -q -b main", "add -A", "-c user.name=T -c user.email=t@example.org commit -q -m first"} {
		cmd := exec.CommandContext(t.Context(), "git", strings.Fields(line)...)
		cmd.Dir = repo
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v: %s", line, err, out)
		}
	}
	ws, err := h.workspaces.Create(t.Context(), workspace.CreateSpec{Dir: repo, Branch: "one", By: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	look := func() string {
		t.Helper()
		box, err := h.boxFor(t.Context(), ws)
		if code := caisson.CodeOf(err); code == caisson.CodeIsolationUnavailable {
			t.Skipf("no boundary can be made here: %v", err)
		}
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := box.Close(); err != nil {
				t.Error(err)
			}
		}()
		var out bytes.Buffer
		p, err := box.Hold(t.Context(), caisson.Command{Argv: []string{"sh", "-c", "cat secret.txt || :"}, Dir: ws.Path, Stdout: &out})
		if err == nil {
			err = p.Release()
		}
		if err == nil {
			_, err = p.Wait(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	if got := look(); got != "a secret\n" {
		t.Fatalf("%q", got)
	}
	config := h.Paths.UserConfig()
	if err := os.WriteFile(config, []byte("hide: [secret.txt]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := look(); got != "" {
		t.Errorf("what is hidden today is seen: %q", got)
	}
	if err := os.WriteFile(config, []byte("hide: secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := h.boxFor(t.Context(), ws); caisson.CodeOf(err) != caisson.CodeConfigInvalid {
		t.Errorf("under settings that cannot be read: %v", err)
	}
}

// The image of a container is that of the settings under which it is opened.
func TestImageOfToday(t *testing.T) {
	h := opened(t, "containers: {image: 'example.org/first:1'}\n", nil)
	engine, err := h.engine(container.Docker)
	if err != nil {
		t.Skipf("no containers on this system: %v", err)
	}
	made, _ := engine.(*container.Engine)
	if made.Image() != "example.org/first:1" {
		t.Errorf("%s", made.Image())
	}
	if err := os.WriteFile(h.Paths.UserConfig(), []byte("containers: {image: 'example.org/second:2'}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := h.configWith(repoFiles{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // it is not opened
	if _, err := h.openBox(ctx, engine, c, caisson.SandboxSpec{ID: caisson.NewSandboxID()}); err == nil {
		t.Error("it was opened")
	}
	if made.Image() != "example.org/second:2" {
		t.Errorf("%s", made.Image())
	}
}

package sandbox_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/sandbox"
)

// place returns a directory without links with a tree to lend from.
func place(t *testing.T) string {
	t.Helper()
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"ws/sub", "git", "objects", "lent"} {
		if err := os.MkdirAll(filepath.Join(top, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"ws/.git", "cover"} {
		if err := os.WriteFile(filepath.Join(top, file), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("lent", filepath.Join(top, "link")); err != nil {
		t.Fatal(err)
	}
	return top
}

func TestCheck(t *testing.T) {
	top := place(t)
	at := func(name string) string { return filepath.Join(top, name) }
	for name, c := range map[string]struct {
		change func(*caisson.SandboxSpec)
		want   caisson.Code
	}{
		"all of it": {func(s *caisson.SandboxSpec) {
			s.GitCover, s.GitDir, s.GitObjects = at("cover"), at("git"), []string{at("objects")}
			s.Mounts = []caisson.Mount{{Source: at("lent")}, {Source: at("cover"), Target: "/opt/x"}}
			s.Env = []string{"A=b", "_x1="}
		}, ""},
		"nothing":            {func(s *caisson.SandboxSpec) { s.Workspace = "" }, ""},
		"id with a slash":    {func(s *caisson.SandboxSpec) { s.ID = "s/../x" }, caisson.CodeUsage},
		"no id":              {func(s *caisson.SandboxSpec) { s.ID = "" }, caisson.CodeUsage},
		"file as workspace":  {func(s *caisson.SandboxSpec) { s.Workspace = at("cover") }, caisson.CodePathInvalid},
		"link as source":     {func(s *caisson.SandboxSpec) { s.Mounts = []caisson.Mount{{Source: at("link")}} }, caisson.CodePathInvalid},
		"dots in source":     {func(s *caisson.SandboxSpec) { s.Mounts = []caisson.Mount{{Source: top + "/ws/../lent"}} }, caisson.CodePathInvalid},
		"device":             {func(s *caisson.SandboxSpec) { s.Mounts = []caisson.Mount{{Source: "/dev/null", Target: "/x"}} }, caisson.CodePathInvalid},
		"source not UTF-8":   {func(s *caisson.SandboxSpec) { s.Mounts = []caisson.Mount{{Source: at("lent\xff")}} }, caisson.CodePathInvalid},
		"target not UTF-8":   {func(s *caisson.SandboxSpec) { s.Mounts = []caisson.Mount{{Source: at("lent"), Target: "/x\xff"}} }, caisson.CodePathInvalid},
		"home missing":       {func(s *caisson.SandboxSpec) { s.Home = at("none") }, caisson.CodePathInvalid},
		"git dir escapes":    {func(s *caisson.SandboxSpec) { s.GitDir = at("ws") + "/../../etc" }, caisson.CodePathInvalid},
		"objects are a link": {func(s *caisson.SandboxSpec) { s.GitObjects = []string{at("link")} }, caisson.CodePathInvalid},
		"NUL in workspace":   {func(s *caisson.SandboxSpec) { s.Workspace = at("ws") + "\x00" }, caisson.CodePathInvalid},
		"relative workspace": {func(s *caisson.SandboxSpec) { s.Workspace = "ws" }, caisson.CodePathInvalid},
		"root as workspace":  {func(s *caisson.SandboxSpec) { s.Workspace = "/" }, caisson.CodePathInvalid},
		"root as target":     {func(s *caisson.SandboxSpec) { s.Mounts = []caisson.Mount{{Source: at("lent"), Target: "/"}} }, caisson.CodePathInvalid},
		"usr as target":      {func(s *caisson.SandboxSpec) { s.Mounts = []caisson.Mount{{Source: at("lent"), Target: "/usr"}} }, caisson.CodePathInvalid},
		"below /dev":         {func(s *caisson.SandboxSpec) { s.Mounts = []caisson.Mount{{Source: at("lent"), Target: "/dev/x"}} }, caisson.CodePathInvalid},
		"twice":              {func(s *caisson.SandboxSpec) { s.Mounts = []caisson.Mount{{Source: at("lent"), Target: at("ws")}} }, caisson.CodePathInvalid},
		"no place in it":     {func(s *caisson.SandboxSpec) { s.Mounts = []caisson.Mount{{Source: at("lent"), Target: at("ws/none")}} }, caisson.CodePathInvalid},
		"file over dir":      {func(s *caisson.SandboxSpec) { s.Mounts = []caisson.Mount{{Source: at("cover"), Target: at("ws/sub")}} }, caisson.CodePathInvalid},
		"dir in its place":   {func(s *caisson.SandboxSpec) { s.Mounts = []caisson.Mount{{Source: at("lent"), Target: at("ws/sub")}} }, ""},
		"cover without tree": {func(s *caisson.SandboxSpec) { s.GitCover, s.Workspace = at("cover"), "" }, caisson.CodePathInvalid},
		"env without name":   {func(s *caisson.SandboxSpec) { s.Env = []string{"=x"} }, caisson.CodeConfigInvalid},
		"env with NUL":       {func(s *caisson.SandboxSpec) { s.Env = []string{"A=b\x00c"} }, caisson.CodeConfigInvalid},
		"negative limit":     {func(s *caisson.SandboxSpec) { s.Limits.Memory = -1 }, caisson.CodeLimitInvalid},
		"too small a limit":  {func(s *caisson.SandboxSpec) { s.Limits.Pids = 1 }, caisson.CodeLimitInvalid},
		"no such control":    {func(s *caisson.SandboxSpec) { s.Require = []caisson.Control{"weather"} }, caisson.CodeConfigInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			spec := caisson.SandboxSpec{ID: caisson.NewSandboxID(), Workspace: at("ws")}
			c.change(&spec)
			got, err := sandbox.Check(spec)
			if code := caisson.CodeOf(err); code != c.want {
				t.Fatalf("%v (%s), want %q", err, code, c.want)
			}
			if err == nil && (got.Limits.Memory != 4<<30 || got.Limits.Pids != 512 || got.Limits.CPUs < 1 || len(got.Require) != 3) {
				t.Errorf("defaults %+v, %v", got.Limits, got.Require)
			}
		})
	}
}

// What is in memory of a box leaves its guest room, and is as asked for where it does.
func TestPrivateDirectoriesDoNotFillMemory(t *testing.T) {
	for _, c := range []struct{ memory, tmp, want int64 }{
		{0, 0, 1 << 30},
		{0, 8 << 30, (4<<30 - 16<<20) / 3},
		{1 << 30, 0, (1<<30 - 16<<20) / 3},
		{1 << 30, 16 << 20, 16 << 20},
		{16 << 20, 0, 1 << 20},
	} {
		got, err := sandbox.Check(caisson.SandboxSpec{ID: "s1", Limits: caisson.Limits{Memory: c.memory, Tmp: c.tmp}})
		if err != nil || got.Limits.Tmp != c.want {
			t.Errorf("memory %d, tmp %d: %d, %v, want %d", c.memory, c.tmp, got.Limits.Tmp, err, c.want)
		}
	}
}

func TestCheckKeepsTheCallersSpec(t *testing.T) {
	top := place(t)
	mounts := []caisson.Mount{{Source: filepath.Join(top, "lent")}}
	if _, err := sandbox.Check(caisson.SandboxSpec{ID: "s1", Mounts: mounts}); err != nil {
		t.Fatal(err)
	}
	if mounts[0].Target != "" {
		t.Error("the caller's mounts were changed")
	}
}

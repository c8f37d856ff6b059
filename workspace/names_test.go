package workspace_test

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/workspace"
)

// Names that are odd and good: each makes a workspace that is found by its name
// and branch, and that takes a commit from inside.
func TestOddNames(t *testing.T) {
	long := strings.Repeat("x", 200)
	for what, spec := range map[string]workspace.CreateSpec{
		"slashes":              {Branch: "a/b/c/d"},
		"dots":                 {Name: "a.b.c", Branch: "v1.2.3"},
		"unicode":              {Branch: "größe/日本語/ё"},
		"right to left":        {Branch: "\u202egnp.x"},
		"200 characters":       {Branch: long},
		"30 parts":             {Branch: strings.Repeat("p/", 29) + "x"},
		"64 characters":        {Name: long[:64]},
		"shell":                {Branch: "$(id)';\"&|<>!#"},
		"looks like a number":  {Name: "1", Branch: "2"},
		"looks like an id":     {Name: "w00000000", Branch: "wabcdefgh"},
		"looks like a commit":  {Name: "deadbeef", Branch: "deadbeefdeadbeefdeadbeefdeadbeefdeadbee"},
		"a part is HEAD":       {Branch: "HEAD/HEAD"},
		"at":                   {Branch: "a@b"},
		"per cent":             {Branch: "%s%n%2e%2e"},
		"below a tag's name":   {Branch: "tag"},
		"ends with git":        {Name: "x.git", Branch: "x.git"},
		"dash in the middle":   {Branch: "a/-b"},
		"as an other's prefix": {Name: "ma", Branch: "mai"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			wd := newWorld(t)
			wd.git("tag", "tag")
			if len(what)%2 == 0 { // each name is seen in one of the two ways
				wd.mode = caisson.WorkspaceClone
			}
			ws := wd.create(spec)
			for _, ref := range []string{ws.Branch, ws.Name, "refs/heads/" + ws.Branch, string(ws.ID)} {
				if got, err := wd.w.Find(t.Context(), wd.repo, ref); err != nil || got.ID != ws.ID {
					t.Errorf("%q: %v, %v", ref, got.ID, err)
				}
			}
			box := newBox(t, ws)
			inside(t, box, "git commit -q --allow-empty -m inside")
			if got := wd.importOK(ws, box, workspace.ImportOptions{}); !got.Moved || wd.git("rev-parse", "refs/heads/"+ws.Branch) != got.New {
				t.Fatalf("%+v", got)
			}
			if _, err := wd.w.Merge(t.Context(), ws, workspace.MergeOptions{}); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// Names that are refused, and why is said.
func TestBadNames(t *testing.T) {
	t.Parallel()
	wd := newWorld(t)
	for _, branch := range []string{"taken", "deep/taken", "Größe"} {
		wd.git("branch", branch)
	}
	gone := wd.create(workspace.CreateSpec{Name: "gone", Mode: caisson.WorkspaceClone, Branch: "gone"})
	wd.create(workspace.CreateSpec{Name: "Here"})
	wd.git("update-ref", "-d", "refs/heads/gone")
	refs := wd.git("for-each-ref")
	made := strings.Join(wd.made(), "\n")
	for what, c := range map[string]struct {
		spec workspace.CreateSpec
		code caisson.Code
		says string
	}{
		"name with a slash":          {workspace.CreateSpec{Name: "a/b"}, caisson.CodeUsage, "no name for a workspace"},
		"name leads out":             {workspace.CreateSpec{Name: ".."}, caisson.CodeUsage, ""},
		"name is hidden":             {workspace.CreateSpec{Name: ".git"}, caisson.CodeUsage, ""},
		"name begins with a dash":    {workspace.CreateSpec{Name: "-x"}, caisson.CodeUsage, ""},
		"name with a newline":        {workspace.CreateSpec{Name: "a\nb"}, caisson.CodeUsage, ""},
		"name that ends a newline":   {workspace.CreateSpec{Name: "a\n"}, caisson.CodeUsage, ""},
		"name with @{":               {workspace.CreateSpec{Name: "a@{1}"}, caisson.CodeUsage, ""},
		"name that ends in .lock":    {workspace.CreateSpec{Name: "a.lock"}, caisson.CodeUsage, ""},
		"name that is unicode":       {workspace.CreateSpec{Name: "größe"}, caisson.CodeUsage, ""},
		"name of 65":                 {workspace.CreateSpec{Name: strings.Repeat("x", 65)}, caisson.CodeUsage, "up to 64"},
		"name of 200":                {workspace.CreateSpec{Name: strings.Repeat("x", 200)}, caisson.CodeUsage, "up to 64"},
		"name that is there":         {workspace.CreateSpec{Name: "Here", Branch: "new"}, caisson.CodeAlreadyExists, "a workspace Here exists"},
		"name in another case":       {workspace.CreateSpec{Name: "hERE", Branch: "new"}, caisson.CodeAlreadyExists, "only in case"},
		"branch with a newline":      {workspace.CreateSpec{Branch: "a\nb"}, caisson.CodeUsage, "no name for a branch"},
		"branch with @{":             {workspace.CreateSpec{Branch: "a@{b"}, caisson.CodeUsage, ""},
		"branch that is @":           {workspace.CreateSpec{Branch: "@"}, caisson.CodeUsage, "something else"},
		"branch that is HEAD":        {workspace.CreateSpec{Branch: "HEAD"}, caisson.CodeUsage, "something else"},
		"branch that is a commit":    {workspace.CreateSpec{Branch: gone.Base}, caisson.CodeUsage, "something else"},
		"branch with refs/heads":     {workspace.CreateSpec{Branch: "refs/heads/x"}, caisson.CodeUsage, "leave out"},
		"branch ends in .lock":       {workspace.CreateSpec{Branch: "a.lock"}, caisson.CodeUsage, ""},
		"part ends in .lock":         {workspace.CreateSpec{Branch: "a.lock/b"}, caisson.CodeUsage, ""},
		"part begins with a dot":     {workspace.CreateSpec{Branch: "a/.b"}, caisson.CodeUsage, ""},
		"branch begins with a dash":  {workspace.CreateSpec{Branch: "--force"}, caisson.CodeUsage, "an option"},
		"branch ends with a slash":   {workspace.CreateSpec{Branch: "a/"}, caisson.CodeUsage, ""},
		"branch of two slashes":      {workspace.CreateSpec{Branch: "a//b"}, caisson.CodeUsage, ""},
		"branch with a space":        {workspace.CreateSpec{Branch: "a b"}, caisson.CodeUsage, ""},
		"branch with an escape":      {workspace.CreateSpec{Branch: "a\x1b[31m"}, caisson.CodeUsage, ""},
		"branch that is not UTF-8":   {workspace.CreateSpec{Branch: "a\xff"}, caisson.CodeUsage, "UTF-8"},
		"branch of 201":              {workspace.CreateSpec{Branch: strings.Repeat("x", 201)}, caisson.CodeUsage, "200 bytes"},
		"branch of 31 parts":         {workspace.CreateSpec{Branch: strings.Repeat("p/", 30) + "x"}, caisson.CodeUsage, "30 parts"},
		"branch of 300":              {workspace.CreateSpec{Branch: strings.Repeat("ab/", 100) + "x"}, caisson.CodeUsage, "200 bytes"},
		"branch below a branch":      {workspace.CreateSpec{Branch: "taken/more"}, caisson.CodeBranchExists, ""},
		"branch above a branch":      {workspace.CreateSpec{Branch: "deep"}, caisson.CodeBranchExists, ""},
		"branch in another case":     {workspace.CreateSpec{Branch: "Taken"}, caisson.CodeBranchExists, "only in case"},
		"branch in another case, ö":  {workspace.CreateSpec{Branch: "GRÖßE"}, caisson.CodeBranchExists, "only in case"},
		"branch of a clone, deleted": {workspace.CreateSpec{Branch: "gone"}, caisson.CodeBranchCheckedOut, "workspace gone"},
		"mode":                       {workspace.CreateSpec{Mode: "copy"}, caisson.CodeUsage, "worktree, clone"},
	} {
		t.Run(what, func(t *testing.T) {
			for _, mode := range []caisson.WorkspaceMode{caisson.WorkspaceWorktree, caisson.WorkspaceClone} {
				spec := c.spec
				spec.Dir, spec.Mode = wd.repo, caisson.WorkspaceMode(cmp.Or(string(spec.Mode), string(mode)))
				_, err := wd.w.Create(t.Context(), spec)
				wantCode(t, err, c.code)
				if said := caisson.AsError(err).Message; !strings.Contains(said, c.says) || strings.ContainsAny(said, "\x1b\n") || !utf8.ValidString(said) {
					t.Errorf("%q does not say %q", said, c.says)
				}
			}
			if now := wd.git("for-each-ref"); now != refs {
				t.Errorf("references: %s", now)
			}
			if now := strings.Join(wd.made(), "\n"); now != made {
				t.Errorf("made: %s", now)
			}
		})
	}
}

// What each reference means where several could be meant.
func TestFindChooses(t *testing.T) {
	t.Parallel()
	wd := newWorld(t)
	put := func(n int, name, branch, run string) caisson.Workspace {
		t.Helper()
		ws := caisson.Workspace{
			ID: caisson.WorkspaceID(fmt.Sprintf("w%d%07d", n, 0)), Name: name, Branch: branch, Run: caisson.RunID(run),
			Binding: caisson.Binding{CommonDir: wd.repo + "/.git"},
		}
		wd.must(wd.store.PutWorkspace(t.Context(), ws))
		return ws
	}
	// Listed newest first: numbers go from the last.
	removed := put(0, "removed", "was/here", "rremoved1")
	removed.Removed = true
	wd.must(wd.store.PutWorkspace(t.Context(), removed))
	put(1, "alpha", "team/alpha", "raaaa1111")
	put(2, "4", "zahl", "raaaa2222")
	put(3, "alphabet", "3", "rbbbb3333")
	put(4, "w1", "w10000000", "rcccc4444") // called as the beginning of an id, and as an id
	put(5, "both", "one", "rdddd5555")
	put(6, "two", "both", "reeee6666")
	other := put(7, "elsewhere", "over/there", "rffff7777")
	other.Binding.CommonDir = wd.home
	wd.must(wd.store.PutWorkspace(t.Context(), other))

	for _, c := range []struct {
		ref  string
		want string // first characters of the id
		code caisson.Code
		fits int
	}{
		{"w10000000", "w1", "", 0}, // an id comes before all else
		{"w1", "w4", "", 0},        // a name before the beginning of an id
		{"refs/heads/w10000000", "w4", "", 0},
		{"4", "w2", "", 0}, // a name before a number
		{"3", "w3", "", 0}, // a branch before a number
		{"1", "w6", "", 0},
		{"2", "w5", "", 0},
		{"6", "w1", "", 0},
		{"7", "", caisson.CodeNotFound, 0}, // numbers count those of this repository
		{"0", "", caisson.CodeNotFound, 0},
		{"01", "", caisson.CodeNotFound, 0},
		{"-1", "", caisson.CodeNotFound, 0},
		{"alpha", "w1", "", 0}, // a name before the beginning of one
		{"alphab", "w3", "", 0},
		{"alp", "", caisson.CodeAmbiguous, 2},
		{"team/alpha", "w1", "", 0},
		{"refs/heads/team/alpha", "w1", "", 0},
		{"team", "", caisson.CodeNotFound, 0}, // a branch is not begun
		{"TEAM/ALPHA", "", caisson.CodeNotFound, 0},
		{"raaaa1111", "w1", "", 0},
		{"raaaa1", "w1", "", 0},
		{"raaaa", "", caisson.CodeAmbiguous, 2},
		{"both", "", caisson.CodeAmbiguous, 2},
		{"refs/heads/both", "w6", "", 0},
		{"w", "", caisson.CodeAmbiguous, 6},
		{"w0", "", caisson.CodeNotFound, 0}, // removed
		{"w00000000", "", caisson.CodeNotFound, 0},
		{"removed", "", caisson.CodeNotFound, 0},
		{"was/here", "", caisson.CodeNotFound, 0},
		{"rremoved1", "", caisson.CodeNotFound, 0},
		{"w70000000", "w7", "", 0}, // of another repository by what no two share
		{"rffff7777", "w7", "", 0},
		{"w7", "", caisson.CodeNotFound, 0},
		{"elsewhere", "", caisson.CodeNotFound, 0},
		{"over/there", "", caisson.CodeNotFound, 0},
		{"", "", caisson.CodeNotFound, 0},
		{" ", "", caisson.CodeNotFound, 0},
		{"--", "", caisson.CodeNotFound, 0},
		{"alpha\n", "", caisson.CodeNotFound, 0},
		{"alpha\x00", "", caisson.CodeNotFound, 0},
		{"alpha@{0}", "", caisson.CodeNotFound, 0},
		{"../alpha", "", caisson.CodeNotFound, 0},
		{"%", "", caisson.CodeNotFound, 0},
		{"*", "", caisson.CodeNotFound, 0},
		{"\xff", "", caisson.CodeNotFound, 0},
		{strings.Repeat("w", 1<<20), "", caisson.CodeNotFound, 0},
	} {
		short := c.ref[:min(20, len(c.ref))]
		got, err := wd.w.Find(t.Context(), wd.repo, c.ref)
		if caisson.CodeOf(err) != c.code || c.want == "" != (got.ID == "") || !strings.HasPrefix(string(got.ID), c.want) {
			t.Errorf("%q: %q, %v; want %s %s", short, got.ID, err, c.want, c.code)
			continue
		}
		if err == nil {
			continue
		}
		said := caisson.AsError(err)
		if said.Hint == "" || strings.ContainsAny(said.Message, "\n\x00") || !utf8.ValidString(said.Message) || len(said.Message) > 500 {
			t.Errorf("%q: %d bytes, %.100q, hint %q", short, len(said.Message), said.Message, said.Hint)
		}
		if candidates, _ := said.Detail["candidates"].([]string); len(candidates) != c.fits {
			t.Errorf("%q: candidates %q", short, candidates)
		}
	}
	// In no repository, all are meant.
	for ref, want := range map[string]string{"elsewhere": "w7", "team/alpha": "w1", "1": "w7"} {
		if got, err := wd.w.Find(t.Context(), wd.home, ref); err != nil || !strings.HasPrefix(string(got.ID), want) {
			t.Errorf("%q: %q, %v", ref, got.ID, err)
		}
	}
}

package host

import (
	"slices"
	"testing"

	"github.com/caisson-run/caisson"
)

func TestChooseBox(t *testing.T) {
	box := func(id, run, branch string, state caisson.SandboxState, live caisson.Liveness) BoxView {
		return BoxView{
			SandboxRecord: caisson.SandboxRecord{ID: caisson.SandboxID(id), Run: caisson.RunID(run), State: state}, Branch: branch, Liveness: live,
			RunState: caisson.RunRunning, name: "name-" + branch,
		}
	}
	dead := box("s1", "r1", "one", caisson.SandboxRunning, caisson.Dead)
	alive := box("s2", "r2", "one", caisson.SandboxRunning, caisson.Alive)
	unsure := box("s3", "r3", "one", caisson.SandboxRunning, caisson.LivenessUnknown)
	older := box("s4", "r4", "one", caisson.SandboxRunning, caisson.Dead)
	stopped := box("s5", "r5", "one", caisson.SandboxStopped, caisson.Dead)
	stopped.Served = &ServedView{}
	over := stopped
	over.ID, over.RunState = "s6", caisson.RunCancelled
	gone, goneOlder := box("s7", "r7", "one", caisson.SandboxRemoved, caisson.Dead), box("s8", "r8", "one", caisson.SandboxRemoved, caisson.Dead)
	other := box("t1", "r91", "two", caisson.SandboxRunning, caisson.Alive)
	for what, c := range map[string]struct {
		list []BoxView
		ref  string
		gone bool
		want string
	}{
		"the one that lives":                    {[]BoxView{dead, alive, older}, "one", false, "s2"},
		"the one that may live":                 {[]BoxView{dead, unsure}, "one", false, "s3"},
		"the one that can be started again":     {[]BoxView{dead, over, stopped}, "one", false, "s5"},
		"of dead ones the newest":               {[]BoxView{dead, older}, "one", false, "s1"},
		"of those that are gone, too":           {[]BoxView{gone, goneOlder}, "one", true, "s7"},
		"by its workspace's name":               {[]BoxView{dead, alive}, "name-one", false, "s2"},
		"a dead one by its own id":              {[]BoxView{dead, alive}, "s1", false, "s1"},
		"several that live":                     {[]BoxView{dead, alive, stopped}, "one", false, "ambiguous s2 s5"},
		"a number":                              {[]BoxView{dead, alive, other}, "3", false, "t1"},
		"no number of what is gone":             {[]BoxView{gone}, "1", true, "not-found"},
		"a beginning":                           {[]BoxView{dead, other}, "r9", false, "t1"},
		"a beginning of several, also one dead": {[]BoxView{dead, alive, other}, "r", false, "ambiguous s1 s2 t1"},
		"nothing":                               {[]BoxView{dead}, "", false, "not-found"},
	} {
		v, err := chooseBox(c.list, c.ref, c.gone)
		got := string(v.ID)
		if err != nil {
			got = string(caisson.CodeOf(err))
			names, _ := caisson.AsError(err).Detail["candidates"].([]string)
			for _, name := range slices.Sorted(slices.Values(names)) {
				got += " " + name
			}
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", what, got, c.want)
		}
	}
}

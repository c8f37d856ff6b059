package process

import (
	"path/filepath"
	"testing"
)

const (
	meminfo = "MemTotal:       8000000 kB\nMemFree:          100000 kB\nMemAvailable:    4194304 kB\n"
	loadavg = "0.10 0.20 0.30 2/1500 4242\n"
)

func TestRoomIsTheLeastOfMachineAndCgroups(t *testing.T) {
	for name, c := range map[string]struct {
		cgroup, mountinfo string
		files             map[string]string
		want              Room
	}{
		"machine": {
			"0::/\n", "30 23 0:26 / @/sys rw - cgroup2 cgroup2 rw\n",
			map[string]string{"sys/memory.max": "max\n", "sys/memory.current": "5\n"},
			Room{4 << 30, 500},
		},
		"version 2, by the one above": {
			"0::/a/b\n", "30 23 0:26 / @/sys rw - cgroup2 cgroup2 rw\n",
			map[string]string{
				"sys/a/b/memory.max": "max\n", "sys/a/b/memory.current": "1000\n", "sys/a/b/pids.max": "max\n", "sys/a/b/pids.current": "3\n",
				"sys/a/memory.max": "1073741824\n", "sys/a/memory.current": "1000000000\n", "sys/a/memory.stat": "anon 5\ninactive_file 100000000\n",
				"sys/a/pids.max": "100\n", "sys/a/pids.current": "40\n",
			},
			Room{1<<30 - 900000000, 60},
		},
		"version 1, over its limit": {
			"2:memory:/x\n1:pids:/x\n", "30 23 0:26 / @/m rw - cgroup cgroup rw,memory\n31 23 0:27 /x @/p rw - cgroup cgroup rw,pids\n",
			map[string]string{
				"m/x/memory.limit_in_bytes": "1000\n", "m/x/memory.usage_in_bytes": "2000\n", "m/x/memory.stat": "total_inactive_file 500\n",
				"m/memory.limit_in_bytes": "9223372036854771712\n", "m/memory.usage_in_bytes": "1\n",
				"p/pids.max": "10\n", "p/pids.current": "10\n",
			},
			Room{0, 0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.files["meminfo"], c.files["loadavg"] = meminfo, loadavg
			c.files["sys/kernel/pid_max"], c.files["sys/kernel/threads-max"] = "2000\n", "60000\n"
			dir, groups := tree(t, c.cgroup, c.mountinfo, c.files)
			got, err := groups.roomIn(dir)
			if err != nil || got != c.want {
				t.Errorf("%+v, %v, want %+v", got, err, c.want)
			}
		})
	}
	if _, err := (*Cgroups)(nil).roomIn(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a machine that says nothing has room")
	}
}

func TestThisHostHasRoom(t *testing.T) {
	c, err := FindCgroups()
	if err != nil {
		t.Fatal(err)
	}
	room, err := c.Room()
	if err != nil || room.Memory < 1<<20 || room.Memory > 1<<50 || room.Pids < 1 || room.Pids > 1<<30 {
		t.Errorf("%+v, %v", room, err)
	}
}

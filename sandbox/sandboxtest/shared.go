package sandboxtest

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// sharing attaches shared memory of a number that it is given, and makes some.
const sharing = `import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
at = libc.shmat(%d, None, 0o10000)
if at not in (None, ctypes.c_void_p(-1).value):
    print("read:", ctypes.string_at(at))
libc.shmget(0x%x, 4096, 0o1666)
libc.mq_open(b"/%s", 0o102, 0o666, None)`

// hostSharesNoMemory covers what is shared between processes and lies in no file
// system.
func hostSharesNoMemory(t *testing.T, h Harness) {
	const key = 0x4715ca15
	id, err := unix.SysvShmGet(unix.IPC_PRIVATE, 4096, unix.IPC_CREAT|0o666)
	if err != nil {
		t.Skipf("the kernel has no shared memory: %v", err)
	}
	remove := func(id int) { _, _ = unix.SysvShmCtl(id, unix.IPC_RMID, nil) }
	t.Cleanup(func() { remove(id) })
	memory, err := unix.SysvShmAttach(id, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.SysvShmDetach(memory) }()
	copy(memory, hiddenText)
	name := fmt.Sprintf("caisson-suite-%d", os.Getpid())
	o := open(t, h)
	if got := o.python(fmt.Sprintf(sharing, id, key, name)); strings.Contains(got, hiddenText) {
		t.Errorf("memory of the host's can be read: %.100s", got)
	}
	if left, err := unix.SysvShmGet(key, 4096, 0); err == nil {
		remove(left)
		t.Error("shared memory was left on the host")
	}
}

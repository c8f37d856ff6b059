package cli_test

import (
	"testing"

	"github.com/creack/pty"
)

// A person is asked, once, for exactly what was found; no is the default, and
// what was typed before is no answer.
func TestRemoveOnATerminal(t *testing.T) {
	t.Parallel()
	p := newPerson(t, map[string]string{})
	p.start(window, "run", "--", "sh", "-c", "echo loose >loose").ends(0)
	name := string(p.run().ID)

	master, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	if _, err := master.WriteString("y\n"); err != nil { // before it is there, and so before it asks
		t.Fatal(err)
	}
	s := p.startOn(master, tty, window, "workspace", "rm", name)
	tty.Close()
	s.see("change     loose  not tracked", 1)
	s.see("Move it to the trash with all of that? [y/N]", 1)
	s.write("\n")
	s.ends(1)
	s.see("[workspace-dirty]", 1)

	s = p.start(window, "workspace", "rm", "--yes", name)
	s.see("kept: a change that is not committed", 1)
	s.ends(1)

	s = p.start(window, "workspace", "rm", name)
	s.see("[y/N]", 1)
	s.write("y\n")
	s.see("Removed "+name, 1)
	s.ends(0)

	s = p.start(window, "workspace", "trash", "prune", name)
	s.see("Remove it for good? [y/N]", 1)
	s.write("n\n")
	s.ends(1)
	s = p.start(window, "workspace", "trash", "restore", name)
	s.see("Restored "+name, 1)
	s.ends(0)
	s = p.start(window, "workspace", "rm", name)
	s.see("[y/N]", 1)
	s.write("yes\n")
	s.ends(0)
	s = p.start(window, "workspace", "trash", "prune", name)
	s.see("[y/N]", 1)
	s.write("y\n")
	s.see("Pruned "+name, 1)
	s.ends(0)
}

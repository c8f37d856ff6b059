package gate

import (
	"path"
	"slices"
	"strings"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/gate/shell"
)

// FloorRule is a catastrophe that no setting allows.
type FloorRule struct {
	Name   string
	Reason string
}

// Floor returns the rules of the floor. They speak only of what is known of a
// line: an unknown word is not taken for the worst that it could be.
func Floor() []FloorRule {
	return []FloorRule{
		{"floor-erase", "it would erase the system or the home directory"},
		{"floor-format", "it would format or overwrite a disk"},
		{"floor-device", "it would write to a device or to the kernel"},
		{"floor-bomb", "it starts itself without end"},
		{"floor-shutdown", "it would stop the machine"},
		{"floor-permissions", "it would change the permissions or the owner of the whole system or of the home directory"},
	}
}

func floorFinding(name string) *finding {
	for _, r := range Floor() {
		if r.Name == name {
			return &finding{layer: LayerFloor, rule: r.Name, digest: caisson.DigestOf([]byte("floor\x00" + r.Name)), ruling: caisson.Deny, reason: r.Reason, otherInput: true}
		}
	}
	return nil
}

func floor(readings []shell.Reading, all []use) *finding {
	for _, r := range readings {
		if r.Bomb {
			return floorFinding("floor-bomb")
		}
		for _, c := range r.Commands {
			if name := floorCommand(c); name != "" {
				return floorFinding(name)
			}
		}
	}
	for _, u := range all {
		if u.Write && u.known && rawDevice(u.Path) {
			return floorFinding("floor-device")
		}
	}
	return nil
}

var (
	formatters = []string{"mke2fs", "mkswap", "wipefs", "blkdiscard", "sfdisk", "sgdisk", "hdparm", "nvme"}
	stoppers   = []string{"shutdown", "reboot", "halt", "poweroff"}
	stopVerbs  = []string{"poweroff", "reboot", "halt", "kexec", "suspend", "hibernate", "rescue", "emergency", "soft-reboot"}
)

func floorCommand(c shell.Command) string {
	if !c.Words[0].Known {
		return ""
	}
	args := c.Words[1:]
	switch name := path.Base(c.Words[0].Text); {
	case name == "rm" && recursive(args, "rR"), name == "find" && deletes(args):
		if slices.ContainsFunc(args, wholeSystem) {
			return "floor-erase"
		}
	case name == "mv" && len(args) > 1 && slices.ContainsFunc(args[:len(args)-1], wholeSystem):
		return "floor-erase"
	case name == "chmod" || name == "chown" || name == "chgrp":
		if recursive(args, "R") && slices.ContainsFunc(args, wholeSystem) {
			return "floor-permissions"
		}
	case strings.HasPrefix(name, "mkfs"), slices.Contains(formatters, name), name == "shred", name == "fdisk", name == "parted":
		if strings.HasPrefix(name, "mkfs.") || name == "mkfs" || slices.ContainsFunc(args, deviceWord("")) {
			return formats(args)
		}
	case name == "dd" && slices.ContainsFunc(args, deviceWord("of=")):
		return "floor-format"
	case name == "tee" || name == "cp":
		if len(args) > 0 && (name == "tee" && slices.ContainsFunc(args, deviceWord("")) || deviceWord("")(args[len(args)-1])) {
			return "floor-device"
		}
	case slices.Contains(stoppers, name):
		return "floor-shutdown"
	case name == "init" || name == "telinit":
		if len(args) > 0 && slices.Contains([]string{"0", "6"}, args[0].Text) {
			return "floor-shutdown"
		}
	case name == "systemctl" || name == "loginctl":
		if slices.ContainsFunc(args, func(w shell.Word) bool { return slices.Contains(stopVerbs, w.Text) }) {
			return "floor-shutdown"
		}
	}
	return ""
}

// formats leaves alone who only asks for help, and images in ordinary files.
func formats(args []shell.Word) string {
	for _, w := range args {
		if deviceWord("")(w) {
			return "floor-format"
		}
	}
	last := len(args) - 1
	if last >= 0 && !strings.HasPrefix(args[last].Text, "-") && !args[last].Known {
		return "floor-format" // a file system on nobody knows what
	}
	return ""
}

// recursive tells whether one of the options is one of the letters, or long.
func recursive(args []shell.Word, letters string) bool {
	for _, w := range args {
		switch {
		case w.Text == "--":
			return false
		case strings.HasPrefix(w.Text, "--"):
			if len(w.Text) > 4 && strings.HasPrefix("--recursive", w.Text) {
				return true
			}
		case strings.HasPrefix(w.Text, "-") && strings.ContainsAny(w.Text, letters):
			return true
		}
	}
	return false
}

func deletes(args []shell.Word) bool {
	for i, w := range args {
		if w.Text == "-delete" || strings.HasPrefix(w.Text, "-exec") && i+1 < len(args) && path.Base(args[i+1].Text) == "rm" {
			// A search that is narrowed is not the whole system.
			return !slices.ContainsFunc(args, func(a shell.Word) bool {
				return strings.HasSuffix(a.Text, "name") || strings.HasSuffix(a.Text, "path") || strings.HasSuffix(a.Text, "regex") || strings.HasSuffix(a.Text, "time")
			})
		}
	}
	return false
}

// roots are directories without which nothing works.
var roots = []string{
	"/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib32", "/lib64", "/opt", "/proc", "/root", "/run",
	"/sbin", "/srv", "/sys", "/usr", "/var", "/Users", "/System", "/Library", "/Applications",
	"~", "$HOME",
}

// wholeSystem tells whether a word is one of the roots, or all that is in one.
// A word's text shows globs and variables as they were written.
func wholeSystem(w shell.Word) bool {
	text := w.Text
	if !w.Tilde && strings.HasPrefix(text, "~") || text == "" {
		return false
	}
	if w.Known && strings.Contains(text, "$") {
		return false // in single quotes
	}
	text = path.Clean(text)
	for range 2 {
		if slices.Contains(roots, text) {
			return true
		}
		dir, last := path.Split(text)
		if w.Known || last != "*" && last != ".*" && last != "{*,.*}" {
			return false
		}
		text = path.Clean(dir)
	}
	return false
}

func deviceWord(prefix string) func(shell.Word) bool {
	return func(w shell.Word) bool {
		rest, ok := strings.CutPrefix(w.Text, prefix)
		return ok && w.Known && rawDevice(path.Clean(rest))
	}
}

// harmless are devices that hold nothing.
var harmless = []string{"null", "zero", "full", "random", "urandom", "stdin", "stdout", "stderr", "tty", "ptmx"}

// kernelFiles are written only to change or stop the machine.
var kernelFiles = []string{"/proc/sysrq-trigger", "/proc/kcore", "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/sys/kernel/uevent_helper"}

func rawDevice(file string) bool {
	if slices.Contains(kernelFiles, file) {
		return true
	}
	rest, ok := strings.CutPrefix(file, "/dev/")
	if !ok || slices.Contains(harmless, rest) {
		return false
	}
	first, _, _ := strings.Cut(rest, "/")
	return !slices.Contains([]string{"fd", "pts", "shm", "mqueue", "tcp", "udp"}, first)
}

package sandboxtest

import (
	"testing"

	"github.com/caisson-run/caisson"
)

// Case is one case of the suite.
type Case struct {
	Name string
	// Control is the one that the case tries, or empty for what is no control.
	Control caisson.Control
	// Tries says what is tried, as a sentence without its subject.
	Tries string
}

// Cases lists the cases, for documents.
func Cases() []Case {
	var out []Case
	for _, c := range cases() {
		out = append(out, c.Case)
	}
	return out
}

type runnable struct {
	Case
	test func(*testing.T, Harness)
}

func cases() []runnable {
	const (
		none      = caisson.Control("")
		files     = caisson.ControlFiles
		network   = caisson.ControlNetwork
		processes = caisson.ControlProcesses
		memory    = caisson.ControlMemory
		pids      = caisson.ControlPids
		cpu       = caisson.ControlCPU
		disk      = caisson.ControlDisk
		rights    = caisson.ControlPrivileges
		syscalls  = caisson.ControlSyscalls
	)
	return []runnable{
		{Case{"TestCase_S01", processes, "outlive a deadline in a session of its own, forked twice, holding the output"}, deadlineEndsTree},
		{Case{"TestCase_S02", processes, "hold the output open after the shell has ended"}, pipeHolderDoesNotHold},
		{Case{"TestCase_S03", none, "read an input that was not given"}, stdinEndsAtOnce},
		{Case{"TestCase_S05", files, "have a missing path made on the host"}, nothingIsCreatedOnHost},
		{Case{"TestCase_S06", none, "work with a git directory that holds links to elsewhere"}, gitMayHoldLinks},
		{Case{"Submodules", none, "show the tree of a submodule, inside only"}, submodulesAreShown},
		{Case{"TestCase_S07", none, "commit, rebase, stash and branch in a linked worktree"}, gitWorksInside},
		{Case{"TestCase_S08", none, "work in a repository with configuration of each worktree"}, worktreeConfigWorks},
		{Case{"TestCase_S09", files, "work without a workspace"}, worksWithoutWorkspace},
		{Case{"TestCase_S10", files, "see or leave a file in a /tmp of another"}, tmpIsPrivate},
		{Case{"TestCase_S11", files, "find a token of the host's environment"}, environmentIsNotInherited},
		{Case{"TestCase_S14", network, "connect to a unix socket of the host, abstract or by path"}, hostSocketsAreOutOfReach},
		{Case{"TestCase_S15_Forks", pids, "fork without end"}, forksAreBounded},
		{Case{"TestCase_S15_Memory", memory, "take 10 GiB of memory"}, memoryIsBounded},
		{Case{"TestCase_S15_Small", memory, "have the guest ended for the memory that many small programs take"}, smallProgramsEndFirst},
		{Case{"TestCase_S15_Tmp", disk, "fill /tmp with bytes and with files"}, tmpIsBounded},
		{Case{"TestCase_S16", none, "write much output that is not UTF-8"}, outputIsExact},
		{Case{"TestCase_S17", files, "read and write through links that lead out"}, linksLeadNowhere},
		{Case{"TestCase_S18", processes, "make 10,000 orphans"}, orphansAreReaped},
		{Case{"TestCase_S19", none, "pass arguments of any bytes"}, argumentsAreExact},
		{Case{"TestCase_S20", network, "reach the outside by TCP, UDP, IPv6, ICMP, raw sockets and DNS"}, networkIsOutOfReach},
		{Case{"ReadOnly", files, "write to and look at the host's files"}, hostPathsAreReadOnly},
		{Case{"Marks", files, "change modes, owners, times and attributes of the host's files"}, hostFilesKeepTheirMarks},
		{Case{"Exchanged", files, "exchange a directory for links that lead out while the file service works in it"}, exchangedDirectoriesLeadNowhere},
		{Case{"Shared", files, "read shared memory of the host's programs, and leave some on the host"}, hostSharesNoMemory},
		{Case{"ReadOnlyWorkspace", files, "write to a read-only workspace"}, workspaceMayBeReadOnly},
		{Case{"Hidden", files, "read, replace and copy hidden files, by command, file service, glob and grep"}, filesAreHidden},
		{Case{"HiddenLater", files, "read hidden files that are added, replaced and moved in meanwhile"}, filesAddedLaterAreHidden},
		{Case{"HiddenMoved", files, "move hidden files about while commands begin"}, hiddenFilesCannotBeMovedAway},
		{Case{"HiddenGit", files, "commit a hidden file as empty or deleted"}, hiddenFilesStayCommitted},
		{Case{"Mounts", files, "write to what was lent to read"}, mountsAreShown},
		{Case{"Layers", files, "change what was lent under a private layer"}, layersArePrivate},
		{Case{"Ptrace", syscalls, "trace without leave, and do more than that with it"}, tracingIsByLeave},
		{Case{"Owner", none, "keep the owner of files"}, filesKeepTheirOwner},
		{Case{"Processes", processes, "see and signal processes of the host"}, hostProcessesAreUnseen},
		{Case{"Keys", rights, "see keyrings of the host"}, hostKeysAreUnseen},
		{Case{"Privileges", rights, "gain a privilege: set-uid, su, mount, settings of the kernel"}, nothingGainsPrivileges},
		{Case{"Cores", rights, "have the host's crash handler, which the kernel runs as root outside, take a dump"}, hostTakesNoCores},
		{Case{"SetUID", rights, "leave a program on the host that runs as its owner, by each call that takes a mode"}, setUIDFilesAreNotMade},
		{Case{"Leases", syscalls, "make whoever opens a file of the workspace wait"}, hostOpensWithoutWaiting},
		{Case{"Share", none, "take all of what the kernel counts by user; hold what closes slowly"}, hostKeepsItsShare},
		{Case{"Syscalls", syscalls, "call what is filtered, also with the upper halves of arguments set"}, systemCallsAreFiltered},
		{Case{"Guest", processes, "read, signal and limit the guest"}, guestIsShielded},
		{Case{"Loopback", none, "reach a server inside from inside"}, loopbackWorks},
		{Case{"Two", processes, "see another sandbox"}, twoAreApart},
		{Case{"Close", processes, "outlive the sandbox"}, closeEndsAll},
		{Case{"Home", none, "keep what is in HOME with the workspace"}, homeIsKept},
		{Case{"Processors", cpu, "use more processors than allowed"}, processorsAreBounded},
		{Case{"Report", none, "report each control with mechanism and test"}, reportIsWhole},
		{Case{"Require", none, "open where a required control is missing"}, requirementsAreKept},
		{Case{"BadInput", none, "lend what cannot be lent"}, badInputIsRefused},
		{Case{"Control", none, "ask the host by the program caisson-guest that is in PATH"}, controlChannelWorks},
		{Case{"Development", none, "build, test and serve with ordinary tools"}, developmentWorks},
	}
}

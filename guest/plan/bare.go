package plan

// BareArgument is what the guest program is started with where there are no
// namespaces: it restricts itself and executes itself with ProvenArgument, so
// that the kernel's rules are one and the same for all its threads.
const (
	BareArgument   = "bare"
	ProvenArgument = "bare-proof"
)

// PlanFD is where the second finds the plan of the first.
const PlanFD = 100

// RulesFD is where the rules are that each command is put under; nothing is
// there where the kernel has none of that kind.
const RulesFD = 101

// ScoreFD is where the second finds its own /proc/self/oom_score_adj, which it
// may not open any more; nothing is there where the first could not.
const ScoreFD = 102

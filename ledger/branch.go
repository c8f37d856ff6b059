package ledger

import (
	"strconv"
	"strings"
)

// Numbered tells whether a branch is the one that was wished for, or that with a
// number from 2 on: <wish>-2, <wish>-3, …
func Numbered(branch, wish string) bool {
	rest, ok := strings.CutPrefix(branch, wish)
	if !ok || rest == "" {
		return ok
	}
	i, err := strconv.Atoi(strings.TrimPrefix(rest, "-"))
	return err == nil && i >= 2 && rest == "-"+strconv.Itoa(i)
}

// Free is the first branch that is not taken of the one wished for and those with
// a number.
func Free(wish string, taken map[string]bool) string {
	branch := wish
	for i := 2; taken[branch]; i++ {
		branch = wish + "-" + strconv.Itoa(i)
	}
	return branch
}

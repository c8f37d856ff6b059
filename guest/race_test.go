//go:build race

package guest_test

// raceEnabled says that this program cannot be a guest: the race detector
// follows every Go function, and a holder's is none that it knows.
const raceEnabled = true

package inside

import (
	"runtime"
	"sync"
	"time"
)

// readyAfter is how long a first command runs before threads are made: one that ends
// at once needs none, and waits for none; in so short a time none fills a box.
const readyAfter = 2 * time.Millisecond

// makeThreads makes n threads and leaves them to the runtime, which keeps them. It
// makes one more by itself when all that it has are in system calls, and ends the
// program where it cannot: a command that fills the box with processes would end
// the box. One that ends many trees at once may still come to that.
func makeThreads(n int) {
	var there, gone sync.WaitGroup
	enough := make(chan struct{})
	there.Add(n)
	for range n {
		gone.Go(func() {
			runtime.LockOSThread() // who waits locked keeps its thread to itself
			defer runtime.UnlockOSThread()
			there.Done()
			<-enough
		})
	}
	there.Wait()
	close(enough)
	gone.Wait()
}

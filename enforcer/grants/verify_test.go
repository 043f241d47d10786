package grants

import (
	"runtime"
	"testing"
)

// TestYieldLetsAWaitingGoroutineRun: with one processor, a goroutine that waits for the lock has
// it before yield returns.
func TestYieldLetsAWaitingGoroutineRun(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	table := New(Config{})
	const rounds = 100
	had := 0
	for range rounds {
		table.mu.Lock()
		locked, done := false, make(chan bool)
		go func() {
			table.mu.Lock()
			locked = true
			table.mu.Unlock()
			close(done)
		}()
		for range 10 {
			runtime.Gosched() // the goroutine comes to wait
		}
		table.yield()
		if locked {
			had++
		}
		table.mu.Unlock()
		<-done
	}
	// The scheduler looks into its global queue first now and then.
	if had < rounds/2 {
		t.Errorf("the goroutine had the lock in %d of %d rounds", had, rounds)
	}
}

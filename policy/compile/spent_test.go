package compile

import (
	"syscall"
	"testing"
	"time"
)

// spent returns the processor time that f takes, on however busy a machine.
func spent(t *testing.T, f func()) time.Duration {
	t.Helper()
	used := func() time.Duration {
		var r syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
			t.Fatal(err)
		}
		return time.Duration(r.Utime.Nano() + r.Stime.Nano())
	}
	before := used()
	f()
	return used() - before
}

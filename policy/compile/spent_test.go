package compile

import (
	"syscall"
	"testing"
	"time"

	"github.com/namegate/namegate/testkit/fatal"
)

// spent returns the processor time that f takes, on however busy a machine.
func spent(t *testing.T, f func()) time.Duration {
	t.Helper()
	used := func() time.Duration {
		var r syscall.Rusage
		fatal.If(t, syscall.Getrusage(syscall.RUSAGE_SELF, &r))
		return time.Duration(r.Utime.Nano() + r.Stime.Nano())
	}
	before := used()
	f()
	return used() - before
}

package inject

import (
	"errors"
	"strings"
	"syscall"
	"testing"
)

// TestUnsupported: the errors of kernels without a qdisc, a filter, an action or a kind
// of link, and their errors for other reasons.
func TestUnsupported(t *testing.T) {
	t.Parallel()
	for errno, want := range map[syscall.Errno]bool{
		syscall.ENOENT: true, syscall.EOPNOTSUPP: true,
		syscall.EPERM: false, syscall.EEXIST: false, syscall.ENODEV: false, syscall.EINVAL: false,
	} {
		err := unsupported(errno)
		if errors.Is(err, errUnsupported) != want || !errors.Is(err, errno) {
			t.Errorf("%v becomes %v", errno, err)
		}
		if want && !strings.Contains(err.Error(), "act_mirred") {
			t.Errorf("%v does not say what to load", err)
		}
	}
}

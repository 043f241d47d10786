// Package diff compares what a test wants with what it got, and tells the difference.
package diff

import (
	"fmt"
	"net/netip"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// T is the part of a test that a comparison needs.
type T interface {
	Helper()
	Error(args ...any)
	Fatal(args ...any)
}

// addresses have private fields.
var addresses = cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{}, netip.Prefix{})

// Error fails the test if what it got differs. The words at say where.
func Error(t T, want, got any, at ...any) {
	t.Helper()
	if d := cmp.Diff(want, got, addresses); d != "" {
		t.Error(fmt.Sprintln(at...) + "(-want +got)\n" + d)
	}
}

// Fatal is Error that ends the test.
func Fatal(t T, want, got any, at ...any) {
	t.Helper()
	if d := cmp.Diff(want, got, addresses); d != "" {
		t.Fatal(fmt.Sprintln(at...) + "(-want +got)\n" + d)
	}
}

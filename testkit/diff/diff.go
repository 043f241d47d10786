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

// Text is the difference, empty without one.
func Text(want, got any) string { return cmp.Diff(want, got, addresses) }

// Error fails the test if what it got differs. The words at say where.
func Error(t T, want, got any, at ...any) {
	t.Helper()
	if d := Text(want, got); d != "" {
		t.Error(fmt.Sprintln(at...) + "(-want +got)\n" + d)
	}
}

// Fatal is Error that ends the test.
func Fatal(t T, want, got any, at ...any) {
	t.Helper()
	if d := Text(want, got); d != "" {
		t.Fatal(fmt.Sprintln(at...) + "(-want +got)\n" + d)
	}
}

// Equal fails the test if a value is another one than it wants.
func Equal[V comparable](t T, want, got V, at ...any) {
	t.Helper()
	if got != want {
		t.Error(fmt.Sprintln(at...) + fmt.Sprintf("got %v, want %v", got, want))
	}
}

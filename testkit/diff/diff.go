// Package diff compares what a test wants with what it got, and tells the difference.
package diff

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/namegate/namegate/testkit/fatal"
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
		t.Error(fatal.Words(at) + "\n(-want +got)\n" + d)
	}
}

// Fatal is Error that ends the test.
func Fatal(t T, want, got any, at ...any) {
	t.Helper()
	if d := Text(want, got); d != "" {
		t.Fatal(fatal.Words(at) + "\n(-want +got)\n" + d)
	}
}

// Equal fails the test if a value is another one than it wants.
func Equal[V comparable](t T, want, got V, at ...any) {
	t.Helper()
	if got != want {
		t.Error(unequal(want, got, at))
	}
}

// MustEqual is Equal that ends the test.
func MustEqual[V comparable](t T, want, got V, at ...any) {
	t.Helper()
	if got != want {
		t.Fatal(unequal(want, got, at))
	}
}

func unequal(want, got any, at []any) string {
	return fmt.Sprintf("%s\ngot %+v, want %+v", fatal.Words(at), got, want)
}

// Fails fails the test if err is not an error whose text has what it wants.
func Fails(t T, want string, err error, at ...any) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Error(fmt.Sprintf("%s\ngot the error %v, want one with %q", fatal.Words(at), err, want))
	}
}

// Is fails the test if err neither is nor wraps the error that it wants.
func Is(t T, want, err error, at ...any) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Error(fmt.Sprintf("%s\ngot the error %v, want %v", fatal.Words(at), err, want))
	}
}

// Has fails the test if a text does not have the part that it wants.
func Has(t T, want, got string, at ...any) {
	t.Helper()
	if !strings.Contains(got, want) {
		t.Error(fmt.Sprintf("%s\nwant %q in\n%.4000s", fatal.Words(at), want, got))
	}
}

// Empty fails the test if there is anything.
func Empty[E any](t T, got []E, at ...any) {
	t.Helper()
	if len(got) > 0 {
		t.Error(fmt.Sprintf("%s\ngot %+v, want none", fatal.Words(at), got))
	}
}

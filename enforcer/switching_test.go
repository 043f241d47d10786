package enforcer

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/namegate/namegate/e2e/fatal"
	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/policy"
)

// otherPlane is a dataplane that cannot be read, and fails to remove its objects a few times.
type otherPlane struct {
	dataplane.Interface
	failures, removals int
}

func (o *otherPlane) Remove(context.Context, func([]netip.Addr) error) error {
	if o.failures--; o.failures >= 0 {
		return errors.New("refused")
	}
	o.removals++
	return nil
}

// TestOtherDataplaneThatStays: objects of the other dataplane that cannot be removed once the
// earlier agent has gone are a deviation, and comparisons try again without a change of policies.
func TestOtherDataplaneThatStays(t *testing.T) {
	w, p := web(t)
	ctx, other := context.Background(), &otherPlane{failures: 2}
	_, end := overlap(t, w, func() {
		w.e.k.Other = &Other{Left: func(context.Context) (bool, error) { return true, nil }, New: func(dataplane.Owner) dataplane.Interface { return other }, Unreadable: true}
		fatal.If(t, w.e.findOther(ctx))
		w.apply([]policy.Pod{p}, pol("allow", "tcp/443 www.example.org"))
	})
	if !w.awaits() || other.removals > 0 || other.failures != 2 {
		t.Fatalf("while the earlier agent is there: %+v", other)
	}
	w.reconcile()
	if other.removals > 0 || other.failures != 2 {
		t.Fatalf("a comparison while the earlier agent is there: %+v", other)
	}
	end()
	if w.awaits() {
		t.Fatal("the earlier agent is gone, and awaited")
	}
	deviates := func(want bool, when string) {
		t.Helper()
		w.clock.Pass(2 * deviationGrace)
		is := false
		for _, d := range w.e.Deviations() {
			is = is || d.Object == "other dataplane" && d.Error != ""
		}
		if is != want {
			t.Errorf("%s: %v", when, w.e.Deviations())
		}
	}
	deviates(true, "after a removal that failed")
	if err := w.e.reconcile(ctx, false, true); err == nil || other.removals > 0 {
		t.Errorf("the second failure: %v, %+v", err, other)
	}
	deviates(true, "after the second one")
	fatal.If(t, w.e.reconcile(ctx, false, true))
	deviates(false, "after a removal")
	if other.removals != 1 {
		t.Errorf("%+v", other)
	}
}

// TestIsolatedAlthoughTheOtherDataplaneStays: while objects of the other dataplane cannot be
// removed no snapshot comes into force, and coming pods are default-deny.
func TestIsolatedAlthoughTheOtherDataplaneStays(t *testing.T) {
	w, p := web(t)
	overlap(t, w, func() {
		w.e.k.Other = &Other{Left: func(context.Context) (bool, error) { return true, nil }, New: func(dataplane.Owner) dataplane.Interface { return &otherPlane{failures: 1} }, Unreadable: true}
		fatal.If(t, w.e.findOther(context.Background()))
		w.apply([]policy.Pod{p}, pol("allow", "tcp/443 www.example.org"))
	})
	coming := w.compile([]policy.Pod{p, pod("other", "10.1.0.6", "allow")}, pol("allow", "tcp/443 www.example.org"))
	if err := w.rollOut(coming); err == nil {
		t.Error("a snapshot came into force beside the other dataplane")
	}
	if dump := w.inet.Dump(); !strings.Contains(dump, "selected4 { 10.1.0.6 }") {
		t.Errorf("a coming pod is open:\n%s", dump)
	}
	fatal.If(t, w.rollOut(coming))
}

package enforcer

import (
	"testing"

	"github.com/namegate/namegate/kernel/link"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/fatal"
)

// Links change while the agent resolves names between Prepare and Commit: what
// was prepared must stand.
func TestReconcileBetweenPrepareAndCommit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	web, late := pod("web", "10.1.0.5", "one", "two"), pod("late", "10.1.0.6", "two")
	w.links.SetHome(addr("10.1.0.6"), link.Home{Iface: "veth6"})
	w.apply([]policy.Pod{web}, pol("one", "tcp/443 www.example.org"))
	next := w.compile([]policy.Pod{web, late}, pol("one", "tcp/443 www.example.org"), pol("two", "tcp/80 www.example.com"))
	w.prepare(next)
	w.links.SetHome(addr("10.1.0.5"), link.Home{Iface: "veth5"})
	w.reconcile()
	fatal.If(t, w.answerBy(next, web, "www.example.com", 60, "192.0.2.2"))
	if !w.dials("10.1.0.5", "192.0.2.2", 80) {
		t.Error("the kernel acknowledged a grant and the first packet is dropped")
	}
	if w.dials("10.1.0.5", "192.0.2.9", 80) || !w.dials("10.1.0.6", "192.0.2.9", 25) {
		t.Error("before Commit exactly the pods of the snapshot in force are denied")
	}
	w.commit()
	if got := w.e.Status().Homeless; len(got) != 0 {
		t.Errorf("after Commit homeless: %v", got)
	}
}

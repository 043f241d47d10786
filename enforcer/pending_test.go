package enforcer

import (
	"context"
	"testing"
	"time"

	"github.com/namegate/namegate/e2e/fatal"
	"github.com/namegate/namegate/kernel/link"
	"github.com/namegate/namegate/policy"
)

// Links change while the agent resolves names between Prepare and Commit: what
// was prepared must stand.
func TestReconcileBetweenPrepareAndCommit(t *testing.T) {
	w := newWorld(t)
	web, late := pod("web", "10.1.0.5", "one", "two"), pod("late", "10.1.0.6", "two")
	w.links.SetHome(addr("10.1.0.6"), link.Home{Iface: "veth6"})
	w.apply([]policy.Pod{web}, pol("one", "tcp/443 www.example.org"))
	next := w.compile([]policy.Pod{web, late}, pol("one", "tcp/443 www.example.org"), pol("two", "tcp/80 www.example.com"))
	fatal.If(t, w.e.Prepare(context.Background(), next))
	w.links.SetHome(addr("10.1.0.5"), link.Home{Iface: "veth5"})
	w.reconcile()
	fatal.If(t, w.e.grants.Grant(context.Background(), w.grants(next, web.PodRef, "www.example.com", 60, "192.0.2.2")))
	if !w.dials("10.1.0.5", "192.0.2.2", 80) {
		t.Error("the kernel acknowledged a grant and the first packet is dropped")
	}
	if w.dials("10.1.0.5", "192.0.2.9", 80) || !w.dials("10.1.0.6", "192.0.2.9", 25) {
		t.Error("before Commit exactly the pods of the snapshot in force are denied")
	}
	fatal.If(t, w.e.Commit(context.Background()))
	if got := w.e.Status().Homeless; len(got) != 0 {
		t.Errorf("after Commit homeless: %v", got)
	}
}

func TestNewPortsKeepConnectionsThatOutliveTheirGrant(t *testing.T) {
	w := newWorld(t)
	web := pod("web", "10.1.0.5", "allow")
	w.apply([]policy.Pod{web}, pol("allow", "tcp/443 www.example.org"))
	w.answer(web, "www.example.org", 60, "192.0.2.1")
	f := flow("10.1.0.5:1001", "192.0.2.1:443")
	w.flows.Track(f)
	w.expire(time.Hour)
	w.apply([]policy.Pod{web}, pol("allow", "tcp/443,tcp/8443 www.example.org"))
	if !w.admitted(f) {
		t.Error("a long connection is cut because its rule got another port")
	}
	w.apply([]policy.Pod{web}, pol("allow", "tcp/8443 www.example.org"))
	if w.admitted(f) {
		t.Error("its port is closed, and it goes on")
	}
}

func TestHistoryKeepsEveryReason(t *testing.T) {
	w := newWorld(t)
	web := pod("web", "10.1.0.5", "one", "two")
	one, two := pol("one", "tcp/443 www.example.org"), pol("two", "tcp/443 www.example.net")
	w.apply([]policy.Pod{web}, one, two)
	w.answer(web, "www.example.org", 60, "192.0.2.1")
	f := flow("10.1.0.5:1001", "192.0.2.1:443")
	w.flows.Track(f)
	w.expire(200 * time.Second)
	w.answer(web, "www.example.net", 60, "192.0.2.1")
	w.expire(200 * time.Second)
	w.apply([]policy.Pod{web}, one)
	if !w.admitted(f) {
		t.Error("cut although its own policy still allows the name")
	}
	w.apply([]policy.Pod{web}, two)
	if w.admitted(f) {
		t.Error("no name that it was opened for is allowed, and it goes on")
	}
}

// TestHistoryKeepsReasonsThatEndWhileOthersHold the address open.
func TestHistoryKeepsReasonsThatEndWhileOthersHold(t *testing.T) {
	w := newWorld(t)
	web := pod("web", "10.1.0.5", "one", "two")
	one, two := pol("one", "tcp/443 www.example.org"), pol("two", "tcp/443 *.example.net")
	w.apply([]policy.Pod{web}, one, two)
	w.answer(web, "www.example.org", 60, "192.0.2.1")
	w.answer(web, "www.example.net", 600, "192.0.2.1")
	f := flow("10.1.0.5:1001", "192.0.2.1:443")
	w.flows.Track(f)
	w.expire(200 * time.Second)
	w.answer(web, "ftp.example.net", 600, "192.0.2.1")
	w.apply([]policy.Pod{web}, one)
	if !w.admitted(f) {
		t.Error("cut although its own policy still allows the name")
	}
}

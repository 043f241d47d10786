package enforcer

import (
	"context"
	"testing"
	"time"

	"github.com/namegate/namegate/crds/v1alpha1"
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

// TestConnectionsOutliveTheirGrants for as long as a policy in force allows a name that
// opened their address.
func TestConnectionsOutliveTheirGrants(t *testing.T) {
	t.Parallel()
	one, two := pol("one", "tcp/443 www.example.org"), pol("two", "tcp/443 *.example.net")
	more, other := pol("one", "tcp/443,tcp/8443 www.example.org"), pol("one", "tcp/8443 www.example.org")
	type policies = []*v1alpha1.FQDNNetworkPolicy
	type answers = map[string]uint32 // TTLs by name
	for what, test := range map[string]struct {
		first    policies
		answers  []answers // 200 s apart; the connection is opened after the first
		then     []policies
		admitted []bool
	}{
		"its policy goes":            {policies{one, two}, []answers{{"www.example.org": 60}}, []policies{{one, two}, {two}}, []bool{true, false}},
		"another policy goes":        {policies{one, two}, []answers{{"www.example.net": 60}}, []policies{{one, two}, {two}}, []bool{true, true}},
		"its rule gets another port": {policies{one}, []answers{{"www.example.org": 60}}, []policies{{more}, {other}}, []bool{true, false}},
		"each reason counts":         {policies{one, two}, []answers{{"www.example.org": 60}, {"www.example.net": 60}}, []policies{{one}, {two}}, []bool{true, false}},
		"one ends, another holds on": {policies{one, two}, []answers{{"www.example.org": 60, "www.example.net": 600}, {"ftp.example.net": 600}}, []policies{{one}}, []bool{true}},
	} {
		w := newWorld(t)
		web := pod("web", "10.1.0.5", "one", "two")
		w.apply([]policy.Pod{web}, test.first...)
		f := flow("10.1.0.5:1001", "192.0.2.1:443")
		for i, names := range test.answers {
			for name, ttl := range names {
				w.answer(web, name, ttl, "192.0.2.1")
			}
			if i == 0 {
				w.flows.Track(f)
			}
			w.expire(200 * time.Second)
		}
		for i, policies := range test.then {
			w.apply([]policy.Pod{web}, policies...)
			if got := w.admitted(f); got != test.admitted[i] {
				t.Errorf("%s: step %d: the connection is admitted: %v", what, i, got)
			}
		}
	}
}

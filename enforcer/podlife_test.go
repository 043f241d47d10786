package enforcer

import (
	"context"
	"strings"
	"testing"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/enforcer/dataplane/xtables"
	"github.com/namegate/namegate/kernel/conntrack"
	"github.com/namegate/namegate/kernel/ipset"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/granttest"
)

func TestAnAddressIsUsedAgain(t *testing.T) {
	t.Parallel()
	next := func(name string) (policy.Pod, *world) {
		w := newWorld(t)
		web := pod("web", "10.1.0.5", "allow")
		w.apply([]policy.Pod{web}, pol("allow", "tcp/443 www.example.org"))
		w.answer(web, "www.example.org", 60, "192.0.2.1")
		w.track("10.1.0.5:1001", "192.0.2.1:443")
		heir := pod(name, "10.1.0.5", "allow")
		heir.UID = "another"
		return heir, w
	}
	for _, name := range []string{"web", "heir"} {
		heir, w := next(name)
		w.apply([]policy.Pod{heir}, pol("allow", "tcp/443 www.example.org"))
		if w.dials("10.1.0.5", "192.0.2.1", 443) {
			t.Errorf("%s inherits a grant", name)
		}
		if w.admitted(flow("10.1.0.5:1001", "192.0.2.1:443")) {
			t.Errorf("%s inherits a connection", name)
		}
		if err := granttest.Grant(context.Background(), w.e.grants, w.grants(w.snap, heir.PodRef, "www.example.org", 60, "192.0.2.1")); err != nil {
			t.Errorf("%s cannot be granted its own: %v", name, err)
		}
		if !w.dials("10.1.0.5", "192.0.2.1", 443) {
			t.Errorf("%s cannot use its own grant", name)
		}
	}
}

// TestBecomingSelectedJudgesOnce has pods with connections open become selected: one that was
// known, and one that comes with an address granted already.
func TestBecomingSelectedJudgesOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	web, comes := pod("web", "10.1.0.5 2001:db8:1::5", "allow"), pod("comes", "10.1.0.7 2001:db8:1::7", "allow")
	w.apply([]policy.Pod{pod("web", "10.1.0.5 2001:db8:1::5")}, pol("allow", "tcp/443 www.example.org"))
	plain := func(src, dst string, proto uint8) conntrack.Flow {
		f := flow(src, dst)
		f.Mark, f.Protocol = 0x2000, proto
		return w.tracked(f)
	}
	type row struct {
		conntrack.Flow
		stays bool
	}
	flows := map[string]row{"another pod": {plain("10.1.0.9:1001", "192.0.2.1:443", 6), false}}
	for _, n := range []string{"5", "7"} {
		for what, f := range map[string]row{
			"allowed":              {plain("10.1.0."+n+":1001", "192.0.2.1:443", 6), true},
			"allowed over IPv6":    {plain("[2001:db8:1::"+n+"]:1001", "[2001:db8::1]:443", 6), true},
			"another port":         {plain("10.1.0."+n+":1002", "192.0.2.1:80", 6), false},
			"another address":      {plain("10.1.0."+n+":1003", "192.0.2.9:443", 6), false},
			"another IPv6 address": {plain("[2001:db8:1::"+n+"]:1002", "[2001:db8::2]:443", 6), false},
			"another protocol":     {plain("10.1.0."+n+":1001", "192.0.2.1:443", 17), false},
			"its resolver":         {plain("10.1.0."+n+":1004", "192.0.2.53:53", 17), true},
			"its resolver, by TCP": {plain("10.1.0."+n+":1004", "192.0.2.53:53", 6), true},
			"itself":               {plain("10.1.0."+n+":1005", "10.1.0."+n+":80", 6), true},
		} {
			flows[what+" "+n] = f
		}
	}
	s := w.compile([]policy.Pod{web, comes}, pol("allow", "tcp/443 www.example.org"))
	w.prepare(s)
	// The agent resolves exact names before it commits.
	for _, p := range []policy.Pod{web, comes} {
		fatal.If(t, w.answerBy(s, p, "www.example.org", 60, "192.0.2.1 2001:db8::1"))
	}
	w.commit()
	for what, f := range flows {
		diff.Equal(t, f.stays, w.admitted(f.Flow), what, "admitted")
	}
	// Once: what a later grant covers does not come to life again.
	fatal.If(t, w.answerBy(s, web, "www.example.org", 60, "192.0.2.9"))
	w.apply([]policy.Pod{web, comes, pod("x", "10.1.0.8", "allow")}, pol("allow", "tcp/443 www.example.org"))
	if w.admitted(flows["another address 5"].Flow) {
		t.Error("a connection that was cut is admitted by a later grant")
	}
}

func TestAServicesBackendIsThePodItself(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	web := pod("web", "10.1.0.5", "allow")
	w.apply([]policy.Pod{web})
	f := flow("10.1.0.5:1001", "198.18.0.1:80")
	f.Mark, f.Peer = 0, addrPort("10.1.0.5:8080")
	w.flows.Track(f)
	w.apply([]policy.Pod{web}, pol("allow"))
	if !w.admitted(f) {
		t.Error("a pod's connection to itself through its Service is cut")
	}
}

func TestAuditPoliciesDenyNothingAndOpenNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	audit := pol("audit", "tcp/443 www.example.org")
	audit.Spec.Enforcement = v1alpha1.EnforcementAudit
	seen, both := pod("seen", "10.1.0.5", "audit"), pod("both", "10.1.0.6", "audit", "allow")
	w.apply([]policy.Pod{seen, both}, audit, pol("allow", "tcp/80 www.example.com"))
	if !w.dials("10.1.0.5", "192.0.2.9", 25) || w.dials("10.1.0.6", "192.0.2.9", 25) {
		t.Error("an Audit policy alone must not deny, beside an enforcing one it changes nothing")
	}
	g := policy.Grant{Pod: both.PodRef, Name: dns("www.example.org"), Addrs: addrs("192.0.2.1"), Ports: https, Deadline: w.clock.Now()}
	if err := granttest.Grant(context.Background(), w.e.grants, []policy.Grant{g}); err == nil {
		t.Error("a grant on an Audit policy's word was taken")
	}
	diff.Equal(t, 1, w.e.Status().Selected, "pods selected")
	if dump := w.inet.Dump(); !strings.Contains(dump, "intercepted4 { 10.1.0.5 }") || strings.Contains(dump, "selected4 { 10.1.0.5 }") {
		t.Error("a pod that is only audited must be intercepted, and not denied")
	}
}

func TestDropAppliesOnlyToItsPods(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	drop := pol("drop")
	drop.Spec.Denied = v1alpha1.DeniedDrop
	w.apply([]policy.Pod{pod("a", "10.1.0.5", "drop", "allow"), pod("b", "10.1.0.6", "allow")}, drop, pol("allow"))
	if dump := w.inet.Dump(); !strings.Contains(dump, "dropped4 { 10.1.0.5 }") || strings.Contains(dump, "dropped4 { 10.1.0.6 }") {
		t.Error("the set of those who get no answer is wrong")
	}
}

func TestPrepareAgainWithAnotherSnapshot(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	web := pod("web", "10.1.0.5", "one", "two")
	w.apply([]policy.Pod{web}, pol("one", "tcp/443 www.example.org"))
	dropped := w.compile([]policy.Pod{web}, pol("two", "tcp/80-89 www.example.com"))
	w.prepare(dropped)
	w.apply([]policy.Pod{web}, pol("one", "tcp/443 www.example.org"))
	if es, err := w.sets.List(xtables.GrantSetName(web.PodRef, "tcp/80-89", 4)); !ipset.IsNotFound(err) {
		t.Errorf("the set of a snapshot that never came into force is there: %v %v", es, err)
	}
	if err := granttest.Grant(context.Background(), w.e.grants, w.grants(dropped, web.PodRef, "www.example.com", 60, "192.0.2.1")); err == nil {
		t.Error("a grant of a snapshot that never came into force was taken")
	}
}

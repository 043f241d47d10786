package proxy

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/proxy/follow"
	"github.com/namegate/namegate/testkit/policytest"
)

// TestReplyDecidedBeforeANameWasFollowedIsNotCached, though it is finished after.
func TestReplyDecidedBeforeANameWasFollowedIsNotCached(t *testing.T) {
	l := newCacheLab(t, map[string][]string{"www.example.org SRV": {"www.example.org. 60 IN SRV 0 0 1 host.test."}, "host.test A": {"host.test. 60 IN A 192.0.2.1"}})
	l.any("10.1.0.6", newQuery("host.test", dns.TypeA))
	packet := packed(t, newQuery("host.test", dns.TypeA))
	var once sync.Once
	l.s.faultAt = func(step string) {
		if step == "store" {
			once.Do(func() { l.any("10.1.0.2", newQuery("www.example.org", dns.TypeSRV)) })
		}
	}
	l.decidedAgain("10.1.0.2", packet, false)
	once.Do(func() { t.Error("the reply was not to be kept") })
	if wire := l.fromPacketCache("10.1.0.2", packet); wire != nil {
		t.Error("a reply of before is given, and its address is not open")
	}
}

// TestFollowedNamesOfAPodAffectNoOtherPod: they do not invalidate another pod's cached
// replies.
func TestFollowedNamesOfAPodAffectNoOtherPod(t *testing.T) {
	l := newCacheLab(t, map[string][]string{"x.wild.test SRV": {"x.wild.test. 60 IN SRV 0 0 1 host.test."}, "www.example.org A": {"www.example.org. 60 IN A 192.0.2.1"}})
	for range 3 {
		l.any("10.1.0.4", newQuery("www.example.org", dns.TypeA))
		l.any("10.1.0.2", newQuery("www.example.org", dns.TypeA))
	}
	l.any("10.1.0.2", newQuery("x.wild.test", dns.TypeSRV))
	if _, hit := l.any("10.1.0.4", newQuery("www.example.org", dns.TypeA)); !hit {
		t.Error("another pod's reply is decided anew")
	}
}

// leadBy is a lead by a name, of rules that accept; "!name" is of rules that deny, "^name" by an
// alias.
func leadBy(name string, until time.Duration) follow.Lead {
	l := policy.Lead{Alias: name[0] == '^', Lasting: name[0] == '!' || name[0] == '^'}
	l.Name = policytest.Name(strings.TrimLeft(name, "!^"))
	return follow.Lead{Lead: l, Until: until}
}

// TestSweepRemovesNamesThatAreNoLongerCovered: of the leads of each name.
func TestSweepRemovesNamesThatAreNoLongerCovered(t *testing.T) {
	l := newCacheLab(t, map[string][]string{})
	web, gone := labPods[0].PodRef, policy.PodRef{Name: "gone"}
	for _, n := range []string{"a.test", "b.test"} {
		l.s.followed.Add(web, policytest.Name(n), leadBy("!elsewhere.test", time.Hour), 0)
		l.s.followed.Add(web, policytest.Name(n), leadBy("^www.example.org", time.Hour), 0)
		l.s.followed.Add(gone, policytest.Name(n), leadBy("www.example.org", time.Hour), 0)
	}
	l.s.followed.Add(web, policytest.Name("a.test"), leadBy("!www.example.org", time.Hour), 0)
	epoch := l.s.followed.Epoch(web).Load()
	l.s.Publish(compiled(t, labPolicies, labPods))
	left, none := l.s.followed.Find(web, policytest.Name("a.test")), l.s.followed.Find(web, policytest.Name("b.test"))
	if len(none) != 0 || len(left) != 1 || left[0].Name != policytest.Name("www.example.org") || left[0].Lasting {
		t.Errorf("led to a.test by %v, to b.test by %v", left, none)
	}
	if l.s.followed.Find(gone, policytest.Name("a.test")) != nil || l.s.followed.Epoch(web).Load() == epoch {
		t.Error("a pod that is no more is led, or replies of before stay")
	}
}

// TestSweepLooksAtChangedViewsAlone: the leads of all pods of a node take long, and queries wait.
func TestSweepLooksAtChangedViewsAlone(t *testing.T) {
	l := newCacheLab(t, map[string][]string{})
	web, n := labPods[0].PodRef, policytest.Name("a.test")
	l.s.followed.Add(web, n, leadBy("www.example.org", time.Hour), 0)
	snap := compiled(t, labPolicies, labPods)
	l.s.Publish(snap)
	l.s.followed.Find(web, n)[0].Lasting = true
	l.s.Publish(snap)
	if !l.s.followed.Find(web, n)[0].Lasting {
		t.Error("a lead is looked at although the view is the same")
	}
	l.s.Publish(compiled(t, labPolicies, labPods))
	if l.s.followed.Find(web, n)[0].Lasting {
		t.Error("a lead is not looked at although the view is another")
	}
}

// TestRestoredSnapshotHasNoFollowedNames: its cached replies from followed names that its
// successor ended are not used.
func TestRestoredSnapshotHasNoFollowedNames(t *testing.T) {
	l := newCacheLab(t, map[string][]string{"www.example.org SRV": {"www.example.org. 60 IN SRV 0 0 1 host.test."}, "host.test A": {"host.test. 60 IN A 192.0.2.1"}})
	l.any("10.1.0.4", newQuery("www.example.org", dns.TypeSRV))
	for range 3 {
		l.any("10.1.0.4", newQuery("host.test", dns.TypeA))
	}
	old := l.s.snapshot.Load()
	l.s.Publish(compiled(t, strictWithout, labPods))
	l.s.Publish(old)
	if r, hit := l.any("10.1.0.4", newQuery("host.test", dns.TypeA)); hit || r.Rcode != dns.RcodeRefused {
		t.Errorf("quick %v, %v", hit, r)
	}
}

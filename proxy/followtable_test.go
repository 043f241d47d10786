package proxy

import (
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/policy/policytest"
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

func TestFollowedNamesAreBoundedPerPod(t *testing.T) {
	var f followTable
	pod, other := policy.PodRef{Name: "a"}, policy.PodRef{Name: "b"}
	via := policytest.Name("www.example.org")
	for i := range maxFollowedNames {
		if !f.add(pod, policytest.Name(itoa(i)+".test"), via, 0, time.Minute+time.Duration(i)) {
			t.Fatalf("%d is too many", i)
		}
	}
	late := policytest.Name("late.test")
	if f.add(pod, late, via, 0, time.Hour) || len(f.pods[pod].names) != maxFollowedNames {
		t.Error("one more than the bound")
	}
	if !f.add(pod, policytest.Name("7.test"), via, 0, time.Hour) || !f.add(other, late, via, 0, time.Hour) {
		t.Error("a known name is not prolonged, or another pod has no room")
	}
	if !f.add(pod, late, via, time.Minute+9, time.Hour) || len(f.pods[pod].names) != maxFollowedNames-8 {
		t.Errorf("those that are over do not make room: %d", len(f.pods[pod].names))
	}
}

// TestFirstAllowedNameIsUsed until its answer expires; add returns false for a second
// name.
func TestFirstAllowedNameIsUsed(t *testing.T) {
	var f followTable
	pod := policy.PodRef{Name: "a"}
	n, one, two := policytest.Name("host.test"), policytest.Name("one.test"), policytest.Name("two.test")
	steps := []struct {
		via        fqdn.Name
		now, until time.Duration
		settled    bool
		led        fqdn.Name
		epoch      uint64
	}{
		{one, 0, 10, true, one, 1},
		{two, 5, 8, true, one, 1},
		{two, 5, 20, false, one, 1},
		{one, 6, 12, true, one, 1},
		{two, 12, 20, true, two, 2},
		{one, 13, 14, true, two, 2},
	}
	for i, s := range steps {
		if got := f.add(pod, n, s.via, s.now, s.until); got != s.settled {
			t.Errorf("%d: settled %v", i, got)
		}
		if via, ok := f.via(pod, n, s.now); !ok || via != s.led || f.of(pod).epoch.Load() != s.epoch {
			t.Errorf("%d: led by %v, epoch %d", i, via, f.of(pod).epoch.Load())
		}
	}
	if _, ok := f.via(pod, n, 20); ok {
		t.Error("it does not end")
	}
	if _, ok := f.via(policy.PodRef{Name: "b"}, n, 13); ok {
		t.Error("another pod is led")
	}
}

// TestSweepRemovesNamesThatAreNoLongerAllowed: so another name may lead there.
func TestSweepRemovesNamesThatAreNoLongerAllowed(t *testing.T) {
	l := newCacheLab(t, map[string][]string{})
	web, gone := labPods[0].PodRef, policy.PodRef{Name: "gone"}
	l.s.followed.add(web, policytest.Name("a.test"), policytest.Name("www.example.org"), 0, time.Hour)
	l.s.followed.add(web, policytest.Name("b.test"), policytest.Name("elsewhere.test"), 0, time.Hour)
	l.s.followed.add(gone, policytest.Name("a.test"), policytest.Name("www.example.org"), 0, time.Hour)
	l.s.Publish(compiled(t, labPolicies, labPods))
	if names := l.s.followed.pods[web].names; len(names) != 1 || names[policytest.Name("a.test")].until == 0 {
		t.Errorf("led to %v", names)
	}
	if l.s.followed.pods[gone] != nil {
		t.Error("a pod that is no more is led")
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

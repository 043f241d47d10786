package proxy

import (
	"math/rand/v2"
	"slices"
	"strings"
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

// leadBy is a lead by a name, of rules that accept; "!name" is of rules that deny, "^name" by an
// alias.
func leadBy(name string, until time.Duration) lead {
	l := policy.Lead{Alias: name[0] == '^', Lasting: name[0] == '!' || name[0] == '^'}
	l.Name = policytest.Name(strings.TrimLeft(name, "!^"))
	return lead{l, until}
}

// ledBy are the names that lead a pod to a name at a moment.
func (f *followTable) ledBy(p policy.PodRef, n fqdn.Name, now time.Duration) (all []string) {
	via, aliases, _ := f.find(p, n).at(now)
	for _, n := range via {
		all = append(all, n.String())
	}
	for _, n := range aliases {
		all = append(all, "^"+n.String())
	}
	return all
}

func TestFollowedNamesAreBoundedPerPod(t *testing.T) {
	var f followTable
	pod, other := policy.PodRef{Name: "a"}, policy.PodRef{Name: "b"}
	for i := range maxFollowedNames {
		if !f.add(pod, policytest.Name(itoa(i)+".test"), leadBy("www.example.org", time.Minute+time.Duration(i)), 0) {
			t.Fatalf("%d is too many", i)
		}
	}
	late, first := policytest.Name("late.test"), policytest.Name("0.a.test")
	if f.add(pod, late, leadBy("www.example.org", time.Hour), 0) || len(f.pods[pod].names) != maxFollowedNames {
		t.Error("one more than the bound")
	}
	epoch := f.of(pod).epoch.Load()
	if !f.add(pod, first, leadBy("www.example.org", time.Hour), 0) || f.find(pod, policytest.Name("255.test")) != nil || f.of(pod).epoch.Load() == epoch {
		t.Error("the last name in order does not make room")
	}
	if !f.add(pod, late, leadBy("!denied.test", time.Hour), 0) || f.find(pod, policytest.Name("254.test")) != nil {
		t.Error("a denied name has no room")
	}
	if !f.add(pod, policytest.Name("7.test"), leadBy("www.example.org", time.Hour), 0) || !f.add(other, late, leadBy("www.example.org", time.Hour), 0) {
		t.Error("a known name is not prolonged, or another pod has no room")
	}
	if !f.add(pod, policytest.Name("last-of-all.test"), leadBy("www.example.org", time.Hour), time.Minute+9) || len(f.pods[pod].names) != maxFollowedNames-8 {
		t.Errorf("those that are over do not make room: %d", len(f.pods[pod].names))
	}
}

// TestDeniedLeadsAreKept: where all room is of names that rules deny, one more of them is not
// taken, which the caller is told.
func TestDeniedLeadsAreKept(t *testing.T) {
	var f followTable
	pod := policy.PodRef{Name: "a"}
	for i := range maxFollowedNames {
		f.add(pod, policytest.Name("z"+itoa(i)+".test"), leadBy("!denied.test", time.Hour), 0)
	}
	for _, by := range []string{"!denied.test", "www.example.org", "^alias.test"} {
		if f.add(pod, policytest.Name("a.test"), leadBy(by, time.Hour), 0) || len(f.pods[pod].names) != maxFollowedNames {
			t.Errorf("%s displaces a denied name", by)
		}
	}
}

// TestAllLeadsCount until their time is over, in every order of arrival, and the first in order
// where there are too many.
func TestAllLeadsCount(t *testing.T) {
	pod, n := policy.PodRef{Name: "a"}, policytest.Name("host.test")
	all := []string{"!c.test", "a.test", "b.test", "^a.test", "d.test"}
	random := rand.New(rand.NewPCG(16, 7))
	for range 100 {
		var f followTable
		random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		for i, by := range all {
			if !f.add(pod, n, leadBy(by, time.Duration(10+len(by))), 0) || f.of(pod).epoch.Load() != uint64(i+1) {
				t.Fatalf("%v: %s is not added", all, by)
			}
		}
		f.add(pod, n, leadBy("a.test", 12), 0) // no longer than it was
		if got := f.ledBy(pod, n, 0); !slices.Equal(got, []string{"c.test", "a.test", "b.test", "d.test", "^a.test"}) {
			t.Fatalf("%v: led by %v", all, got)
		}
		if got := f.ledBy(pod, n, 16); !slices.Equal(got, []string{"c.test", "^a.test"}) || f.of(pod).epoch.Load() != 5 {
			t.Fatalf("%v: led later by %v", all, got)
		}
		if f.ledBy(pod, n, 17) != nil || f.ledBy(policy.PodRef{Name: "b"}, n, 0) != nil {
			t.Fatal("it does not end, or another pod is led")
		}
		if !f.add(pod, n, leadBy("b.test", 30), 20) || f.of(pod).epoch.Load() != 6 || len(f.find(pod, n)) != 1 {
			t.Fatalf("a lead that was over: %v", f.find(pod, n))
		}
	}
	many := make([]string, 30)
	for i := range many {
		many[i] = "name" + itoa(100+i) + ".test"
		if i%6 == 0 {
			many[i] = "!" + many[i]
		}
	}
	for range 100 {
		var f followTable
		random.Shuffle(len(many), func(i, j int) { many[i], many[j] = many[j], many[i] })
		for _, by := range many {
			f.add(pod, n, leadBy(by, time.Minute), 0)
		}
		if got := f.ledBy(pod, n, 0); !slices.Equal(got, []string{"name100.test", "name106.test", "name112.test", "name118.test", "name124.test", "name101.test", "name102.test", "name103.test"}) {
			t.Fatalf("led by %v", got)
		}
	}
}

// TestSweepRemovesNamesThatAreNoLongerCovered: of the leads of each name.
func TestSweepRemovesNamesThatAreNoLongerCovered(t *testing.T) {
	l := newCacheLab(t, map[string][]string{})
	web, gone := labPods[0].PodRef, policy.PodRef{Name: "gone"}
	for _, n := range []string{"a.test", "b.test"} {
		l.s.followed.add(web, policytest.Name(n), leadBy("!elsewhere.test", time.Hour), 0)
		l.s.followed.add(web, policytest.Name(n), leadBy("^www.example.org", time.Hour), 0)
		l.s.followed.add(gone, policytest.Name(n), leadBy("www.example.org", time.Hour), 0)
	}
	l.s.followed.add(web, policytest.Name("a.test"), leadBy("!www.example.org", time.Hour), 0)
	epoch := l.s.followed.of(web).epoch.Load()
	l.s.Publish(compiled(t, labPolicies, labPods))
	names := l.s.followed.pods[web].names
	if left := names[policytest.Name("a.test")]; len(names) != 1 || len(left) != 1 || left[0].Name != policytest.Name("www.example.org") || left[0].Lasting {
		t.Errorf("led to %v", names)
	}
	if l.s.followed.pods[gone] != nil || l.s.followed.of(web).epoch.Load() == epoch {
		t.Error("a pod that is no more is led, or replies of before stay")
	}
}

// TestSweepLooksAtChangedViewsAlone: the leads of all pods of a node take long, and queries wait.
func TestSweepLooksAtChangedViewsAlone(t *testing.T) {
	l := newCacheLab(t, map[string][]string{})
	web, n := labPods[0].PodRef, policytest.Name("a.test")
	l.s.followed.add(web, n, leadBy("www.example.org", time.Hour), 0)
	snap := compiled(t, labPolicies, labPods)
	l.s.Publish(snap)
	l.s.followed.pods[web].names[n][0].Lasting = true
	l.s.Publish(snap)
	if !l.s.followed.find(web, n)[0].Lasting {
		t.Error("a lead is looked at although the view is the same")
	}
	l.s.Publish(compiled(t, labPolicies, labPods))
	if l.s.followed.find(web, n)[0].Lasting {
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

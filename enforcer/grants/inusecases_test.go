package grants

import (
	"net/netip"
	"testing"
	"time"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/fatal"
)

// asked lets time pass until names are in use, and returns them.
func (n *usingNode) asked(within time.Duration) []policy.NameInUse {
	n.t.Helper()
	for range within / time.Second {
		if got := n.pass(time.Second); got != nil {
			return got
		}
	}
	n.t.Fatalf("no name in use within %v", within)
	return nil
}

// TestNamesOfAnAddressEndApart: the end of one name's query does not end the wait of another name
// of the address.
func TestNamesOfAnAddressEndApart(t *testing.T) {
	n := using(t, v1alpha1.TTL{})
	n.answer(n.pod, "a.example.net", 30, "192.0.2.1")
	n.answer(n.pod, "b.example.net", 30, "192.0.2.1")
	n.use("192.0.2.1")
	got := n.asked(106 * time.Second)
	if len(got) != 2 {
		t.Fatalf("in use: %v", got)
	}
	n.table.Keep(&got[0], got[0].Due, true)
	if n.pass(2 * time.Second); !n.open("192.0.2.1") {
		t.Fatal("closed while a name of the address is asked")
	}
	if kept := n.table.Keep(&got[1], got[1].Due, false); len(kept) != 1 {
		t.Errorf("kept %v", kept)
	}
	if n.pass(2 * time.Second); !n.open("192.0.2.1") {
		t.Error("closed although one of its names got no answer")
	}
}

// TestAskedNameStays: an answer for another name of an address leaves a name that is asked.
func TestAskedNameStays(t *testing.T) {
	n := using(t, v1alpha1.TTL{})
	n.answer(n.pod, "a.example.net", 30, "192.0.2.1")
	n.connections = []Connection{n.connect("192.0.2.1", 0)}
	got := n.asked(106 * time.Second)
	n.pass(time.Second)
	n.answer(n.pod, "b.example.net", 30, "192.0.2.1")
	if kept := n.table.Keep(&got[0], got[0].Due, true); len(kept) != 1 {
		t.Errorf("kept %v", kept)
	}
}

// TestAskedNameIsListed: an address that waits for the answer is open, and listed as such.
func TestAskedNameIsListed(t *testing.T) {
	n := using(t, v1alpha1.TTL{})
	n.answer(n.pod, "a.example.net", 30, "192.0.2.1")
	n.use("192.0.2.1")
	n.asked(106 * time.Second)
	n.pass(time.Second)
	if got := n.table.ListGrants(n.pod.PodRef); len(got) != 1 || !n.open("192.0.2.1") {
		t.Errorf("listed %v", got)
	}
}

// TestLateAnswers: the end of a query counts for as long as a query may wait for its turn and for
// its forward's longest deadline.
func TestLateAnswers(t *testing.T) {
	n := using(t, v1alpha1.TTL{})
	n.answer(n.pod, "a.example.net", 30, "192.0.2.1")
	n.use("192.0.2.1")
	got := n.asked(106 * time.Second)
	n.pass(13 * time.Second)
	if kept := n.table.Keep(&got[0], got[0].Due, false); len(kept) != 1 || !n.open("192.0.2.1") {
		t.Errorf("kept %v", kept)
	}
}

// TestShortTimes: an active connection counts also where answers come more often than listings of
// connections; and it does not count for long after its end.
func TestShortTimes(t *testing.T) {
	one := int64(1)
	n := using(t, v1alpha1.TTL{MinSeconds: &one, GraceSeconds: &one})
	n.answer(n.pod, "a.example.net", 1, "192.0.2.1")
	n.connections = []Connection{n.connect("192.0.2.1", 0)}
	for i := range 120 {
		for range n.pass(time.Second) {
			n.answer(n.pod, "a.example.net", 1, "192.0.2.1")
		}
		if !n.open("192.0.2.1") {
			t.Fatalf("closed after %d s with an active connection", i)
		}
	}
	if n.listed > 5 {
		t.Errorf("%d listings of connections in 120 s", n.listed)
	}
	n.connections = nil
	for range 2 * connectionsEvery / time.Second {
		for range n.pass(time.Second) {
			n.answer(n.pod, "a.example.net", 1, "192.0.2.1")
		}
	}
	if n.open("192.0.2.1") {
		t.Error("open without a connection")
	}
}

// TestShortAnswerEndsKeeping: an answer that holds a kept address begins its reuse anew, also one
// that is valid for a shorter time than the address is open.
func TestShortAnswerEndsKeeping(t *testing.T) {
	one := int64(1)
	n := using(t, v1alpha1.TTL{MinSeconds: &one, GraceSeconds: &one})
	n.answer(n.pod, "a.example.net", 1, "192.0.2.1")
	n.connections = []Connection{n.connect("192.0.2.1", 0)}
	got := n.asked(3 * time.Second)
	n.table.Keep(&got[0], got[0].Due, true)
	if n.table.ListGrants(n.pod.PodRef)[0].Held.IsZero() {
		t.Fatal("the address is not kept by its connection")
	}
	before := n.table.ListGrants(n.pod.PodRef)[0].Until
	n.answer(n.pod, "a.example.net", 1, "192.0.2.1")
	after := n.table.ListGrants(n.pod.PodRef)[0]
	if !after.Held.IsZero() || after.Until.Before(before) {
		t.Errorf("%+v, was open until %v", after, before)
	}
}

// TestNamesAreJudgedSinceAPolicyRenews: names that opened addresses while the policies of the pod
// renewed nothing are judged once one renews, and end where it does so no more.
func TestNamesAreJudgedSinceAPolicyRenews(t *testing.T) {
	expire := v1alpha1.TTL{InUse: v1alpha1.InUseExpire}
	for _, test := range []struct {
		changes []v1alpha1.TTL
		judged  bool
	}{{nil, false}, {[]v1alpha1.TTL{{}}, true}, {[]v1alpha1.TTL{{}, expire}, false}, {[]v1alpha1.TTL{{}, expire, {}}, true}} {
		n := using(t, expire)
		n.answer(n.pod, "a.example.net", 30, "192.0.2.1")
		n.answer(n.pod, "idle.example.net", 30, "192.0.2.2")
		n.use("192.0.2.1")
		for _, ttl := range test.changes {
			n.apply(ttl)
		}
		if got := n.pass(106 * time.Second); (len(got) == 1 && got[0].Name == dns("a.example.net")) != test.judged || len(got) > 1 {
			t.Errorf("after %v: in use: %v", test.changes, got)
		}
		if n.pass(30 * time.Second); n.open("192.0.2.1") || n.open("192.0.2.2") {
			t.Errorf("after %v: open without an answer", test.changes)
		}
	}
}

// TestRefusedKeep: an address whose longer time the kernel refuses is not told as kept.
func TestRefusedKeep(t *testing.T) {
	n := using(t, v1alpha1.TTL{})
	n.answer(n.pod, "a.example.net", 30, "192.0.2.1")
	n.connections = []Connection{n.connect("192.0.2.1", 0)}
	got := n.asked(106 * time.Second)
	n.sets.fail(1, false)
	if kept := n.table.Keep(&got[0], got[0].Due, true); len(kept) > 0 {
		t.Errorf("kept %v", kept)
	}
}

// TestEndedNamesAreNotHeld: an address that a name opened before, and that only another name keeps
// open, is not renewed with the name.
func TestEndedNamesAreNotHeld(t *testing.T) {
	n := using(t, v1alpha1.TTL{})
	n.answer(n.pod, "a.example.net", 30, "192.0.2.1 192.0.2.2")
	n.answer(n.pod, "b.example.net", 3600, "192.0.2.2")
	var got []policy.NameInUse
	for range 2 {
		n.use("192.0.2.1")
		got = n.asked(106 * time.Second)
		n.answer(n.pod, "a.example.net", 30, "192.0.2.1")
	}
	if len(got) != 1 || len(got[0].Held) != 1 {
		t.Errorf("held: %v", got)
	}
}

// TestUseBeforeARestart: packets before a restart count, also where the next agent writes the
// grant anew before it lists it.
func TestUseBeforeARestart(t *testing.T) {
	for _, inPlace := range []bool{false, true} {
		n := using(t, v1alpha1.TTL{})
		n.sets.replaces, n.table.cfg.InPlace = inPlace, inPlace
		n.answer(n.pod, "a.example.net", 30, "192.0.2.1")
		n.use("192.0.2.1")
		n.restart()
		n.table.cfg.InPlace = inPlace
		n.apply(v1alpha1.TTL{})
		n.answer(n.pod, "b.example.net", 30, "192.0.2.1")
		if got := n.asked(106 * time.Second); got[0].Name != dns("a.example.net") {
			t.Errorf("in place %v: in use: %v", inPlace, got)
		}
	}
}

// otherPlane is another dataplane with sets of its own.
type otherPlane struct {
	dataplane.Interface
	is *sets
}

func (o otherPlane) Named(s dataplane.GrantSet) dataplane.GrantSet { return s }

func (o otherPlane) ListGrants(sets []dataplane.GrantSet, each func(dataplane.GrantSet, []dataplane.Grant)) error {
	return o.is.ListGrants(sets, func(s dataplane.GrantSet, part []dataplane.Grant) { s.Name = ""; each(s, part) })
}

// TestUseInAnotherDataplane: packets that matched a grant in the dataplane before count.
func TestUseInAnotherDataplane(t *testing.T) {
	n := using(t, v1alpha1.TTL{})
	n.table.cfg.InPlace = true
	n.answer(n.pod, "a.example.net", 30, "192.0.2.1")
	n.answer(n.pod, "idle.example.net", 30, "192.0.2.2")
	n.use("192.0.2.1")
	before := n.sets
	n.sets = &sets{now: n.Now, held: map[string]map[netip.Addr]entry{}}
	n.restart()
	n.apply(v1alpha1.TTL{})
	fatal.If(t, n.table.Import(otherPlane{is: before}))
	got := n.asked(106 * time.Second)
	if len(got) != 1 || got[0].Name != dns("a.example.net") {
		t.Errorf("in use: %v", got)
	}
}

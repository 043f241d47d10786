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
	n.inPlace = true
	n.restart()
	n.apply(v1alpha1.TTL{})
	n.answer(n.pod, "a.example.net", 30, "192.0.2.1")
	n.answer(n.pod, "idle.example.net", 30, "192.0.2.2")
	n.use("192.0.2.1")
	before := n.sets
	n.inPlace = false
	n.sets = &sets{now: n.Now, held: map[string]map[netip.Addr]entry{}}
	n.restart()
	n.apply(v1alpha1.TTL{})
	fatal.If(t, n.table.Import(otherPlane{is: before}))
	got := n.asked(106 * time.Second)
	if len(got) != 1 || got[0].Name != dns("a.example.net") {
		t.Errorf("in use: %v", got)
	}
}

package grants

import (
	"context"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/granttest"
)

// wider are policies of which the second opens other ports for the names of the first.
var wider = []*v1alpha1.FQDNNetworkPolicy{pol("allow", "tcp/443 *.example.net"), pol("more", "tcp/8443 *.example.net")}

// relabelled returns the snapshot in which policy more selects the first of pods too.
func (n *node) relabelled(pods []policy.Pod) *policy.Snapshot {
	next := append([]policy.Pod{pod(pods[0].Name, "allow", "more")}, pods[1:]...)
	next[0].PodRef = pods[0].PodRef
	s := n.compile(next, wider...)
	for _, ipv6 := range []bool{false, true} {
		n.sets.create(grantSet(pods[0].PodRef, "tcp/8443", ipv6).Name)
	}
	n.table.Adopt(map[dataplane.GrantSet][]dataplane.Grant{grantSet(pods[0].PodRef, "tcp/8443", false): nil, grantSet(pods[0].PodRef, "tcp/8443", true): nil}, n.Now())
	return s
}

// TestTheTableIsFreeBetweenParts: a pod with many grants is carried over in writes of a bounded size.
// Between these a neighbour's answer is granted, and one of the pod's own by its last view is open by
// the next too.
func TestTheTableIsFreeBetweenParts(t *testing.T) {
	const names = 4 * batchGrants
	n, pods := crowd(t, 2)
	n.apply(pods, wider...)
	for _, g := range granttest.Fresh(n.snap, pods[:1], names, n.Now()) {
		fatal.If(t, granttest.Grant(context.Background(), n.table, g))
	}
	last := n.snap
	next := n.relabelled(pods)
	own := n.grants(pods[0].PodRef, "late.example.net", 600, "198.51.100.7")
	own[0].View = last.ViewOf(pods[0].PodRef)
	others := n.grants(pods[1].PodRef, "other.example.net", 600, "198.51.100.8")
	n.sets.ops()
	var meanwhile sync.WaitGroup
	var begin sync.Once
	var errs [2]error
	written, between := 0, 0
	n.sets.instead = func(op *dataplane.GrantOp) error {
		if len(op.Grants) > 1 {
			written++
			begin.Do(func() {
				for i, g := range [][]policy.Grant{own, others} {
					meanwhile.Go(func() { errs[i] = granttest.Grant(context.Background(), n.table, g) })
				}
			})
			time.Sleep(5 * time.Millisecond) // who waits for longer than 1 ms has a sync.Mutex next
		} else if written < names/batchGrants {
			between++
		}
		return n.sets.do(op)
	}
	_, err := n.table.CarryOver(last, next)
	fatal.If(t, err)
	meanwhile.Wait()
	n.sets.instead = nil
	if errs[0] != nil || errs[1] != nil {
		t.Errorf("grants of meanwhile: %v", errs)
	}
	if between == 0 {
		t.Error("no other grant was written between the parts")
	}
	for _, ops := range n.sets.writes {
		for _, op := range ops {
			if len(op.Grants) > batchGrants {
				t.Errorf("%d grants in one write", len(op.Grants))
			}
		}
	}
	open, _ := n.sets.list(grantSet(pods[0].PodRef, "tcp/8443", false).Name)
	late := false
	for _, g := range open {
		late = late || g.Addr == addr("198.51.100.7")
	}
	if len(open) != names+1 || !late {
		t.Errorf("%d of %d addresses are open on the ports of the next view, that of the last answer: %v", len(open), names+1, late)
	}
}

// TestCarryOverFollowsWhatEndsMeanwhile: an address that ends while the pod is carried over is not
// opened again, and it is remembered that it was open.
func TestCarryOverFollowsWhatEndsMeanwhile(t *testing.T) {
	const names = 2 * batchGrants
	n, pods := crowd(t, 1)
	n.apply(pods, wider...)
	for _, g := range granttest.Fresh(n.snap, pods, names, n.Now()) {
		g[0].Deadline = n.Now().Add(time.Minute)
		fatal.If(t, granttest.Grant(context.Background(), n.table, g))
	}
	last, next := n.snap, n.relabelled(pods)
	n.Pass(2 * time.Minute)
	var meanwhile sync.WaitGroup
	var begin sync.Once
	n.sets.instead = func(op *dataplane.GrantOp) error {
		begin.Do(func() {
			meanwhile.Go(func() { _ = n.table.Expire() })
		})
		time.Sleep(5 * time.Millisecond)
		return n.sets.do(op)
	}
	_, err := n.table.CarryOver(last, next)
	fatal.If(t, err)
	meanwhile.Wait()
	n.sets.instead = nil
	fatal.If(t, n.table.Expire())
	for i := range names {
		a := netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)})
		if ports, _ := n.table.Opened(pods[0].PodRef, a, true, ""); len(ports) != 2 {
			t.Fatalf("%s was open on %v", a, ports)
		}
	}
	diff.Equal(t, 0, n.table.Figures().Grants, "addresses are open after their time")
}

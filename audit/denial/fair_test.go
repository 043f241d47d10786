package denial

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/policytest"
)

// manyPods is a world with additional enforced pods.
func manyPods(t *testing.T, n int) *world {
	var more []policy.Pod
	for i := range n {
		name := fmt.Sprint("noisy", i)
		at[name] = netip.AddrFrom4([4]byte{10, 2, byte(i >> 8), byte(i)})
		t.Cleanup(func() { delete(at, name) })
		more = append(more, policy.Pod{PodRef: policytest.Ref(name), IPs: []netip.Addr{at[name]}, Labels: map[string]string{"mode": "enforce"}})
	}
	return newWorld(t, more...)
}

// TestManyNoisyPodsDoNotSuppressOthers: together they fill the table of counted flows,
// and make room for a pod that has fewer; none of their counts is lost.
func TestManyNoisyPodsDoNotSuppressOthers(t *testing.T) {
	const pods = maxCounted / countedOfPod
	w := manyPods(t, pods)
	for i := range pods {
		for port := range countedOfPod {
			for range 2 {
				w.denied(fmt.Sprint("noisy", i), "tcp", fmt.Sprintf("198.51.100.1:%d", 1+port))
			}
			w.now = w.now.Add(time.Millisecond)
		}
	}
	w.lines = nil
	w.denied("a", "tcp", "198.51.100.9:443")
	if len(w.lines) != 2 || w.lines[0].Pod == policytest.Ref("a") || w.lines[0].Count != 1 || w.lines[1].Pod != policytest.Ref("a") {
		t.Fatalf("lines: %+v", w.lines)
	}
	w.lines = nil
	for port := range 1000 {
		w.denied("a", "udp", fmt.Sprintf("198.51.100.9:%d", 1+port))
	}
	share := 0
	for _, f := range w.lines {
		if f.Pod == policytest.Ref("a") {
			share++
		}
	}
	if fair := maxCounted / (pods + 1); share < fair-2 || share > fair+1 {
		t.Errorf("the pod got %d flows where %d are fair", share, fair)
	}
	if n := len(w.denials.flows.counted); n != maxCounted {
		t.Errorf("%d are counted", n)
	}
	w.lines = nil
	w.pass(2 * period)
	w.pass(2 * period)
	if f := &w.denials.flows; len(f.counted)+len(f.ofPod) != 0 {
		t.Errorf("%d flows of %d pods are counted for ever", len(f.counted), len(f.ofPod))
	}
}

// TestAnAddressOfManyNames: of names without end some are looked at.
func TestAnAddressOfManyNames(t *testing.T) {
	w := newWorld(t)
	for i := range 5000 {
		w.opened("other", fmt.Sprintf("n%d.example.org", i), "198.51.100.1", time.Minute)
	}
	if n := len(names(nil, w.denials.o.GrantedToAnybody(netip.MustParseAddr("198.51.100.1")))); n != maxConsidered {
		t.Errorf("%d names are looked at", n)
	}
	w.denied("a", "tcp", "198.51.100.1:443")
	if len(w.lines) != 1 || len(w.lines[0].Names) != maxNames {
		t.Errorf("lines: %+v", w.lines)
	}
}

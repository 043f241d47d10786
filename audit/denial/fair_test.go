package denial

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
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

// TestManyNoisyPodsDoNotSuppressOthers: together they fill their shares of the counted flows, and leave one to a pod
// that comes later; none of their counts is lost.
func TestManyNoisyPodsDoNotSuppressOthers(t *testing.T) {
	const pods = 16
	w := manyPods(t, pods)
	logged := map[string]uint64{}
	read := func() {
		for _, f := range w.lines {
			logged[f.Pod.Name] += f.Count
		}
		w.lines = nil
	}
	for port := range countedFlows.Each {
		for i := range pods {
			for range 2 {
				w.denied(fmt.Sprint("noisy", i), "tcp", fmt.Sprintf("198.51.100.1:%d", 1+port))
			}
			w.now = w.now.Add(time.Millisecond)
		}
	}
	fair := countedFlows.All / (pods + 1)
	for p, n := range w.denials.flows.ofPod {
		if n < fair || n > fair+1 {
			t.Errorf("%s has %d flows where %d are fair", p, n, fair)
		}
	}
	read()
	for port := range 1000 {
		w.denied("a", "udp", fmt.Sprintf("198.51.100.9:%d", 1+port))
	}
	if n := len(w.lines); n < fair/2 || n > fair {
		t.Errorf("the pod that came later got %d flows where %d are fair", n, fair)
	}
	read()
	w.pass(2 * period)
	w.pass(2 * period)
	read()
	if f := &w.denials.flows; len(f.counted)+len(f.ofPod) != 0 {
		t.Errorf("%d flows of %d pods are counted for ever", len(f.counted), len(f.ofPod))
	}
	all := w.denials.Over()
	for _, n := range logged {
		all += n
	}
	diff.Equal(t, uint64(pods*countedFlows.Each*2+1000), all, "connections in lines or over")
}

// TestAnAddressOfManyNames: of names without end some are looked at.
func TestAnAddressOfManyNames(t *testing.T) {
	w := newWorld(t)
	for i := range 5000 {
		w.opened("other", fmt.Sprintf("n%d.example.org", i), "198.51.100.1", time.Minute)
	}
	diff.Equal(t, maxConsidered, len(names(nil, w.denials.o.GrantedToAnybody(netip.MustParseAddr("198.51.100.1")))), "names looked at")
	w.denied("a", "tcp", "198.51.100.1:443")
	if len(w.lines) != 1 || len(w.lines[0].Names) != maxNames {
		t.Errorf("lines: %+v", w.lines)
	}
}

package enforcer

import (
	"context"
	"fmt"
	"testing"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/fatal"
)

// manyPeers is a node whose sets are the kernel's, with pods of which each asks peers
// sets, as many in all as there are sets, each of some of the remote pods.
func manyPeers(t testing.TB, pods, sets, remote int) (*world, []policy.Pod) {
	w := newNode(t)
	w.real = kernelSets(t)
	w.restart()
	for i := range remote {
		w.remote = append(w.remote, far(fmt.Sprint("r", i), fmt.Sprintf("10.%d.%d.%d 2001:db8:2::%x", 2+i/62500, i/250%250, 1+i%250, i), fmt.Sprint("app", i%sets)))
	}
	var all []policy.Pod
	for i := range pods {
		name := fmt.Sprint("np", i)
		all = append(all, pod(fmt.Sprint("p", i), fmt.Sprintf("10.1.%d.%d 2001:db8:1::%x", i/250, 1+i%250, i), "allow", name))
		var rules []string
		for s := i; s < sets; s += pods {
			rules = append(rules, fmt.Sprintf("tcp/%d app%d", 1000+s%7, s))
		}
		w.netpols = append(w.netpols, netpol(name, rules...))
	}
	w.apply(all, pol("allow", "tcp/443 *.example.net"))
	return w, all
}

// BenchmarkPeerChange is what a snapshot costs in which one pod of another node is
// another's peer: 110 pods, 1,000 sets of each family.
func BenchmarkPeerChange(b *testing.B) {
	w, all := manyPeers(b, 110, 1000, 5000)
	allow := pol("allow", "tcp/443 *.example.net")
	var snaps []*policy.Snapshot
	for i := range 2 {
		w.remote[7] = far("r7", "10.2.0.8 2001:db8:2::7", fmt.Sprint("app", 7+i))
		snaps = append(snaps, w.compile(all, allow))
	}
	// Compiled once more, so that each step differs from the last in one pod.
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; b.Loop(); i++ {
		s := snaps[i%2]
		fatal.If(b, w.e.Prepare(context.Background(), s))
		fatal.If(b, w.e.Commit(context.Background()))
	}
}

// BenchmarkPeersRestart is what an agent takes over the same sets in.
func BenchmarkPeersRestart(b *testing.B) {
	w, all := manyPeers(b, 110, 1000, 5000)
	for b.Loop() {
		w.restart()
		w.apply(all, pol("allow", "tcp/443 *.example.net"))
	}
}

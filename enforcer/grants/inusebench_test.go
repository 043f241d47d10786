package grants

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/fatal"
)

// lister is a kernel that takes every write and lists each of its sets at once.
type lister struct {
	nowhere
	sets map[dataplane.GrantSet][]dataplane.Grant
}

func (l lister) ListGrants(_ []dataplane.GrantSet, each func(dataplane.GrantSet, []dataplane.Grant)) error {
	for set, grants := range l.sets {
		each(set, grants)
	}
	return nil
}

// BenchmarkJudge judges 100,000 grants of 250 pods of 20 port sets that are due at once, of which
// a tenth is in use.
func BenchmarkJudge(b *testing.B) {
	const pods, portSets, grants = 250, 20, 100_000
	n := newNode(b)
	var all []policy.Pod
	for i := range pods {
		all = append(all, pod(fmt.Sprintf("web-7d4b9c6f5-%05d", i), "allow"))
	}
	var rules []string
	for k := range portSets {
		rules = append(rules, fmt.Sprintf("tcp/%d *.s%d.example.net", 8000+k, k))
	}
	n.table.OnInUse(func([]policy.NameInUse) {})
	n.apply(all, pol("allow", rules...))
	kernel := lister{nowhere{n.sets}, map[dataplane.GrantSet][]dataplane.Grant{}}
	n.table.cfg.Kernel = kernel
	for i := range grants {
		p, k := all[i%pods].PodRef, i/pods%portSets
		name := dns(fmt.Sprintf("h%d.s%d.example.net", i, k))
		o := n.snap.ViewOf(p).Decide(name).Openings(30)[0]
		a := netip.AddrFrom4([4]byte{198, 18 + byte(i>>16), byte(i >> 8), byte(i)})
		fatal.If(b, n.table.Grant(context.Background(), []policy.Grant{{
			Pod: p, View: n.snap.ViewOf(p), Name: name, Ports: o.Ports, Deadline: n.Now().Add(o.Lifetime), By: o.By, Addrs: []netip.Addr{a},
		}}))
		key := grantSet(p, o.Ports, false)
		uses := uint64(0)
		if i/pods%10 == 0 {
			uses = 1
		}
		kernel.sets[key] = append(kernel.sets[key], dataplane.Grant{Addr: a, Uses: uses})
	}
	var due []use
	for s := range n.table.all() {
		for a, g := range s.entries {
			due = append(due, use{s, a, g})
		}
	}
	n.Pass(2 * time.Minute)
	b.ReportAllocs()
	for b.Loop() {
		fatal.If(b, n.table.judge(due))
		b.StopTimer()
		judged := 0
		for _, u := range due {
			r := &u.grant.reasons[0]
			if r.asked {
				judged++
			}
			r.renew, r.asked, r.until, r.since, u.grant.uses, u.grant.queued = true, false, n.table.cfg.Clock.read().now-1, 1, 0, 0
		}
		n.table.deadlines.h = n.table.deadlines.h[:0]
		if judged != grants/10 {
			b.Fatalf("%d grants are in use", judged)
		}
		b.StartTimer()
	}
}

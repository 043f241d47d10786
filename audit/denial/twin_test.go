package denial

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/kernel/nflog"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/policytest"
	"github.com/namegate/namegate/testkit/short"
)

// TestWouldDenyLikeEnforced: for random policies, answers and times, an audited pod would
// be denied exactly the connections that are not open for an equal enforced pod.
func TestWouldDenyLikeEnforced(t *testing.T) {
	r := rand.New(rand.NewPCG(21, 22))
	names := []string{"a.example.org", "b.example.org", "x.a.example.org", "other.test"}
	matches := []string{"a.example.org", "*.example.org", "**.example.org", "x.a.example.org", "*"}
	tried := map[bool]int{}
	rounds := short.Rounds(75, 300, 3_000)
	for range rounds {
		var text []string
		for range 1 + r.IntN(3) {
			text = append(text, fmt.Sprintf("%s:%d", matches[r.IntN(len(matches))], []int{0, 80, 443}[r.IntN(3)]))
		}
		audited := fqdnPolicy("p", "audit", v1alpha1.EnforcementAudit, strings.Join(text, " "))
		least, most, grace := 1+r.Int64N(60), 60+r.Int64N(100), 1+r.Int64N(30)
		audited.Spec.TTL = v1alpha1.TTL{MinSeconds: &least, MaxSeconds: &most, GraceSeconds: &grace}
		enforced := audited.DeepCopy()
		enforced.Spec.Enforcement = v1alpha1.EnforcementEnforce
		pods := []policy.Pod{{PodRef: policytest.Ref("b"), IPs: []netip.Addr{at["b"]}, Labels: map[string]string{"mode": "audit"}}}
		w := newWorld(t)
		w.snap = compile.New().Compile(compile.Input{Policies: []*v1alpha1.FQDNNetworkPolicy{audited}, Pods: pods})
		twin := compile.New().Compile(compile.Input{Policies: []*v1alpha1.FQDNNetworkPolicy{enforced}, Pods: pods}).Views[0]

		type opened struct {
			addr  string
			ports policy.PortSet
		}
		open := map[opened]time.Time{}
		for range 20 {
			addr := fmt.Sprintf("198.51.100.%d", 1+r.IntN(3))
			if r.IntN(2) == 0 {
				n, ttl, blocked := names[r.IntN(len(names))], uint32(r.IntN(200)), ""
				if r.IntN(4) == 0 {
					blocked = "node"
				}
				w.told("b", n, addr, ttl, blocked)
				for _, o := range twin.Decide(policytest.Name(n)).Openings(ttl) {
					if k := (opened{addr, o.Ports}); blocked == "" && w.now.Add(o.Lifetime).After(open[k]) {
						open[k] = w.now.Add(o.Lifetime)
					}
				}
			}
			proto, to := "tcp", fmt.Sprintf("%s:%d", addr, []int{80, 443, 9}[r.IntN(3)])
			if r.IntN(4) == 0 {
				proto, to = "icmp", addr
			}
			p := w.packet(nflog.PrefixAudited, "b", proto, to)
			want := true
			for k, until := range open {
				if k.addr == addr && k.ports.Contains(policy.Protocol(p.Protocol), p.Destination.Port()) && w.now.Before(until) {
					want = false
				}
			}
			before := w.all()
			w.denials.take(p)
			w.pass(settle)
			tried[want]++
			diff.MustEqual(t, want, w.all() > before, text, proto, to, "would be denied")
			w.pass(time.Duration(r.IntN(60)) * time.Second)
		}
	}
	if tried[true] < rounds/3 || tried[false] < rounds/3 {
		t.Errorf("too few of one kind: %v", tried)
	}
}

// all is how many connections were counted.
func (w *world) all() (n uint64) {
	for _, total := range w.denials.Totals() {
		n += total.Count
	}
	return n
}

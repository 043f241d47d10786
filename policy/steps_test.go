package policy_test

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/short"
)

// TestStepsLikeEvaluate compares what is said of a flow without a port with Evaluate on
// every port, and the rules of each port with the twin's.
func TestStepsLikeEvaluate(t *testing.T) {
	r := rand.New(rand.NewPCG(16, 6))
	in := policy.NewSnapshot(policy.Snapshot{PeerSets: []*policy.PeerSet{twinPods, twinNets, twinPorts}}, nil, nil)
	allowedAny, deniedAny, parts := 0, 0, 0
	rounds := short.Rounds(1_000, 4_000, 20_000)
	for n := range rounds {
		w := randomWorld(r)
		w.would = r.IntN(3) == 0
		view, ids, live := w.view(t)
		of := w.flow()
		if of.reached.n == 0 {
			of.reached = of.dialled
		}
		open := w.asked(of, live)
		open.Protocol = []policy.Protocol{policy.AnyProtocol, policy.TCP, policy.UDP, 1}[r.IntN(4)]
		open.Dialled, open.Reached = netip.AddrPortFrom(open.Dialled.Addr(), 0), netip.AddrPortFrom(open.Reached.Addr(), 0)
		steps := policy.Steps(view, in, open)
		place := func(rule *policy.Rule) int {
			return slices.IndexFunc(steps, func(s policy.Step) bool { return s.Rule == rule })
		}
		protocols := []policy.Protocol{open.Protocol}
		if open.Protocol == policy.AnyProtocol {
			protocols = []policy.Protocol{policy.TCP, policy.UDP, policy.SCTP, 47}
		}
		type result struct {
			allowed bool
			by      *policy.Rule
		}
		begins := map[policy.Protocol]map[uint16]result{}
		for f := range policy.Flows(view, in, *open) {
			p := f.Protocol
			if p == 255 {
				p = 47 // both without a name
			}
			if begins[p] == nil {
				begins[p] = map[uint16]result{}
			}
			if _, twice := begins[p][f.Dialled.Port()]; twice {
				t.Fatalf("%d: %v/%d twice", n, p, f.Dialled.Port())
			}
			allowed, by := policy.Evaluate(view, in, f)
			begins[p][f.Dialled.Port()] = result{allowed, by}
			parts++
		}
		ports := []int{0, 1, 79, 80, 81, 442, 443, 444, 65535}
		if n < 5 {
			ports = nil
			for port := range 65536 {
				ports = append(ports, port)
			}
		}
		best, asked, seen := result{}, map[int]bool{}, map[result]bool{}
		for _, p := range protocols {
			last := result{}
			for _, port := range ports {
				f := *open
				f.Protocol, f.Dialled, f.Reached = p, netip.AddrPortFrom(f.Dialled.Addr(), uint16(port)), netip.AddrPortFrom(f.Reached.Addr(), uint16(port))
				allowed, by := policy.Evaluate(view, in, &f)
				now := result{allowed, by}
				seen[now] = true
				if begun, begins := begins[p][uint16(port)]; begins {
					last = begun
				}
				diff.MustEqual(t, last, now, n, p, "/", port, "that of its range", w.twinView)
				if by != nil && place(by) < 0 {
					t.Fatalf("%d: %v/%d: %+v decides and is no step", n, p, port, by)
				}
				rank := func(r result) int { return [...]int{0, 2, 1}[policy.VerdictOf(r.allowed, r.by)] }
				if better := rank(now) > rank(best) || rank(now) == rank(best) && by != nil && (best.by == nil || place(by) < place(best.by)); better {
					best = now
				}
				hits := map[string]bool{}
				for rule := range view.Rules.All() {
					at := place(rule)
					hit := at >= 0 && steps[at].Ports.Contains(p, uint16(port))
					hits[ids[rule]] = hits[ids[rule]] || hit
					asked[at] = asked[at] || hit
				}
				of.proto, of.dialPort, of.endPort = p, uint16(port), uint16(port)
				diff.Fatal(t, w.allHits(of), hits, n, "rules on", p, "/", port, w.twinView)
			}
		}
		for i, s := range steps {
			diff.MustEqual(t, asked[i], s.Asked, n, s, "asked")
		}
		inOrder := slices.Collect(view.Rules.All())
		if !slices.IsSortedFunc(steps, func(a, b policy.Step) int { return slices.Index(inOrder, a.Rule) - slices.Index(inOrder, b.Rule) }) {
			t.Fatalf("%d: out of order: %+v", n, steps)
		}
		allowed, by := policy.EvaluateAny(view, in, *open)
		if got := (result{allowed, by}); allowed != best.allowed || !seen[got] || got != best && !view.Ordered() && len(view.Rules.NamespaceDeny) == 0 || !allowed && (by == nil) != (best.by == nil) || policy.VerdictOf(allowed, by) != policy.VerdictOf(best.allowed, best.by) {
			t.Fatalf("%d: any port is %+v, want %+v\n%+v", n, got, best, w.twinView)
		}
		if allowed {
			allowedAny++
		} else {
			deniedAny++
		}
	}
	if allowedAny < rounds/8 || deniedAny < rounds/8 || parts < 5*rounds/2 {
		t.Errorf("%d allowed, %d denied, %d ranges", allowedAny, deniedAny, parts)
	}
}

// allHits tells of each rule with destinations whether it is asked and hits.
func (v *twinView) allHits(f *twinFlow) map[string]bool {
	second := policy.Baseline
	if exists, _ := v.ns(); exists {
		second = policy.Namespace
	}
	hits := map[string]bool{}
	for _, p := range v.policies {
		if p.denied != "" {
			hits[p.name] = second == policy.Namespace && (v.would || !p.audit) && twinHas(p.denied, f.proto, f.endPort)
		}
		for _, r := range p.rules {
			if r.names != nil || r.peers != nil {
				hits[r.id] = (p.tier == policy.Admin || p.tier == second) && (v.would || !p.audit) && v.hits(&p, &r, f)
			}
		}
	}
	return hits
}

// TestStepsOfUnknown: where the address that is reached is not known, every rule with peers may match; a port of
// a Service is that of its rule's end.
func TestStepsOfUnknown(t *testing.T) {
	in := policy.NewSnapshot(policy.Snapshot{PeerSets: []*policy.PeerSet{twinPods, twinPorts}}, nil, nil)
	v := &policy.View{Enforced: true, Rules: policy.Rules{Namespace: []*policy.Rule{{Peer: twinPods.Peer, Ports: "tcp/80"}, {Peer: twinPorts.Peer, Ports: policy.AnyPort}, {Ports: "udp/53"}}}}
	f := policy.Flow{Protocol: policy.TCP}
	if steps := policy.Steps(v, in, &f); len(steps) != 3 || !steps[0].Asked || !steps[1].Asked || steps[2].Asked {
		t.Errorf("unknown: %+v", steps)
	}
	if allowed, _ := policy.EvaluateAny(v, in, f); allowed {
		t.Error("what may match allows")
	}
	f.Dialled, f.Reached = netip.AddrPortFrom(v4(7), 8080), netip.AddrPortFrom(v4(1), 80)
	steps := policy.Steps(v, in, &f)
	if allowed, by := policy.EvaluateAny(v, in, f); len(steps) != 3 || !steps[0].Asked || steps[1].Ports != "tcp/80" || !steps[1].Asked || steps[2].Asked || !allowed || by != v.Rules.Namespace[0] {
		t.Errorf("behind a Service: %+v, %v by %+v", steps, allowed, by)
	}
	if policy.Steps(nil, in, &f) != nil {
		t.Error("steps of no view")
	}
}

package enforcer_test

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/short"
)

// orderedRounds is how many random lists TestOrderedRulesEqualEvaluate tries on each network:
// with 78 probes of each, a run has more than 5,000.
const orderedRounds = 37

// probed are the networks of probes.
var probed = map[policy.Protocol]string{policy.TCP: "tcp", policy.UDP: "udp", 1: "icmp", 58: "icmp"}

// icmpOf is the protocol of pings to an address.
func icmpOf(a netip.Addr) policy.Protocol {
	if a.Is6() {
		return 58
	}
	return 1
}

// one draws one of all, and some draws a sorted part of addresses.
func one[T any](r *rand.Rand, all ...T) T { return all[r.IntN(len(all))] }

func some(r *rand.Rand, all ...netip.Addr) []netip.Addr {
	out := slices.DeleteFunc(all, func(netip.Addr) bool { return r.IntN(2) == 0 })
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}

// drawnPeers are the peers of drawn rules.
var drawnPeers = []policy.Peer{{}, {Kind: policy.PeerPods, Key: "pods"}, {Kind: policy.PeerNetworks, Key: "networks"}, {Kind: policy.PeerPorts, Key: "named"}}

// drawPeers draws the members of drawnPeers.
func (p *peering) drawPeers(r *rand.Rand) {
	db, other, outside := p.Pod("db"), p.Pod("other"), outsides(1)
	pods, networks, named := &policy.PeerSet{Peer: drawnPeers[1]}, &policy.PeerSet{Peer: drawnPeers[2]}, &policy.PeerSet{Peer: drawnPeers[3]}
	pods.Addrs = some(r, db.Addr4, db.Addr6, other.Addr4, other.Addr6)
	for _, a := range some(r, outside[0], outside[1], db.Addr4, other.Addr6) {
		networks.Networks = append(networks.Networks, netip.PrefixFrom(a, a.BitLen()))
	}
	for _, a := range some(r, db.Addr4, db.Addr6, other.Addr4, other.Addr6) {
		named.Ports = append(named.Ports, policy.PeerPort{Addr: a, Protocol: policy.TCP, Port: 80})
	}
	p.peerSets = []*policy.PeerSet{pods, networks, named}
}

// drawRule draws the nth rule of a list, every other one by names.
func drawRule(r *rand.Rand, n int, peers []policy.Peer) *policy.Rule {
	rule := &policy.Rule{
		Tier: one(r, policy.Admin, policy.Baseline), Action: policy.Action(r.IntN(3)), Peer: one(r, peers...),
		Ports:  one[policy.PortSet](r, policy.AnyPort, "tcp", "tcp/80", "tcp/79-81", "tcp/81", "udp", "tcp/443,tcp/5432"),
		Denial: policy.Denial{Denied: policy.Denied(r.IntN(2))}, Broken: r.IntN(20) == 0, Audit: r.IntN(8) == 0, Policy: "cluster",
	}
	if r.IntN(2) == 0 {
		rule = byName(rule.Tier, rule.Action, rule.Ports, fmt.Sprint(n), one(r, "a.test", "b.test"), one(r, "b.test", "c.test", "*.test"))
		rule.DNSDenied, rule.Denied = policy.Unmatched(r.IntN(3)), policy.Denied(r.IntN(2))
	}
	return rule
}

// flowsTo are flows to addresses, and to the Services.
func (p *peering) flowsTo(addrs ...netip.Addr) (out []policy.Flow) {
	for _, a := range addrs {
		for _, to := range []struct {
			over policy.Protocol
			port uint16
		}{{policy.TCP, 80}, {policy.TCP, 81}, {policy.UDP, 80}, {icmpOf(a), 0}} {
			at := netip.AddrPortFrom(a, to.port)
			out = append(out, policy.Flow{Protocol: to.over, Dialled: at, Reached: at})
		}
	}
	for service, to := range map[netip.Addr]netip.Addr{service4: p.Pod("db").Addr4, service6: p.Pod("db").Addr6} {
		out = append(out, policy.Flow{Protocol: policy.TCP, Dialled: netip.AddrPortFrom(service, 5432), Reached: netip.AddrPortFrom(to, 80)})
	}
	return out
}

// twin is a peering with random rules, its flows and the connections that are open.
type twin struct {
	*peering
	r     *rand.Rand
	flows []policy.Flow
	open  []*opened

	byNames, byDeny, probes  int
	checked, unread, insides atomic.Int64           // probes that were led to the relay: by verdict, and to pods and Services
	claimed                  map[policy.Verdict]int // answers of Egress with a name
}

// opened is a connection of a pod.
type opened struct {
	net.Conn
	from string
	flow policy.Flow
	led  bool
}

// newTwin exempts a port from connection tracking.
func newTwin(p *peering, seed uint64) *twin {
	db, other, client, outside := p.Pod("db"), p.Pod("other"), p.Pod("client"), outsides(1)
	w := &twin{peering: p, r: rand.New(rand.NewPCG(seed, 0)), claimed: map[policy.Verdict]int{}}
	w.flows = p.flowsTo(db.Addr4, db.Addr6, other.Addr4, other.Addr6, client.Addr4, client.Addr6, outside[0], outside[1])
	fatal.If(p.t, p.Node.Pipe("table inet bare { chain c { type filter hook prerouting priority -300; th dport 82 notrack; th sport 82 notrack; }; }", "nft", "-f", "-"))
	for _, a := range []netip.Addr{db.Addr4, db.Addr6, outside[0], outside[1]} {
		at := netip.AddrPortFrom(a, 82)
		w.flows = append(w.flows, policy.Flow{Protocol: policy.UDP, Dialled: at, Reached: at}, policy.Flow{Protocol: policy.TCP, Dialled: at, Reached: at})
	}
	return w
}

// draw brings random policies into force, and answers names.
func (w *twin) draw() {
	w.t.Helper()
	r, db, other, outside := w.r, w.Pod("db"), w.Pod("other"), outsides(1)
	w.drawPeers(r)
	w.ordered = map[string][]*policy.Rule{}
	w.labels = map[string]string{"client": one(r, "gated client", "client"), "db": one(r, "db", "", "db"), "other": one(r, "other", "other db", "other", "gated other")}
	for _, pod := range []string{"client", "other"} {
		for n := range one(r, 0, 1, 2, 3, 4, 60) { // of 60, keys are asked before the names
			rule := drawRule(r, n, drawnPeers)
			if rule.ServerName = rule.ID != "" && rule.Action == policy.Accept && rule.Ports != policy.AnyPort && rule.Ports != "udp" && r.IntN(2) == 0; rule.ServerName {
				if strings.HasPrefix(w.labels[pod], "gated") {
					rule.Tier = one(r, rule.Tier, policy.Namespace)
				}
				rule.ID = rule.NewID()
			}
			rule.Standard = rule.ID == "" && r.IntN(4) == 0
			w.ordered[pod] = append(w.ordered[pod], rule)
		}
	}
	if w.labels["client"] == "gated client" && r.IntN(2) == 0 {
		w.ordered["client"] = append(w.ordered["client"], &policy.Rule{
			Action: policy.Deny, Ports: one[policy.PortSet](r, "tcp/80,udp/80", "tcp/81", "udp"), Denial: policy.Denial{Denied: policy.Denied(r.IntN(2))}, Audit: r.IntN(8) == 0, Policy: "shop/gated",
		})
	}
	w.netpols = one(r, nil, []*networkingv1.NetworkPolicy{one(r, netpol("client", "tcp/80 db"), netpol("client", "tcp/http db other"),
		netpol("client", "tcp/80 "+db.Addr4.String()+"/32 "+db.Addr6.String()+"/128"), netpol("client", "any 0.0.0.0/0"), netpol("client", "any"))})
	w.allowed = one(r, nil, []string{"tcp/80 a.test", "tcp/80,tcp/5432 c.test"}, []string{"udp/80-82,tcp/81 b.test", "any c.test"})
	w.countByName(some(r, service4, service6)...)
	w.apply()
	w.keeps()
	for range 8 {
		from, name := one(r, "client", "other"), one(r, "a.test", "b.test", "c.test")
		for _, g := range w.answer(from, name, some(r, service4, service6, db.Addr4, db.Addr6, other.Addr4, other.Addr6, outside[0], outside[1])...) {
			for _, a := range g.Addrs {
				if !slices.ContainsFunc(w.e.Grants().NamesOf(g.Pod, a), func(i policy.GrantInfo) bool { return i.Rule == g.Rule && i.Ports == g.Ports && i.Name == g.Name }) {
					w.t.Errorf("%s of %s is not entered for %q", a, name, g.Rule)
				}
			}
		}
	}
	fatal.If(w.t, w.Node.Do(func() error { return w.e.Grants().Expire() })) // which removes keys of earlier rounds
}

// keeps asserts which connections go on under new policies. Five are left at most, so that others can be opened.
func (w *twin) keeps() {
	w.t.Helper()
	before := w.open
	w.open = nil
	for _, c := range before {
		f := c.flow
		f.Open, f.Entries = nil, nil // those of now count: what a policy took away does not come back with it
		w.enter(&f, w.view(c.from))
		verdict, by := policy.Kept(w.view(c.from), w.snapshot, &f)
		keeps := verdict == policy.AllowFlow || verdict == policy.CheckFlow && c.led
		if w.goOn(fmt.Sprintf("from %s to %s, led %v, %v by %+v", c.from, f.Dialled, c.led, verdict, by), keeps, c); keeps && len(w.open) < 5 {
			w.open = append(w.open, c)
		} else {
			c.Close()
		}
	}
}

// forgetDatagrams ends the connections of earlier probes without a handshake. A probe may have the
// port of one, and the entry of a Deny that came since cuts no connection.
func (p *peering) forgetDatagrams() {
	p.t.Helper()
	_, err := p.Node.Run("sh", "-c", "conntrack -D -p udp; conntrack -D -p icmp; conntrack -D -f ipv6 -p udp; conntrack -D -f ipv6 -p icmpv6; true")
	fatal.If(p.t, err)
}

// probe asserts what becomes of the flows of a pod, and opens some connections.
func (w *twin) probe(from string) {
	w.t.Helper()
	v := w.view(from)
	var probing sync.WaitGroup
	for _, i := range w.r.Perm(len(w.flows)) {
		flow := w.flows[i]
		w.enter(&flow, v)
		verdict, by := policy.Judge(v, w.snapshot, &flow)
		want := verdict == policy.AllowFlow
		if by != nil && by.Peer.Kind == policy.PeerNames {
			w.byNames++
		}
		if by != nil && by.Tier == policy.Namespace && by.Action == policy.Deny {
			w.byDeny++
		}
		if w.probes++; verdict != policy.DenyFlow && flow.Protocol == policy.TCP && flow.Dialled == flow.Reached && flow.Dialled.Port() != 82 && len(w.open) < 8 && !(w.inside(&flow) && w.mayLead(&flow)) {
			began := time.Now()
			c := w.dial(from, flow.Dialled.Addr(), flow.Dialled.Port())
			w.open = append(w.open, &opened{c, from, flow, w.relay.dialled(c.LocalAddr(), began).IsValid()})
		}
		if flow.Protocol == policy.TCP && flow.Dialled.Port() != 82 {
			w.claims(from, &flow)
			probing.Go(func() { w.probeTCP(from, &flow, verdict, by) })
			continue
		}
		refused := !want && by != nil && !by.Broken && by.Denied == policy.Reject && flow.Protocol == policy.TCP
		probing.Go(func() {
			network := probed[flow.Protocol]
			got := w.Pod(from).ProbeFor(network, flow.Dialled, lab.Patience)
			if got != lab.Answered && want || got == lab.Silent && refused { // a busy machine gets more time
				got = w.Pod(from).ProbeFor(network, flow.Dialled, lab.Limit)
			}
			if (got == lab.Answered) != want || refused && got != lab.Refused {
				w.t.Errorf("%s to %s over %s: %s, and Evaluate says %v by %+v of %+v", from, flow.Dialled, network, got, want, by, v)
			}
		})
	}
	probing.Wait()
}

// inside tells whether the relay connects nothing to a flow's destination.
func (w *twin) inside(f *policy.Flow) bool {
	a := f.Dialled.Addr()
	_, pod := w.snapshot.Pod(a)
	return pod || a == service4 || a == service6
}

// mayLead tells whether an entry of a flow leads it to the relay where the rule is in force.
func (w *twin) mayLead(f *policy.Flow) bool {
	return slices.ContainsFunc(f.Entries, func(r *policy.Rule) bool { return r.ServerName && r.Ports.Contains(f.Protocol, f.Dialled.Port()) })
}

// probeTCP asserts what becomes of a flow of TCP of a pod. What is led to the relay is allowed there as it were directly.
func (w *twin) probeTCP(from string, f *policy.Flow, verdict policy.Verdict, by *policy.Rule) {
	refused := verdict == policy.DenyFlow && by != nil && !by.Broken && by.Denied == policy.Reject
	var got lab.Outcome
	var led netip.AddrPort
	for _, patience := range []time.Duration{lab.Patience, lab.Limit} { // a busy machine gets more time
		if got, led = w.probeLed(w.Pod(from).Host, f.Dialled, patience); got == lab.Answered || verdict == policy.DenyFlow && !refused || got == lab.Refused {
			break
		}
	}
	want := verdict == policy.AllowFlow
	switch {
	case w.inside(f) && w.mayLead(f) && (led.IsValid() || got == lab.Refused): // a reset may come before the socket tells its address
		want, refused, verdict = false, false, policy.DenyFlow
		w.insides.Add(1)
	case !led.IsValid():
	case verdict == policy.CheckFlow:
		want = true
		w.checked.Add(1)
	default:
		w.unread.Add(1)
	}
	if (got == lab.Answered) != want || refused && got != lab.Refused || led.IsValid() && led != f.Dialled || led.IsValid() && want && !w.mayLead(f) || verdict == policy.CheckFlow && !led.IsValid() {
		w.t.Errorf("%s to %s: %s, led from %v, and the evaluation says %v by %+v", from, f.Dialled, got, led, verdict, by)
	}
}

// TestOrderedRulesEqualEvaluate: random rules of pods with and without a Namespace tier
// decide packets as policy.Evaluate decides flows, dialled directly and through a Service, and
// untracked. Connections go on as policy.Keeps says, and without an agent.
func TestOrderedRulesEqualEvaluate(t *testing.T) {
	t.Parallel()
	eachPeering(t, func(t *testing.T, p *peering) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		w := newTwin(p, seed)
		w.serveRelay()
		rounds := short.Rounds(orderedRounds, orderedRounds, 10*orderedRounds)
		restarted := false
		for round := 0; round < rounds || (w.byNames < 10 || w.byDeny < 10 || w.checked.Load() < 10) && round < 10*rounds; round++ {
			w.draw()
			p.forgetDatagrams()
			w.probe("client")
			if w.probe("other"); t.Failed() {
				t.Fatalf("in round %d", round)
			}
			if w.r.IntN(4) == 0 {
				restarted = true
				p.restart()
				for _, c := range w.open {
					p.goOn("before the first snapshot of the next agent", true, c)
				}
			}
		}
		p.ordered, p.netpols, p.allowed = nil, nil, nil
		p.apply()
		fatal.If(t, p.Node.Do(func() error {
			for range 12 { // one of as many compares keys, which finds those that an agent before left
				if restarted {
					fatal.If(t, p.e.Compare())
				}
			}
			return p.e.Grants().Expire()
		}))
		if keys, err := p.Node.Run("nft", "list", "set", "inet", "namegate", "named4"); err != nil || strings.Contains(keys, "elements") {
			t.Errorf("keys are left: %s, %v", keys, err)
		}
		if sets, err := p.Node.Run("nft", "list", "sets", "inet"); err != nil || strings.Contains(sets, "peers-") || strings.Contains(sets, "entries-") {
			t.Errorf("sets are left: %v, %v", sets, err)
		}
		if w.byNames < 10 || w.byDeny < 10 {
			t.Errorf("%d flows were decided by names, %d by denies of the Namespace tier: the test does not see them", w.byNames, w.byDeny)
		}
		if w.claimed[policy.CheckFlow] < 10 || w.claimed[policy.DenyFlow] < 10 {
			t.Errorf("with names: %v", w.claimed)
		}
		if w.checked.Load() < 10 || w.unread.Load() == 0 || w.insides.Load() < 10 {
			t.Errorf("led were %d to be checked, %d unread, %d to pods and Services: the test does not see them", w.checked.Load(), w.unread.Load(), w.insides.Load())
		}
		t.Logf("%d probes, %d decided by names, %d checked, %d unread, %d inside", w.probes, w.byNames, w.checked.Load(), w.unread.Load(), w.insides.Load())
	})
}

// enter adds the live entries of the grants to a flow of a view's pod.
func (p *peering) enter(f *policy.Flow, v *policy.View) {
	f.ByName = slices.Contains(p.services, f.Dialled.Addr())
	if v == nil {
		return
	}
	for _, g := range p.e.Grants().NamesOf(v.Pod.PodRef, f.Dialled.Addr()) {
		if g.Until.Before(time.Now()) {
			continue
		}
		f.EnterGrant(v, &g)
	}
}

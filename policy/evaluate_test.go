package policy_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/short"
)

// world makes random policies of all kinds that select one pod.
type world struct {
	*rand.Rand
	twinView
}

func oneOf[T any](r *world, of ...T) T { return of[r.IntN(len(of))] }

func (w *world) ports() string {
	return oneOf(w, "any", "any", "tcp", "tcp/80", "tcp/443,udp/80", "tcp/80-443", "tcp/80,sctp")
}

func (w *world) address() twinAddr { return twinAddr{1 + w.IntN(9), w.IntN(2) == 0} }

// addPolicy adds a policy. Priorities are few, so that many are equal.
func (w *world) addPolicy(k kind) {
	p := twinPolicy{kind: k, name: fmt.Sprintf("%s%02d", oneOf(w, "a", "b"), len(w.policies))}
	least := 0
	if k == clusterFQDN || k == clusterNetwork {
		p.tier, p.priority, least = oneOf(w, policy.Admin, policy.Baseline), w.IntN(3), 1
	}
	if k == clusterFQDN || k == fqdnPolicy {
		p.audit, p.unmatched, p.withheld = w.IntN(4) == 0, policy.Unmatched(w.IntN(3)), w.IntN(4) == 0
	}
	if k == fqdnPolicy && w.IntN(4) == 0 {
		p.denied = oneOf(w, "tcp/443,udp/443", "tcp/80", "udp")
	}
	if k == clusterFQDN {
		p.dnsDenied = policy.Unmatched(w.IntN(3))
	}
	for i := range least + w.IntN(3) {
		p.rules = append(p.rules, w.rule(k, fmt.Sprintf("%s#%d", p.name, i)))
	}
	w.policies = append(w.policies, p)
}

func (w *world) rule(k kind, id string) twinRule {
	r := twinRule{id: id, ports: w.ports()}
	if least := oneOf(w, 0, 1, 1); k == fqdnPolicy || k != networkPolicy && least > 0 {
		for range 1 + w.IntN(2) {
			r.names = append(r.names, oneOf(w, "", "**.")+oneOf(w, twinNames...))
		}
	}
	if k == clusterFQDN || k == clusterNetwork {
		r.action, r.broken, r.live = policy.Action(w.IntN(3)), w.IntN(20) == 0, w.IntN(2) == 0
	}
	if (k == clusterFQDN && r.action == policy.Accept || k == fqdnPolicy) && r.names != nil && !r.broken && w.IntN(2) == 0 {
		r.serverName, r.live, r.ports = true, w.IntN(4) > 0, oneOf(w, "tcp", "tcp/80", "tcp/80-443")
		return r
	}
	add := func(kind policy.PeerKind) {
		if kind == policy.PeerPorts {
			r.peers = append(r.peers, twinPeer{kind, "any"}) // the set has the ports
		} else {
			r.peers = append(r.peers, twinPeer{kind, r.ports})
		}
	}
	switch k {
	case clusterFQDN:
		switch {
		case w.IntN(2) == 0:
			add(policy.PeerNetworks)
		case r.names == nil:
			add(policy.PeerAnywhere)
		}
	case clusterNetwork, networkPolicy:
		r.broken = r.broken || r.names != nil && r.action != policy.Accept
		if k == networkPolicy && w.IntN(4) == 0 {
			add(policy.PeerAnywhere)
			break
		}
		for _, kind := range []policy.PeerKind{policy.PeerPods, policy.PeerNetworks, policy.PeerPorts} {
			if w.IntN(2) == 0 || kind == policy.PeerPorts && r.names == nil && r.peers == nil {
				add(kind)
			}
		}
	}
	return r
}

func randomWorld(r *rand.Rand) *world {
	w := &world{Rand: r}
	w.all = r.IntN(4) == 0
	for range r.IntN(4) {
		w.addPolicy(clusterFQDN)
	}
	for range oneOf(w, 0, 0, 1, 2, 3) {
		w.addPolicy(clusterNetwork)
	}
	for range oneOf(w, 0, 0, 1, 2) {
		w.addPolicy(fqdnPolicy)
	}
	for range r.IntN(3) {
		w.addPolicy(networkPolicy)
	}
	for range r.IntN(3) {
		w.open = append(w.open, policy.PortSet(w.ports()))
	}
	return w
}

func (w *world) flow() *twinFlow {
	ports := []uint16{80, 443, 8080}
	f := &twinFlow{proto: oneOf(w, policy.TCP, policy.TCP, policy.UDP, policy.SCTP, policy.Protocol(1)), dialled: w.address(), dialPort: oneOf(w, ports...), implied: w.IntN(8) == 0, exempt: w.IntN(40) == 0}
	if f.reached, f.endPort = f.dialled, f.dialPort; w.IntN(3) == 0 { // a Service
		f.reached, f.endPort = twinAddr{1 + w.IntN(9), f.dialled.v6}, oneOf(w, ports...)
	}
	switch {
	case f.proto == 1:
		f.dialPort, f.endPort = 0, 0
	case w.IntN(20) == 0:
		f.reached, f.endPort = twinAddr{}, 0
	}
	return f
}

func (w *world) query() twinQuery {
	q := twinQuery{name: oneOf(w, twinNames...), inCluster: w.IntN(4) == 0, txt: w.IntN(4) == 0}
	for range oneOf(w, 0, 0, 1, 2, 3) {
		q.via = append(q.via, oneOf(w, twinNames...))
	}
	for range w.IntN(3) {
		q.aliases = append(q.aliases, oneOf(w, twinNames...))
	}
	return q
}

// view returns the view of the policies, the id of each of its rules, and the rules for
// which an answer made an entry.
func (w *world) view(t *testing.T) (*policy.View, map[*policy.Rule]string, []*policy.Rule) {
	v := &policy.View{Pod: policy.Pod{IPs: []netip.Addr{v4(9), v6(8)}}, Standalone: w.all}
	ids, live := map[*policy.Rule]string{}, []*policy.Rule(nil)
	all := twinView{policies: w.policies, would: true}
	for _, tier := range []policy.Tier{policy.Admin, policy.Namespace, policy.Baseline} {
		var inTier []*policy.Rule
		for _, p := range all.in(tier) {
			w.settings(v, p)
			if p.denied != "" {
				deny := &policy.Rule{Action: policy.Deny, Ports: policy.PortSet(p.denied), Policy: p.name, Audit: p.audit}
				v.Rules.NamespaceDeny, ids[deny] = append(v.Rules.NamespaceDeny, deny), p.name
			}
			index, begin := 0, len(inTier)
			for _, from := range p.rules {
				rules := p.flat(t, &from, &index)
				for _, r := range rules {
					ids[r] = from.id
					if r.Peer.Kind == policy.PeerNames && from.live {
						live = append(live, r)
					}
				}
				inTier = append(inTier, rules...)
			}
			if tier != policy.Namespace { // each has an index of its own
				v.Cluster = append(v.Cluster, policy.NewIndex(inTier[begin:], index))
			}
		}
		switch tier {
		case policy.Admin:
			v.Rules.Admin = inTier
		case policy.Baseline:
			v.Rules.Baseline = inTier
		default: // the rules with names come first
			byPeers := func(r *policy.Rule) int { return min(1, int(policy.PeerNames-r.Peer.Kind)) }
			slices.SortStableFunc(inTier, func(a, b *policy.Rule) int { return cmp.Compare(byPeers(a), byPeers(b)) })
			var audited []*policy.Rule
			for _, r := range inTier {
				switch {
				case r.ServerName && r.Audit:
					audited = append(audited, r)
				case r.ServerName:
					v.Rules.NamespaceChecked = append(v.Rules.NamespaceChecked, r)
				default:
					v.Rules.Namespace = append(v.Rules.Namespace, r)
				}
			}
			v.Rules.NamespaceChecked = append(v.Rules.NamespaceChecked, audited...)
		}
	}
	v.Index = policy.NewIndex(slices.Concat(v.Rules.Namespace, v.Rules.NamespaceChecked), 0)
	return v, ids, live
}

// settings adds those of a policy to a view.
func (w *world) settings(v *policy.View, p *twinPolicy) {
	strictest, limits := &v.Unmatched, &v.Limits
	switch {
	case p.kind == networkPolicy:
		v.NetworkPolicies = append(v.NetworkPolicies, p.name)
	case p.kind == fqdnPolicy:
		v.Policies = append(v.Policies, p.name)
		v.Enforced = v.Enforced || !p.audit
	case p.tier == policy.Admin:
		strictest, limits = &v.AdminUnmatched, &v.AdminLimits
	case p.tier == policy.Baseline:
		strictest, limits = &v.BaselineUnmatched, &v.BaselineLimits
	}
	if txt, _ := policy.QueryTypesNamed("TXT"); p.withheld && !p.audit {
		*limits = limits.Strictest(policy.DNSLimits{Withheld: txt})
	}
	if !p.audit {
		*strictest = max(*strictest, p.unmatched)
	}
}

// flat returns the rules of the model for one of the twin: one for each kind of peers.
func (p *twinPolicy) flat(t *testing.T, from *twinRule, index *int) (out []*policy.Rule) {
	rule := func(peer policy.Peer, ports string) *policy.Rule {
		r := &policy.Rule{
			Tier: p.tier, Priority: int32(p.priority), Standard: p.kind == clusterNetwork, Action: from.action, Peer: peer, Ports: policy.PortSet(ports), Policy: p.name, Path: from.id,
			Audit: p.audit, Broken: from.broken, Denial: policy.Denial{DNSDenied: p.dnsDenied}, ServerName: from.serverName,
		}
		out = append(out, r)
		return r
	}
	peers := map[policy.PeerKind]policy.Peer{policy.PeerPods: twinPods.Peer, policy.PeerNetworks: twinNets.Peer, policy.PeerPorts: twinPorts.Peer}
	if from.names != nil {
		r := rule(policy.Peer{Kind: policy.PeerNames}, from.ports)
		for _, n := range from.names {
			pattern, err := fqdn.ParsePattern(n)
			fatal.If(t, err)
			r.Matches = append(r.Matches, policy.NewMatch(r, "", pattern, *index))
			*index++
		}
	}
	for _, peer := range from.peers {
		rule(peers[peer.kind], peer.ports)
	}
	return out
}

var verdictWords = map[policy.Verdict]string{policy.DenyFlow: "deny", policy.AllowFlow: "allow", policy.CheckFlow: "check"}

// TestEvaluateLikeTwin compares both evaluations with their texts in the design, on random
// policies of all kinds.
func TestEvaluateLikeTwin(t *testing.T) {
	random := rand.New(rand.NewPCG(16, 3))
	in := policy.NewSnapshot(policy.Snapshot{PeerSets: []*policy.PeerSet{twinPods, twinNets, twinPorts}}, nil, nil)
	seen := map[string]int{}
	rounds := short.Rounds(5_000, 20_000, 200_000)
	for n := range rounds {
		w := randomWorld(random)
		view, ids, live := w.view(t)
		for range 6 {
			w.would = !w.would
			f := w.flow()
			want, by := w.evaluate(f)
			got, rule := policy.Evaluate(view, in, w.asked(f, live))
			if verdict := verdictWords[policy.VerdictOf(got, rule)]; verdict != want || got != (want == "allow") || !(rule == nil && by == nil || slices.Contains(by, ids[rule])) {
				t.Fatalf("%d: %s by %q, want %s by %q\n%+v\n%+v", n, verdict, ids[rule], want, by, f, w.twinView)
			}
			if plain, _ := w.unchecked().evaluate(f); want == "check" && plain != "allow" {
				t.Fatalf("%d: checked, and denied whatever its name is\n%+v\n%+v", n, f, w.twinView)
			}
			seen[fmt.Sprintf("%s by %d", want, min(1, len(by)))]++
			if rule != nil && rule.Tier == policy.Namespace && rule.Action == policy.Deny {
				seen["flow false by its deny"]++
			}
			other := w.asked(f, live)
			other.Would = !w.would
			if differs, _ := policy.Evaluate(view, in, other); got != differs && got != w.would {
				seen["would deny"]++
				if !view.WouldDeny() {
					t.Fatalf("%d: the Audit policies would deny\n%+v\n%+v", n, f, w.twinView)
				}
			}

			q := w.query()
			verdict := w.decide(q)
			diff.MustEqual(t, verdict, decided(policy.Decide(view, w.question(t, q)), w.would, ids), n, q, w.twinView)
			seen[strings.Join(strings.Fields(verdict)[:2], " ")]++
		}
	}
	for _, what := range []string{
		"would deny", "allow by 0", "allow by 1", "deny by 0", "deny by 1", "check by 1",
		"Resolve allowed", "Resolve denied", "NXDomain denied", "Refuse denied", "Resolve unmatched", "NXDomain refused", "Refuse refused", "NoData limited", "flow false by its deny",
	} {
		if seen[what] < rounds/20 {
			t.Errorf("%q was seen %d times: %v", what, seen[what], seen)
		}
	}
}

// asked is the flow as the evaluation is asked.
func (w *world) asked(f *twinFlow, live []*policy.Rule) *policy.Flow {
	at := func(a twinAddr, port uint16) netip.AddrPort {
		addr := a.addr()
		if addr.Is4() && w.IntN(8) == 0 {
			addr = netip.AddrFrom16(addr.As16())
		}
		return netip.AddrPortFrom(addr, port)
	}
	return &policy.Flow{
		Protocol: f.proto, Dialled: at(f.dialled, f.dialPort), Reached: at(f.reached, f.endPort),
		Open: w.open, Entries: live, Implied: f.implied, Exempt: f.exempt, Would: w.would, ByName: f.dialled.service() || f.reached.node(),
	}
}

// unchecked is the same without the check of names.
func (v *twinView) unchecked() *twinView {
	plain := *v
	plain.policies = slices.Clone(v.policies)
	for i := range plain.policies {
		p := &plain.policies[i]
		p.rules = slices.Clone(p.rules)
		for j := range p.rules {
			if r := &p.rules[j]; r.serverName {
				if r.serverName = false; r.live && (v.would || !p.audit) {
					plain.open = append(slices.Clip(plain.open), policy.PortSet(r.ports))
				}
			}
		}
	}
	return &plain
}

// question is the query as the evaluation is asked.
func (w *world) question(t *testing.T, q twinQuery) policy.Query {
	name := func(s string) fqdn.Name {
		n, err := fqdn.ParseName(s)
		fatal.If(t, err)
		return n
	}
	out := policy.Query{Name: name(q.name), InCluster: q.inCluster, Would: w.would}
	if out.Type = policy.TypeA; q.txt {
		out.Type = 16
	}
	for _, n := range q.via {
		out.Via = append(out.Via, name(n))
	}
	for _, a := range q.aliases {
		out.Aliases = append(out.Aliases, name(a))
	}
	return out
}

// decided is a decision as the twin says it.
func decided(d policy.Decision, would bool, ids map[*policy.Rule]string) string {
	g, logged, accepted := []string{}, []string(nil), false
	for _, m := range d.Matches {
		counts := would || !m.Audit
		switch id := ids[m.Rule]; {
		case slices.Contains(append(g, logged...), id):
		case counts:
			g = append(g, id)
		default:
			logged = append(logged, id)
		}
		accepted = accepted || m.Rule.Action == policy.Accept && counts
	}
	slices.Sort(logged)
	verdict := "unmatched"
	switch {
	case accepted != d.Allowed():
		verdict = "not what Allowed says"
	case d.Limit != policy.NoLimit:
		verdict = "limited"
	case d.Denied != nil:
		verdict = "denied"
	case accepted:
		verdict = "allowed"
	case d.Reply != policy.Resolve:
		verdict = "refused"
	}
	return fmt.Sprintf("%v %s %v", d.Reply, verdict, append(g, logged...))
}

package policy_test

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/namegate/namegate/policy"
)

// kind is a kind of policy, in the order of equal priorities.
type kind int

const (
	clusterFQDN    kind = iota // ClusterFQDNNetworkPolicy
	clusterNetwork             // ClusterNetworkPolicy
	fqdnPolicy                 // FQDNNetworkPolicy
	networkPolicy              // NetworkPolicy
)

// twinPolicy is one object as the twin reads it. All of a world select its pod.
type twinPolicy struct {
	kind      kind
	name      string
	tier      policy.Tier
	priority  int
	audit     bool
	unmatched policy.Unmatched
	dnsDenied policy.Unmatched
	rules     []twinRule
	withheld  bool   // queries of type TXT have no data
	denied    string // ports that are taken out of the union; "" for none
}

// twinRule is a rule as the twin reads it: texts, lists and no index.
type twinRule struct {
	id     string // of policy and rule
	action policy.Action
	names  []string
	ports  string     // of names
	peers  []twinPeer // beside the names
	broken bool
	live   bool // an answer made an entry for the dialled address; Admin and Baseline, and with serverName
	// serverName: what it accepts is checked.
	serverName bool
}

// twinPeer is peers of one kind, on ports.
type twinPeer struct {
	kind  policy.PeerKind
	ports string
}

// twinAddr is an address of a family by its number; 0 is an address that is not known.
type twinAddr struct {
	n  int
	v6 bool
}

func (a twinAddr) addr() netip.Addr {
	switch {
	case a.n == 0:
		return netip.Addr{}
	case a.v6:
		return netip.AddrFrom16([16]byte{0: 0xfd, 15: byte(a.n)})
	}
	return netip.AddrFrom4([4]byte{10, 0, 0, byte(a.n)})
}

// service tells whether the address is a Service's ClusterIP, or of its load balancer and allowed by
// `rebind allow`; node whether it is one of this node.
func (a twinAddr) service() bool { return a.n == 3 || a.n == 5 && a.v6 }
func (a twinAddr) node() bool    { return a.n == 7 }

// own tells whether the address is one of the pod: 10.0.0.9 and fd00::8.
func (a twinAddr) own() bool { return a == twinAddr{9, false} || a == twinAddr{8, true} }

// The members of the peers, as the twin knows them and as a snapshot has them.
func (a twinAddr) pod() bool { return a.n == 1 || a.n == 2 && !a.v6 }
func (a twinAddr) network() bool {
	return !a.v6 && (a.n == 2 || a.n == 3) || a.v6 && 4 <= a.n && a.n <= 7
}
func (a twinAddr) named(proto policy.Protocol, port uint16) bool {
	return slices.Contains(twinPorts.Ports, policy.PeerPort{Addr: a.addr(), Protocol: proto, Port: port})
}

var (
	twinPods  = &policy.PeerSet{Peer: policy.Peer{Kind: policy.PeerPods, Key: "pods"}, Addrs: []netip.Addr{v4(1), v4(2), v6(1)}}
	twinNets  = &policy.PeerSet{Peer: policy.Peer{Kind: policy.PeerNetworks, Key: "nets"}, Networks: []netip.Prefix{netip.PrefixFrom(v4(2), 31), netip.PrefixFrom(v6(4), 126)}}
	twinPorts = &policy.PeerSet{Peer: policy.Peer{Kind: policy.PeerPorts, Key: "named"}, Ports: []policy.PeerPort{
		{Addr: v4(1), Protocol: policy.TCP, Port: 80}, {Addr: v4(3), Protocol: policy.UDP, Port: 80}, {Addr: v6(1), Protocol: policy.TCP, Port: 443},
	}}
	twinNames = []string{"a.test", "b.test", "c.b.test", "d.test", "www.d.test"}
)

func v4(n int) netip.Addr { return twinAddr{n, false}.addr() }
func v6(n int) netip.Addr { return twinAddr{n, true}.addr() }

// twinHas tells whether a port is in a port set.
func twinHas(ports string, proto policy.Protocol, port uint16) bool {
	for _, part := range strings.Split(ports, ",") {
		of, numbers, some := strings.Cut(part, "/")
		if of != "any" && of != proto.String() {
			continue
		}
		first, last, _ := strings.Cut(numbers, "-")
		from, _ := strconv.Atoi(first)
		to, err := strconv.Atoi(last)
		if err != nil {
			to = from
		}
		if !some || from <= int(port) && int(port) <= to {
			return true
		}
	}
	return false
}

func (r *twinRule) covers(name string) bool {
	return slices.ContainsFunc(r.names, func(n string) bool {
		rest, below := strings.CutPrefix(n, "**")
		return n == name || below && strings.HasSuffix(name, rest)
	})
}

// twinFlow is a connection as the twin reads it.
type twinFlow struct {
	proto             policy.Protocol
	dialled, reached  twinAddr
	dialPort, endPort uint16
	implied, exempt   bool
}

// twinView is the policies of one pod, and what answers opened, at one dialled address.
type twinView struct {
	policies []twinPolicy
	open     []policy.PortSet // live, of the Namespace tier
	would    bool
	all      bool // NetworkPolicies isolate alone
}

// in returns the policies of a tier that count, in their order.
func (v *twinView) in(tier policy.Tier) (out []*twinPolicy) {
	for i := range v.policies {
		if p := &v.policies[i]; p.tier == tier && (v.would || !p.audit) {
			out = append(out, p)
		}
	}
	slices.SortStableFunc(out, func(a, b *twinPolicy) int {
		return cmp.Or(cmp.Compare(a.priority, b.priority), cmp.Compare(a.kind, b.kind), cmp.Compare(a.name, b.name))
	})
	return out
}

// ns tells whether the Namespace tier exists, and whether no policy is in force.
func (v *twinView) ns() (exists, empty bool) {
	of := func(kinds ...kind) bool {
		return slices.ContainsFunc(v.policies, func(p twinPolicy) bool {
			return (v.would || !p.audit) && slices.Contains(kinds, p.kind) && (len(p.rules) > 0 || p.tier == policy.Namespace)
		})
	}
	cluster := of(clusterFQDN, clusterNetwork)
	isolated := (cluster || v.all) && of(networkPolicy)
	return of(fqdnPolicy) || isolated, !of(fqdnPolicy) && !cluster && !isolated
}

// impliesDNS tells whether an enforcing kind of ours selects the pod.
func (v *twinView) impliesDNS() bool {
	return slices.ContainsFunc(v.policies, func(p twinPolicy) bool {
		return (v.would || !p.audit) && (p.kind == fqdnPolicy || p.kind == clusterFQDN)
	})
}

// hits is that of the design.
func (v *twinView) hits(p *twinPolicy, r *twinRule, f *twinFlow) bool {
	if r.broken {
		return r.action != policy.Accept
	}
	for _, peer := range r.peers {
		var in bool
		switch peer.kind {
		case policy.PeerAnywhere:
			in = true
		case policy.PeerPods:
			in = f.reached.pod()
		case policy.PeerNetworks:
			in = f.reached.network()
		case policy.PeerPorts:
			in = f.reached.named(f.proto, f.endPort)
		}
		if in && twinHas(peer.ports, f.proto, f.endPort) {
			return true
		}
	}
	live := r.live
	if p.tier == policy.Namespace && !r.serverName {
		live = slices.Contains(v.open, policy.PortSet(r.ports))
	}
	// What is reached may be unknown: then it counts as what was dialled.
	byName := r.action != policy.Accept || f.reached.n == 0 || f.reached == f.dialled && f.endPort == f.dialPort || f.reached.node() || f.dialled.service()
	return len(r.names) > 0 && live && twinHas(r.ports, f.proto, f.dialPort) && byName
}

// ordered returns what a tier says, "" for the next one, and the rule.
func (v *twinView) ordered(tier policy.Tier, f *twinFlow) (verdict string, by []string) {
	for _, p := range v.in(tier) {
		for i := range p.rules {
			r := &p.rules[i]
			switch {
			case !v.hits(p, r, f):
			case r.broken || r.action == policy.Deny:
				return "deny", []string{r.id}
			case r.action == policy.Pass:
				return "", nil
			case r.serverName && !p.audit:
				return "check", []string{r.id}
			default:
				return "allow", []string{r.id}
			}
		}
	}
	return "", nil
}

// evaluate is that of the design, with the rules of which any may be the one that decided.
func (v *twinView) evaluate(f *twinFlow) (verdict string, by []string) {
	exists, empty := v.ns()
	if empty || f.dialled.own() && f.reached.own() || f.exempt || f.implied && v.impliesDNS() {
		return "allow", nil
	}
	if verdict, by = v.ordered(policy.Admin, f); verdict != "" {
		return verdict, by
	}
	if !exists {
		if verdict, by = v.ordered(policy.Baseline, f); verdict != "" {
			return verdict, by
		}
		return "allow", nil
	}
	var denied, plain, checked, seen []string
	for _, p := range v.in(policy.Namespace) {
		if p.denied != "" && twinHas(p.denied, f.proto, f.endPort) {
			denied = append(denied, p.name)
		}
		for i := range p.rules {
			switch r := &p.rules[i]; {
			case !v.hits(p, r, f):
			case !r.serverName:
				plain = append(plain, r.id)
			case p.audit:
				seen = append(seen, r.id)
			default:
				checked = append(checked, r.id)
			}
		}
	}
	switch {
	case denied != nil:
		return "deny", denied
	case plain != nil || f.reached.own():
		return "allow", plain
	case checked != nil:
		return "check", checked
	case seen != nil:
		return "allow", seen
	}
	return "deny", nil
}

// twinQuery is a question as the twin reads it.
type twinQuery struct {
	name         string
	via, aliases []string
	inCluster    bool
	txt          bool
}

// decide is that of the design: what is replied, the verdict, and the rules of g; with
// those of Audit policies of the Namespace tier, which are there for the log.
func (v *twinView) decide(q twinQuery) string {
	covers := func(r *twinRule) bool {
		return !r.broken && (r.covers(q.name) || slices.ContainsFunc(q.via, r.covers) || r.action == policy.Deny && slices.ContainsFunc(q.aliases, r.covers))
	}
	second := policy.Baseline
	if exists, empty := v.ns(); exists || empty {
		second = policy.Namespace
	}
	var g, logged []*twinRule
	say := func(reply policy.Unmatched, verdict string) string {
		ids := []string{}
		for _, r := range append(g, logged...) {
			ids = append(ids, r.id)
		}
		slices.Sort(ids[len(g):])
		return fmt.Sprintf("%v %s %v", reply, verdict, ids)
	}
	has := func(actions ...policy.Action) bool {
		return slices.ContainsFunc(g, func(r *twinRule) bool { return slices.Contains(actions, r.action) })
	}
	u, withheld := policy.Resolve, false
	answer := func(verdict string) string {
		if withheld && q.txt {
			return say(policy.NoData, "limited")
		}
		return say(policy.Resolve, verdict)
	}
tiers:
	for _, tier := range []policy.Tier{policy.Admin, second} {
		passed := false
		for i := range v.policies {
			p := &v.policies[i]
			if p.tier == tier && !p.audit {
				u, withheld = max(u, p.unmatched), withheld || p.withheld
			}
			for i := range p.rules {
				if r := &p.rules[i]; p.kind == fqdnPolicy && tier == policy.Namespace && p.audit && !v.would && covers(r) {
					logged = append(logged, r)
				}
			}
		}
		for _, p := range v.in(tier) {
			for i := range p.rules {
				r := &p.rules[i]
				switch {
				case !covers(r):
				case tier == policy.Namespace:
					g = append(g, r)
				case r.action == policy.Deny && r.ports == "any" && !has(policy.Accept, policy.Pass) && p.dnsDenied != policy.Resolve:
					g = []*twinRule{r}
					return say(p.dnsDenied, "denied")
				default:
					g = append(g, r)
					passed = passed || r.action == policy.Pass
					if r.ports != "any" {
						continue
					}
					if r.action != policy.Pass && !passed {
						break tiers
					}
					continue tiers
				}
			}
		}
	}
	all := slices.ContainsFunc(g, func(r *twinRule) bool { return r.action == policy.Deny && r.ports == "any" })
	switch {
	case has(policy.Accept):
		return answer("allowed")
	case all:
		return answer("denied")
	case u == policy.Resolve || q.inCluster:
		return answer("unmatched")
	}
	return say(u, "refused")
}

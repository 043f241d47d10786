package check

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/explain"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/policy/peers"
)

// serverNames finds rules with serverName: Require that open nothing, since their names are of the cluster, and those
// that check nothing for some names, since another rule opens these without: for the pods of the manifests, and a made-up
// one of each policy.
func (l *linter) serverNames() {
	in, some := l.input(l.Options), false
	in.Pods, in.Namespaces = unlike(in.Pods), maps.Collect(maps.All(in.Namespaces))
	for i, p := range l.Policies {
		if p.Pods == nil || !slices.ContainsFunc(p.Rules, func(r rule) bool { return r.ServerName }) {
			continue
		}
		some = true
		l.opensNothing(p)
		pod := policy.Pod{PodRef: policy.PodRef{Namespace: p.namespace, Name: fmt.Sprint("of policy ", i)}}
		if p.ofCluster() {
			pod.Namespace = pod.Name
			in.Namespaces[pod.Namespace], _ = peers.Sample(p.Namespaces)
		}
		pod.Labels, _ = peers.Sample(p.Pods)
		in.Pods = append(in.Pods, pod)
	}
	if !some {
		return
	}
	b := bypasses{in: compile.New().Compile(in), budget: maxTies}
	for i := range in.Pods {
		if v := b.in.ViewOf(in.Pods[i].PodRef); v != nil {
			b.of(v)
		}
	}
	for _, found := range b.found {
		l.bypassed(found)
	}
}

// opensNothing finds names of the cluster in rules that require the server name.
func (l *linter) opensNothing(p *Policy) {
	for _, r := range p.Rules {
		for _, m := range r.Matches {
			if r.ServerName && inside(m.Pattern.String(), l.ClusterDomain) {
				l.warn(p, ServerNameInCluster, m.Path, "opens nothing: a rule with serverName: Require opens no address of the cluster; write the name in a rule without serverName")
			}
		}
	}
}

// bypasses finds names that rules open to the pods of views whatever the server name is, beside rules that require it.
type bypasses struct {
	in     *policy.Snapshot
	found  []*bypass
	budget int // of comparisons of matches
}

// bypass is a rule that requires the server name, and one that opens the same without.
type bypass struct {
	rule, by *policy.Rule
	port     policy.PortRange
	names    []string
}

func (b *bypasses) of(v *policy.View) {
	var plain []*policy.Match
	for r := range v.Rules.All() {
		if r.Action == policy.Accept && !r.ServerName && !r.Audit {
			plain = append(plain, r.Matches...)
		}
	}
	for r := range v.Rules.Identified() {
		if !r.ServerName || r.Audit {
			continue
		}
		for _, m := range r.Matches {
			b.name(v, r, m.Pattern)
			for _, n := range plain {
				if b.budget--; b.budget > 0 && m.Pattern != n.Pattern && covers(m.Pattern, n.Pattern) {
					b.name(v, r, n.Pattern)
				}
			}
		}
	}
}

// name asks for the rule that decides about a name of a pattern, on each port of a rule that requires the server name.
func (b *bypasses) name(v *policy.View, r *policy.Rule, p fqdn.Pattern) {
	n, err := fqdn.ParseName(strings.NewReplacer("**", "any", "*", "any").Replace(p.String()))
	if err != nil {
		return
	}
	at := netip.AddrPortFrom(anyResolvers[0], 0)
	f := policy.Flow{Protocol: policy.TCP, Dialled: at, Reached: at}
	f.Enter(policy.Decide(v, policy.Query{Name: n}).Matches...)
	for g := range policy.Flows(v, b.in, f) {
		allowed, by := policy.Evaluate(v, b.in, g)
		port := policy.PortRange{Protocol: policy.TCP, First: g.Dialled.Port(), Last: g.Dialled.Port()}
		// Of a NetworkPolicy that opens everything, permissive says so.
		if !allowed || by == nil || !r.Ports.Contains(policy.TCP, port.First) || by.Tier == policy.Namespace && by.Peer.Kind != policy.PeerNames {
			continue
		}
		i := slices.IndexFunc(b.found, func(o *bypass) bool {
			return o.rule.Policy == r.Policy && o.rule.Path == r.Path && o.by.Policy == by.Policy && o.by.Path == by.Path
		})
		if i < 0 {
			i, b.found = len(b.found), append(b.found, &bypass{r, by, port, nil})
		}
		if text := p.String(); !slices.Contains(b.found[i].names, text) {
			b.found[i].names = append(b.found[i].names, text)
		}
	}
}

// bypassed adds the finding about a bypass: at the rule that requires the server name, or if that is the cluster's, at the
// other.
func (l *linter) bypassed(b *bypass) {
	var requires, opens *Policy
	for _, p := range l.Policies {
		if p.network == nil && p.ID == b.rule.Policy {
			requires = p
		}
		if p.network == nil && p.ID == b.by.Policy {
			opens = p
		}
	}
	name := func(r *policy.Rule) string {
		if requires == opens {
			return r.Path
		}
		if r.Tier != policy.Namespace {
			return explain.PolicyName(r.Tier.String(), r.Policy) + " " + r.Path + l.ruleAt(r, r.Path)
		}
		return "policy " + r.Policy + " " + r.Path + l.ruleAt(r, r.Path)
	}
	names := console.Listed(b.names, 3)
	if requires.place.file == "" && opens.place.file != "" {
		l.warn(opens, ServerNameIgnored, b.by.Path, fmt.Sprintf("opens %s on %s whatever the server name is, so that %s checks nothing there; write serverName: Require here too", names, b.port, name(b.rule)))
		return
	}
	remedy := "write serverName: Require there too, or remove it there"
	if b.by.Peer.Kind != policy.PeerNames {
		remedy = "narrow that rule"
	}
	l.warn(requires, ServerNameIgnored, b.rule.Path+".serverName", fmt.Sprintf("checks nothing for %s on %s: %s opens that whatever the server name is; %s", names, b.port, name(b.by), remedy))
}

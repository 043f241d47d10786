package cnp

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/fields"
	"github.com/namegate/namegate/policy/api/ordered"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/policy/peers"
)

// ruleReader reads one rule. A problem breaks it.
type ruleReader struct {
	*reader
	rule   policy.Rule
	field  string // of its peers
	broken bool
	to     ordered.Destinations
}

// rule adds a rule: for each kind of its peers, one after the other.
func (r *reader) rule(rule policy.Rule, raw any) {
	rr := &ruleReader{reader: r, rule: rule, field: "to"}
	var from egressRule
	var err error
	if rule.Ingress {
		rr.field = "from"
		from, err = asEgress(raw)
	} else {
		err = decode(raw, &from)
	}
	fields, _ := raw.(map[string]any)
	written, _ := fields["action"].(string)
	rr.readAction(written)
	switch {
	case err != nil:
		rr.fail("", "%s", oneLine(err))
	default:
		list, _ := fields[rr.field].([]any)
		rr.peers(from.To, list)
	}
	rr.rule.Ports = rr.ports(".protocols", from.Protocols)
	rr.rule.Name = r.RuleName(rr.rule.Path+".name", from.Name)
	if rr.broken {
		r.AddBroken(rr.rule)
		return
	}
	r.Add(rr.rule, &rr.to)
}

// asEgress reads a rule for ingress, whose peers are two kinds of those for egress.
func asEgress(raw any) (rule egressRule, err error) {
	var from ingressRule
	err = decode(raw, &from)
	rule.Name, rule.Protocols = from.Name, from.Protocols
	for _, p := range from.From {
		rule.To = append(rule.To, egressPeer{Namespaces: p.Namespaces, Pods: p.Pods})
	}
	return rule, err
}

// fail reports what breaks the rule.
func (r *ruleReader) fail(field, format string, args ...any) {
	effect := "denies every connection"
	if r.rule.Action == policy.Accept {
		effect = "matches nothing"
	}
	r.broken = true
	r.Partly(r.rule.Path+field, "%s; until then the rule %s", fmt.Sprintf(format, args...), effect)
}

// readAction reads the action. One that is unknown counts as Deny.
func (r *ruleReader) readAction(written string) {
	switch r.rule.Action = policy.Deny; written {
	case accept:
		r.rule.Action = policy.Accept
	case deny:
	case pass:
		r.rule.Action = policy.Pass
	default:
		r.fail(".action", "%q is unknown; write Accept, Deny or Pass", written)
	}
}

// peers reads the peers of the rule; raw are the same as they were sent.
func (r *ruleReader) peers(list []egressPeer, raw []any) {
	if len(list) == 0 || len(list) > MaxPeers {
		r.fail("."+r.field, "%d peers; write 1 to %d", len(list), MaxPeers)
		return
	}
	for i := range list {
		at := fmt.Sprintf(".%s[%d]", r.field, i)
		if lacksPods(raw[i]) {
			r.fail(at+".pods", "%s", needsPods)
		}
		r.peer(at, &list[i])
	}
	r.to.Normalize(MaxPeers * MaxValues) // there are no more
}

func (r *ruleReader) peer(path string, p *egressPeer) {
	kinds := 0
	for _, there := range []bool{p.Namespaces != nil, p.Pods != nil, p.Nodes != nil, p.Networks != nil, p.DomainNames != nil} {
		if there {
			kinds++
		}
	}
	switch {
	case kinds != 1 && r.rule.Ingress:
		r.fail(path, "write exactly one of namespaces and pods; a peer without any is one that the installed CRD does not know")
	case kinds != 1:
		r.fail(path, "write exactly one of namespaces, pods, nodes, networks and domainNames; a peer without any is one that the installed CRD does not know")
	case p.Networks != nil:
		r.networks(path+".networks", p.Networks)
	case p.DomainNames != nil:
		r.domainNames(path+".domainNames", p.DomainNames)
	case p.Nodes != nil:
		if nodes, err := peers.NewSelector(p.Nodes); err != nil {
			r.fail(path+".nodes", "%v", err)
		} else {
			r.to.AddNodes(nodes)
		}
	default:
		if namespaces, pods, err := selectors(p.Namespaces, p.Pods); err != nil {
			r.fail(path, "%v", err)
		} else {
			r.to.AddPodsOf(namespaces, pods)
		}
	}
}

func (r *ruleReader) networks(path string, networks []cidr) {
	if len(networks) == 0 || len(networks) > MaxValues {
		r.fail(path, "%d networks; write 1 to %d", len(networks), MaxValues)
	}
	for i, text := range networks {
		at := fmt.Sprintf("%s[%d]", path, i)
		p, ok := fields.Report(r.fail).Network(at, string(text))
		if !ok {
			continue
		}
		// CRDs before network-policy-api v0.2.1 let such networks in, and stored policies keep them.
		if written, err := netip.ParsePrefix(string(text)); err == nil && written != p {
			r.Partly(r.rule.Path+at, "%q has bits beyond its length, which the CRD refuses since v0.2.1; write %s, as which it counts", text, p)
		}
		r.to.AddNetwork(p, nil)
	}
}

// domainNames reads names, and patterns of which a first label * is one or more labels.
func (r *ruleReader) domainNames(path string, names []domainName) {
	if r.rule.Action != policy.Accept {
		r.fail(path, "domainNames works with Accept alone; write networks, or a ClusterFQDNNetworkPolicy")
		return
	}
	if len(names) == 0 || len(names) > MaxValues {
		r.fail(path, "%d names; write 1 to %d", len(names), MaxValues)
	}
	for i, text := range names {
		at := fmt.Sprintf("%s[%d]", path, i)
		below, wild := strings.CutPrefix(string(text), "*.")
		pattern, err := fqdn.ParsePattern(below)
		switch {
		case strings.Contains(below, "*"):
			r.fail(at, "%q has a wildcard that is not the whole first of several labels; write *.example.org for everything below example.org", text)
			continue
		case err == nil && wild:
			pattern, err = fqdn.ParsePattern("**." + below)
		}
		if err != nil {
			r.fail(at, "%v", err)
			continue
		}
		r.to.Names = append(r.to.Names, ordered.Name{Path: r.rule.Path + at, Pattern: pattern})
	}
}

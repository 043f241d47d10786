package check

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/net/publicsuffix"

	"github.com/namegate/namegate/console/explain"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
)

// missing describes the names that a pattern of a Deny rule looks as if it denied, and no
// rule denies.
func (l *linter) missing(text string) (reason, message string) {
	mark, below, _ := strings.Cut(text, ".")
	name, err := fqdn.ParseName(below)
	if mark != "*" && mark != "**" || strings.Contains(below, "*") || err != nil || inside(below, l.ClusterDomain) || inside(below, "arpa") {
		return "", ""
	}
	denied := func(n fqdn.Name) bool { return len(l.denied.Match(n)) > 0 }
	apex := denied(name) || l.named[name] || strings.Count(below, ".") == 0
	if suffix, registry := publicsuffix.PublicSuffix(below); suffix == below && registry {
		apex = true // a registry's suffix is no site
	}
	beside := ""
	if !apex {
		beside = fmt.Sprintf(", and name: %s beside it", below)
	}
	deep, err := fqdn.ParseName("a.b." + below)
	switch {
	case err == nil && mark == "*" && !denied(deep):
		also := ""
		if !apex {
			also = ", nor " + below + " itself"
		}
		return DenyOneLabel, fmt.Sprintf("its * is exactly one label: names such as a.b.%s are not denied%s; write pattern: \"**.%s\" for names at any depth%s", below, also, below, beside)
	case !apex:
		return DenyApex, fmt.Sprintf("denies names below %s, but not %s itself, and no other Deny rule does; write name: %s beside it", below, below, below)
	}
	return "", ""
}

// denyList finds what a policy's rules with Deny miss, or hit beside what they name. The
// sample is a pod that the policy selects.
func (l *linter) denyList(p *Policy, sample sample) {
	byName := slices.IndexFunc(p.Rules, func(r rule) bool { return r.Action == policy.Deny && len(r.Matches) > 0 })
	if byName < 0 {
		return
	}
	if open := sample.openResolvers(p.Audit); len(open) > 0 {
		l.warn(p, OtherResolvers, p.Rules[byName].Path, fmt.Sprintf(
			"denies by name, and the pods reach other resolvers on %s, whose answers no agent sees; add under spec.egress: %s", strings.Join(open, ", "), denyResolvers))
	}
	for _, r := range p.Rules {
		for _, match := range r.Matches {
			if text := match.Pattern.String(); r.Action != policy.Deny || text != "*" && text != "**" {
				continue
			}
			if zones := sample.clusterZones(r.Rule, l.ClusterDomain); len(zones) > 0 {
				pass := make([]string, len(zones))
				for i, z := range zones {
					pass[i] = fmt.Sprintf(`{pattern: "**.%s"}`, z)
				}
				l.warn(p, DenyClusterNames, match.Path, fmt.Sprintf(
					"denies names under %s too; write before this rule: - {action: Pass, matches: [%s]}", strings.Join(zones, ", "), strings.Join(pass, ", ")))
			}
		}
	}
}

// denyResolvers is the rule that closes other resolvers. Queries to the pods' own resolvers
// come before all rules.
const denyResolvers = "- {name: other resolvers, action: Deny, ports: [{port: 53}, {port: 853}]}"

// anyResolvers stand for all resolvers outside the cluster.
var anyResolvers = slices.Concat(explain.Outside...)

// openResolvers returns the ports of DNS, and of DNS over TLS, on which a pod reaches some
// resolver outside the cluster.
func (s sample) openResolvers(would bool) (open []string) {
	for _, port := range []policy.PortRange{{Protocol: policy.UDP, First: 53, Last: 53}, {Protocol: policy.TCP, First: 53, Last: 53}, {Protocol: policy.TCP, First: 853, Last: 853}} {
		if slices.ContainsFunc(anyResolvers, func(a netip.Addr) bool {
			allows, _ := s.evaluate(netip.AddrPortFrom(a, port.First), port.Protocol, would)
			return allows
		}) {
			open = append(open, port.String())
		}
	}
	return open
}

// clusterZones returns the zones, of the cluster and of reverse lookups, of which a rule
// denies names to a pod. A rule for some ports denies no lookup.
func (s sample) clusterZones(r *policy.Rule, domain string) (zones []string) {
	for zone, first := range map[string]string{domain: "kubernetes.default.svc.", "in-addr.arpa": "1.2.0.192.", "ip6.arpa": "1.0.0.0."} {
		n, err := fqdn.ParseName(first + zone)
		if err != nil || zone == "" || r.Ports != policy.AnyPort && strings.HasSuffix(zone, "arpa") {
			continue
		}
		d := policy.Decide(s.view, policy.Query{Name: n, InCluster: zone == domain, Would: r.Audit})
		if slices.ContainsFunc(d.Matches, func(m *policy.Match) bool { return m.Policy == r.Policy && m.Rule.Path == r.Path }) {
			zones = append(zones, zone)
		}
	}
	slices.Sort(zones)
	return zones
}

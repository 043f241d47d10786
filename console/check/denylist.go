package check

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/net/publicsuffix"

	"github.com/namegate/namegate/console/explain"
	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
)

// matches finds matches of a cluster policy that work and are hardly meant.
func (d *denied) matches(p *ClusterPolicy, o Options) (findings []Finding) {
	if p.ours == nil {
		return p.acceptedNames(o)
	}
	for i := range p.ours.Spec.Egress {
		rule := &p.ours.Spec.Egress[i]
		for j := range rule.Matches {
			w, ok := readMatch(fmt.Sprintf("spec.egress[%d].matches[%d]", i, j), &rule.Matches[j])
			if !ok {
				continue
			}
			warn := func(reason, message string) {
				if message != "" {
					findings = append(findings, p.finding(Warning, reason, w.path, message))
				}
			}
			text := w.pattern.String()
			if strings.HasSuffix(w.raw, ".") {
				warn(TrailingDot, lastDot)
			}
			warn(ALabel, badALabel(text))
			switch rule.Action {
			case v1alpha1.ActionAccept:
				if reason, message := tooWideForCluster(text, o); reason != "" {
					warn(reason, message)
					continue
				}
				warn(MetadataService, guarded(w.pattern))
			case v1alpha1.ActionDeny:
				warn(d.missing(text, o))
			}
			if text != "*" && text != "**" {
				warn(d.of.notAsked(text, o.ClusterDomain))
			}
		}
	}
	return findings
}

// acceptedNames finds names of a ClusterNetworkPolicy, which only accepts names, that are too wide.
func (p *ClusterPolicy) acceptedNames(o Options) (findings []Finding) {
	for _, r := range p.Rules {
		for _, match := range r.Matches {
			if reason, message := tooWideForCluster(match.Pattern.String(), o); reason != "" {
				findings = append(findings, p.finding(Warning, reason, match.Path, message))
			} else if message := guarded(match.Pattern); message != "" {
				findings = append(findings, p.finding(Warning, MetadataService, match.Path, message))
			}
		}
	}
	return findings
}

// tooWideForCluster is tooWide for a cluster policy, which may accept all names of the cluster
// and of reverse lookups.
func tooWideForCluster(text string, o Options) (reason, message string) {
	reason, message = tooWide(text, o.ClusterDomain)
	if reason == ClusterNames || inside(text, "arpa") {
		return "", ""
	}
	return reason, message
}

// missing describes the names that a pattern of a Deny rule looks as if it denied, and no
// rule denies.
func (d *denied) missing(text string, o Options) (reason, message string) {
	mark, below, _ := strings.Cut(text, ".")
	name, err := fqdn.ParseName(below)
	if mark != "*" && mark != "**" || strings.Contains(below, "*") || err != nil || inside(below, o.ClusterDomain) || inside(below, "arpa") {
		return "", ""
	}
	apex := d.has(name) || d.exact[name] || strings.Count(below, ".") == 0
	if suffix, registry := publicsuffix.PublicSuffix(below); suffix == below && registry {
		apex = true // a registry's suffix is no site
	}
	beside := ""
	if !apex {
		beside = fmt.Sprintf(", and name: %s beside it", below)
	}
	deep, err := fqdn.ParseName("a.b." + below)
	switch {
	case err == nil && mark == "*" && !d.has(deep):
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

// denied is the matches of all cluster policies by names.
type denied struct {
	of    *Manifests
	rules *fqdn.Matcher[*policy.Match] // of Deny rules
	exact map[fqdn.Name]bool           // of rules of any action: somebody thought of the name
}

func (m *Manifests) denied() denied {
	d := denied{of: m, exact: map[fqdn.Name]bool{}}
	var all []*policy.Match
	for i := range m.ClusterPolicies {
		for _, r := range m.ClusterPolicies[i].Rules {
			if r.Action == policy.Deny {
				all = append(all, r.Matches...)
			}
			for _, match := range r.Matches {
				if n, exact := match.Pattern.Exact(); exact {
					d.exact[n] = true
				}
			}
		}
	}
	slices.SortFunc(all, (*policy.Match).Compare)
	d.rules = policy.NewMatcher(all)
	return d
}

func (d *denied) has(n fqdn.Name) bool { return len(d.rules.Match(n)) > 0 }

// denyList finds what a policy's rules with Deny miss, or hit beside what they name. The
// sample is a pod that the policy selects.
func (m *Manifests) denyList(p *ClusterPolicy, sample sample, o Options) (findings []Finding) {
	byName := slices.IndexFunc(p.Rules, func(r rule) bool { return r.Action == policy.Deny && len(r.Matches) > 0 })
	if byName < 0 {
		return nil
	}
	if open := sample.openResolvers(p.Audit); len(open) > 0 {
		findings = append(findings, p.finding(Warning, OtherResolvers, p.Rules[byName].Path, fmt.Sprintf(
			"denies by name, and the pods reach other resolvers on %s, whose answers no agent sees; add under spec.egress: %s", strings.Join(open, ", "), denyResolvers)))
	}
	for _, r := range p.Rules {
		for _, match := range r.Matches {
			if text := match.Pattern.String(); r.Action != policy.Deny || text != "*" && text != "**" {
				continue
			}
			if zones := sample.clusterZones(r.Rule, o); len(zones) > 0 {
				pass := make([]string, len(zones))
				for i, z := range zones {
					pass[i] = fmt.Sprintf(`{pattern: "**.%s"}`, z)
				}
				findings = append(findings, p.finding(Warning, DenyClusterNames, match.Path, fmt.Sprintf(
					"denies names under %s too; write before this rule: - {action: Pass, matches: [%s]}", strings.Join(zones, ", "), strings.Join(pass, ", "))))
			}
		}
	}
	return findings
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
func (s sample) clusterZones(r *policy.Rule, o Options) (zones []string) {
	for zone, first := range map[string]string{o.ClusterDomain: "kubernetes.default.svc.", "in-addr.arpa": "1.2.0.192.", "ip6.arpa": "1.0.0.0."} {
		n, err := fqdn.ParseName(first + zone)
		if err != nil || zone == "" || r.Ports != policy.AnyPort && strings.HasSuffix(zone, "arpa") {
			continue
		}
		d := policy.Decide(s.view, policy.Query{Name: n, InCluster: zone == o.ClusterDomain, Would: r.Audit})
		if slices.ContainsFunc(d.Matches, func(m *policy.Match) bool { return m.Policy == r.Policy && m.Rule.Path == r.Path }) {
			zones = append(zones, zone)
		}
	}
	slices.Sort(zones)
	return zones
}

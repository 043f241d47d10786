package suggest

import (
	"maps"
	"slices"
	"strings"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/fqdnnp"
)

// Rules returns rules that allow each name or pattern exactly its ports: names with the
// same ports share one. No rule exceeds the bounds of matches and ports. Names of one
// domain are adjacent.
func Rules(allowed map[string]policy.PortSet) []Rule {
	alike := map[policy.PortSet][]string{}
	for name, ports := range allowed {
		alike[ports] = append(alike[ports], name)
	}
	var rules []Rule
	for _, set := range slices.Sorted(maps.Keys(alike)) {
		names := alike[set]
		slices.SortFunc(names, compareNames)
		for part := range slices.Chunk(names, fqdnnp.MaxMatches) {
			if set == policy.AnyPort {
				rules = append(rules, Rule{Names: part})
				continue
			}
			for ports := range slices.Chunk(Ports(set), fqdnnp.MaxPorts) {
				rules = append(rules, Rule{Names: part, Ports: ports})
			}
		}
	}
	return rules
}

// compareNames compares label by label from the right.
func compareNames(a, b string) int {
	x, y := strings.Split(a, "."), strings.Split(b, ".")
	slices.Reverse(x)
	slices.Reverse(y)
	return slices.Compare(x, y)
}

// Ports returns a port set as a policy writes it; none for every protocol and port.
func Ports(set policy.PortSet) []v1alpha1.Port {
	var ports []v1alpha1.Port
	for _, r := range set.Ranges() {
		if r.Protocol == policy.AnyProtocol {
			return nil
		}
		protocol := v1alpha1.Protocol(strings.ToUpper(r.Protocol.String()))
		p := v1alpha1.Port{Protocol: &protocol}
		if first, last := int32(r.First), int32(r.Last); r.First != 0 || r.Last != 65535 {
			p.Port = &first
			if last > first {
				p.EndPort = &last
			}
		}
		ports = append(ports, p)
	}
	return ports
}

// policies returns the rules as policies of the workload, as many as the bound of
// rules needs, with names that no existing policy has.
func (w *workload) policies(name string, existing map[string]bool, rules []Rule) []v1alpha1.FQDNNetworkPolicy {
	var policies []v1alpha1.FQDNNetworkPolicy
	number := 1
	for part := range slices.Chunk(rules, fqdnnp.MaxRules) {
		for existing[w.namespace+"/"+numbered(name, number)] {
			number++
		}
		policies = append(policies, Policy(w.namespace, numbered(name, number), w.selected(), part))
		number++
	}
	return policies
}

// selected returns the labels that the workload's policies select.
func (w *workload) selected() map[string]string {
	if w.selector == "" {
		return map[string]string{WriteSelector: nameOf(w.pod)}
	}
	return w.labels
}

package check

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/net/idna"
	"golang.org/x/net/publicsuffix"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/fqdnnp"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/policy/fqdn"
)

// written is one match that can be read.
type written struct {
	rule    int
	path    string // with .name or .pattern
	raw     string
	pattern fqdn.Pattern
	ports   policy.PortSet // of its rule
}

// readMatch reads a match at a path, and tells whether it works.
func readMatch(path string, m *v1alpha1.Match) (w written, ok bool) {
	if (m.Name == nil) == (m.Pattern == nil) {
		return w, false
	}
	var err error
	if m.Name != nil {
		w.path, w.raw = path+".name", *m.Name
		w.pattern, err = fqdn.ParseExact(w.raw)
	} else {
		w.path, w.raw = path+".pattern", *m.Pattern
		w.pattern, err = fqdn.ParsePattern(w.raw)
	}
	return w, err == nil
}

// read returns the matches of a policy that work.
func (p *Policy) read() []written {
	var all []written
	ports := portsOf(p.Spec.Egress)
	for i := range p.Spec.Egress {
		for j := range p.Spec.Egress[i].Matches {
			if w, ok := readMatch(fmt.Sprintf("spec.egress[%d].matches[%d]", i, j), &p.Spec.Egress[i].Matches[j]); ok {
				w.rule, w.ports = i, ports[i]
				all = append(all, w)
			}
		}
	}
	return all
}

const lastDot = "the last dot says nothing; leave it out"

// matches finds matches and ports that work and are hardly meant.
func (m *Manifests) matches(p *Policy, o Options) []Finding {
	var findings []Finding
	all := p.read()
	for i := range all {
		w := &all[i]
		warn := func(reason, message string) {
			if message != "" {
				findings = append(findings, p.finding(Warning, reason, w.path, message))
			}
		}
		if strings.HasSuffix(w.raw, ".") {
			warn(TrailingDot, lastDot)
		}
		warn(ALabel, badALabel(w.pattern.String()))
		if reason, message := tooWide(w.pattern.String(), o.ClusterDomain); reason != "" {
			warn(reason, message)
		} else if reason, message := m.notAsked(w.pattern.String(), o.ClusterDomain); reason != "" {
			warn(reason, message)
		} else {
			warn(Apex, m.apex(p.Namespace, w.pattern.String(), o.ClusterDomain))
			warn(MetadataService, guarded(w.pattern))
		}
		warn(Duplicate, duplicate(all, i))
	}
	for i := range p.Spec.Egress {
		for j, message := range duplicatePorts(p.Spec.Egress[i].Ports) {
			if message != "" {
				findings = append(findings, p.finding(Warning, Duplicate, fmt.Sprintf("spec.egress[%d].ports[%d]", i, j), message))
			}
		}
	}
	return findings
}

// tooWide describes the unintended effect of a wide pattern.
func tooWide(text, cluster string) (reason, message string) {
	if strings.Trim(text, "*.") == "" {
		of := ""
		if n := strings.Count(text, "."); n > 0 && text[1] == '*' {
			of = fmt.Sprintf(" of %d labels or more", n+1)
		} else if n > 0 {
			of = fmt.Sprintf(" of %d labels", n+1)
		}
		return EveryName, "opens every name" + of + " that a pod asks for; list the names, or a pattern below a domain"
	}
	below, whole := fixed(text)
	if whole && (below == cluster || below == "svc."+cluster || below == "pod."+cluster) {
		return ClusterNames, "opens every Service or pod of the cluster; write *.NAMESPACE.svc." + cluster + ", or a NetworkPolicy, which goes by pod"
	}
	return overSuffix(text)
}

// overSuffix describes a wildcard in the label right below a public suffix, or above: any
// customer of a registry or of an operator can have a name that it matches.
func overSuffix(text string) (reason, message string) {
	_, below, whole := strings.Cut(text[strings.LastIndexByte(text, '*')+1:], ".")
	switch {
	case !strings.Contains(text, "*"):
		return "", ""
	case !whole && strings.Contains(text, ".") && !isAddress(text):
		return PublicSuffix, "anyone can register such a domain below one of the suffixes that the last * stands for; write each suffix that is meant"
	case below == "":
		return "", ""
	}
	switch suffix, icann := publicsuffix.PublicSuffix(below); {
	case suffix != below:
	case icann:
		return PublicSuffix, fmt.Sprintf("anyone can register a domain below %s, a suffix of registries (ICANN part of the public suffix list); write the domain too, such as **.DOMAIN.%s", below, below)
	case strings.Contains(suffix, "."): // else it is a guess at a domain of no list
		return PublicSuffix, fmt.Sprintf("every customer of the operator of %s can have a name below it (private part of the public suffix list); write your own name, such as NAME.%s", below, below)
	}
	return "", ""
}

// isAddress tells whether a pattern can match addresses alone.
func isAddress(text string) bool {
	_, err := netip.ParseAddr(text)
	return err == nil || strings.Trim(text, "0123456789.*") == "" && strings.ContainsAny(text, "0123456789")
}

// completed returns the name with a search suffix that pods of a namespace, "" for any, ask for in
// place of one that is short for a name of the cluster; "" for others.
func (m *Manifests) completed(text, namespace, cluster string) string {
	labels := strings.Split(text, ".")
	switch last := labels[len(labels)-1]; {
	case cluster == "" || inside(text, cluster):
	case len(labels) == 1 && namespace != "":
		return text + "." + namespace + ".svc." + cluster
	case len(labels) > 1 && last == "svc":
		return text + "." + cluster
	case len(labels) == 2 && slices.ContainsFunc(m.Services, func(s Service) bool { return s.Ref == policy.ServiceRef{Namespace: last, Name: labels[0]} }):
		return text + ".svc." + cluster
	}
	return ""
}

// notAsked says why no pod asks for a name.
func (m *Manifests) notAsked(text, cluster string) (reason, message string) {
	switch labels := strings.Split(text, "."); {
	case isAddress(text):
		return NotAsked, "is an address, and no client asks DNS for it; write a NetworkPolicy with an ipBlock"
	case len(labels) == 1:
		return NotAsked, "has one label; pods ask for it with a search suffix, so write the whole name, such as " + labels[0] + ".NAMESPACE.svc." + cluster
	case m.completed(text, "", cluster) != "":
		return NotAsked, "is short for a name of the cluster; pods ask for it with a search suffix, so write " + m.completed(text, "", cluster)
	case inside(text, cluster) && !ofCluster(labels, strings.Count(cluster, ".")+1):
		return ClusterNames, "names no Service of the cluster; if it is another name with a search suffix, write that name alone"
	}
	return "", ""
}

// inside tells whether a name or pattern is one of the cluster.
func inside(text, cluster string) bool {
	return text == cluster || strings.HasSuffix(text, "."+cluster)
}

// ofCluster tells whether labels, the last of which are the cluster's domain, can name
// a Service or a pod. Source: https://github.com/kubernetes/dns/blob/master/docs/specification.md.
func ofCluster(labels []string, domain int) bool {
	labels = labels[:len(labels)-domain]
	if len(labels) == 0 {
		return true
	}
	kind := labels[len(labels)-1]
	if strings.Contains(kind, "*") {
		return true
	}
	service := strings.HasPrefix(labels[0], "_") && len(labels) <= 5 // _port._protocol.service.namespace.svc
	return (kind == "svc" || kind == "pod") && (len(labels) <= 4 || service)
}

// badALabel says which label looks like an A-label and is none.
func badALabel(text string) string {
	for label := range strings.SplitSeq(text, ".") {
		if !strings.HasPrefix(label, "xn--") || strings.Contains(label, "*") {
			continue
		}
		unicode, err := idna.Lookup.ToUnicode(label)
		if err != nil || unicode == label {
			return fmt.Sprintf("%s is no A-label of any Unicode label; write the Unicode name for once, and this says what to write", label)
		}
	}
	return ""
}

// apex says that the name above a pattern is not open, and no policy of the namespace
// opens it.
func (m *Manifests) apex(namespace, text, cluster string) string {
	below, whole := fixed(text)
	if !whole || strings.Count(text, "*.") != 1 || inside(below, cluster) {
		return ""
	}
	name, err := fqdn.ParseName(below)
	if err != nil {
		return ""
	}
	if slices.ContainsFunc(m.patterns(namespace), func(p fqdn.Pattern) bool { return p.Matches(name) }) {
		return ""
	}
	return fmt.Sprintf("opens names below %s, but not %s itself, and no other match does; write name: %s beside it if that is meant too", below, below, below)
}

// patterns returns the matches of all policies of a namespace.
func (m *Manifests) patterns(namespace string) []fqdn.Pattern {
	if known, done := m.spaces[namespace]; done {
		return known
	}
	var all []fqdn.Pattern
	for i := range m.Policies {
		if m.Policies[i].Namespace == namespace {
			for _, w := range m.Policies[i].read() {
				all = append(all, w.pattern)
			}
		}
	}
	m.spaces[namespace] = all
	return all
}

// duplicate says which other match of the policy makes one needless. Of two that mean
// the same the later one is.
func duplicate(all []written, i int) string {
	for j := range all {
		if i == j || !all[j].covers(&all[i]) || j > i && all[i].covers(&all[j]) {
			continue
		}
		path := all[j].path[:strings.LastIndexByte(all[j].path, '.')]
		if all[j].pattern.String() == all[i].pattern.String() && all[j].ports == all[i].ports {
			return fmt.Sprintf("stands in %s already; remove one of them", path)
		}
		return fmt.Sprintf("%s (%s) covers it on its ports already; remove one of them", path, all[j].pattern)
	}
	return ""
}

func (w *written) covers(o *written) bool {
	return covers(w.pattern, o.pattern) && coversPorts(w.ports, o.ports)
}

// duplicatePorts says of each port which other port of the rule makes it needless.
func duplicatePorts(ports []v1alpha1.Port) []string {
	if len(ports) > fqdnnp.MaxPorts {
		return nil // Validate says so
	}
	single := make([]v1alpha1.EgressRule, len(ports))
	for i := range ports {
		single[i].Ports = ports[i : i+1]
	}
	sets := portsOf(single)
	messages := make([]string, len(ports))
	for i := range sets {
		for j := range sets {
			if i != j && sets[i] != "" && coversPorts(sets[j], sets[i]) && (sets[i] != sets[j] || j < i) {
				messages[i] = fmt.Sprintf("ports[%d] (%s) covers %s already; remove one of them", j, sets[j], sets[i])
				break
			}
		}
	}
	return messages
}

// portsOf returns the port set of each rule, as the compiler reads it; "" for a rule that
// opens nothing or exceeds the bounds.
func portsOf(rules []v1alpha1.EgressRule) []policy.PortSet {
	name := "a.test"
	p := v1alpha1.FQDNNetworkPolicy{}
	for i := range rules {
		p.Spec.Egress = append(p.Spec.Egress, v1alpha1.EgressRule{Matches: []v1alpha1.Match{{Name: &name}}, Ports: rules[i].Ports})
	}
	pod := policy.Pod{PodRef: policy.PodRef{Name: "a"}}
	s := compile.New().Compile(compile.Input{Policies: []*v1alpha1.FQDNNetworkPolicy{&p}, Pods: []policy.Pod{pod}})
	byPath := map[string]policy.PortSet{}
	for r := range s.ViewOf(pod.PodRef).Rules.All() {
		byPath[r.Path] = r.Ports
	}
	sets := make([]policy.PortSet, len(rules))
	for i := range sets {
		sets[i] = byPath[fmt.Sprintf("spec.egress[%d]", i)]
	}
	return sets
}

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
	"github.com/namegate/namegate/policy/fqdn"
)

// names finds matches and ports that work and are hardly meant.
func (l *linter) names(p *Policy) {
	for i := range p.matches {
		w := &p.matches[i]
		text := w.pattern.String()
		warn := func(reason, message string) { l.warn(p, reason, w.field, message) }
		if strings.HasSuffix(w.raw, ".") {
			warn(TrailingDot, "the last dot says nothing; leave it out")
		}
		warn(ALabel, badALabel(text))
		accepts, reason, message := w.action == v1alpha1.ActionAccept, "", ""
		if accepts {
			reason, message = tooWide(text, l.ClusterDomain)
		}
		if p.ofCluster() && (reason == ClusterNames || inside(text, "arpa")) {
			reason, message = "", "" // it may accept all names of the cluster and of reverse lookups
		}
		if reason == "" && text != "*" && text != "**" {
			reason, message = l.notAsked(text, l.ClusterDomain)
		}
		warn(reason, message)
		if accepts && reason == "" {
			if p.own != nil {
				warn(Apex, l.apex(p.namespace, text))
			}
			warn(MetadataService, guarded(w.pattern))
		}
		if w.action == v1alpha1.ActionDeny {
			warn(l.missing(text))
		}
		if p.own != nil {
			warn(Duplicate, duplicate(p.matches, i))
		}
	}
	if p.own == nil {
		return
	}
	for i := range p.own.Spec.Egress {
		for j, message := range duplicatePorts(p.own.Spec.Egress[i].Ports) {
			l.warn(p, Duplicate, fmt.Sprintf("spec.egress[%d].ports[%d]", i, j), message)
		}
	}
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
func (l *linter) apex(namespace, text string) string {
	below, whole := fixed(text)
	if !whole || strings.Count(text, "*.") != 1 || inside(below, l.ClusterDomain) {
		return ""
	}
	name, err := fqdn.ParseName(below)
	if err != nil || slices.ContainsFunc(l.spaces[namespace], func(p fqdn.Pattern) bool { return p.Matches(name) }) {
		return ""
	}
	return fmt.Sprintf("opens names below %s, but not %s itself, and no other match does; write name: %s beside it if that is meant too", below, below, below)
}

// duplicate says which other match of the policy makes one needless. Of two that mean
// the same the later one is.
func duplicate(all []written, i int) string {
	for j := range all {
		if i == j || !all[j].covers(&all[i]) || j > i && all[i].covers(&all[j]) {
			continue
		}
		path := all[j].field[:strings.LastIndexByte(all[j].field, '.')]
		if all[j].pattern.String() == all[i].pattern.String() && all[j].ports == all[i].ports {
			return fmt.Sprintf("stands in %s already; remove one of them", path)
		}
		return fmt.Sprintf("%s (%s) covers it on its ports already; remove one of them", path, all[j].pattern)
	}
	return ""
}

func (w *written) covers(o *written) bool {
	return w.serverName == o.serverName && covers(w.pattern, o.pattern) && coversPorts(w.ports, o.ports)
}

// duplicatePorts says of each port which other port of the rule makes it needless.
func duplicatePorts(ports []v1alpha1.Port) []string {
	if len(ports) > fqdnnp.MaxPorts {
		return nil // a problem says so
	}
	sets, messages := make([]policy.PortSet, len(ports)), make([]string, len(ports))
	for i := range ports {
		sets[i] = policy.NewPortSet(said.Port("", &ports[i])...)
	}
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

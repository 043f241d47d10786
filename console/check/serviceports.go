package check

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/policy/peers"
)

// services finds rules whose ports fit no Service of the manifests, rules for the addresses
// of Services, and names of Services that lead out of the cluster. Headless Services, patterns, and Services and pods that the manifests lack are
// not decided.
func (l *linter) services(p *Policy) {
	for i := range p.matches {
		w := &p.matches[i]
		if w.ports == "" {
			continue
		}
		if w.action == v1alpha1.ActionAccept {
			reason, message := l.dialled(w)
			l.warn(p, reason, w.path, message)
		}
		if w.action != v1alpha1.ActionDeny {
			l.warn(p, LeavesCluster, w.path, l.leaves(w.pattern))
		}
	}
	for _, r := range p.Rules {
		l.peer(r, func(reason, message string) { l.warn(p, reason, r.Path, message) })
	}
}

// serviceNamed returns the Service to which a name leads, and whether it is the name of one.
func serviceNamed(pattern fqdn.Pattern, o Options) (s policy.ServiceRef, is bool) {
	_, exact := pattern.Exact()
	name, inside := strings.CutSuffix(pattern.String(), ".svc."+o.ClusterDomain)
	s.Name, s.Namespace, is = strings.Cut(name, ".")
	return s, is && exact && inside && !strings.Contains(s.Namespace, ".")
}

// dialled says that the Service of a name does not exist in the cluster, or has none of the ports
// of a rule for the name: the reason is "" where it has one, where the name leads to no Service,
// and where the Service is not known. A name's ports are those dialled.
func (l *linter) dialled(w *written) (reason, message string) {
	ref, is := serviceNamed(w.pattern, l.Options)
	s, ports := l.serviceOf(ref), w.ports
	switch {
	case !is:
		return "", ""
	case s == nil && l.cluster != nil && l.cluster.knows(servedServices, ref.Namespace):
		return NoService, fmt.Sprintf("there is no Service %s/%s in %s; correct the name, or create the Service (kubectl get services -n %s)", ref.Namespace, ref.Name, l.source(), ref.Namespace)
	case s == nil || s.direct() || len(s.Ports) == 0:
		return "", ""
	}
	var has []string
	for i := range s.Ports {
		p := &s.Ports[i]
		if ports.Contains(p.Protocol, p.Port) {
			return "", ""
		}
		has = append(has, single(p.Protocol, p.Port).String())
	}
	target := ""
	for _, p := range s.Ports {
		if to := p.Target; to > 0 && ports.Contains(p.Protocol, to) { // 0 for a name
			target = fmt.Sprintf(" (%d is a port of its pods, and a rule for a name has the port that is dialled)", to)
		}
	}
	return ServicePort, fmt.Sprintf("Service %s%s has no port of this rule, %s, but %s; write a port of the Service%s", s.id(), s.at(), ports, strings.Join(has, ", "), target)
}

func (s *Service) id() string { return s.Ref.Namespace + "/" + s.Ref.Name }

// at says where the Service stands: " at file:line", or "" in the cluster.
func (s *Service) at() string { return s.place.where("spec.ports") }

// peer finds what does not fit in a rule for pods or networks, which is judged behind Services.
func (l *linter) peer(r rule, warn func(reason, message string)) {
	to := r.Spec
	if to == nil || r.Broken || r.Ingress {
		return
	}
	switch to.Kind {
	case policy.PeerNetworks:
		for text := range strings.SplitSeq(to.Key, ",") {
			if s := l.serviceAt(text); s != nil {
				warn(ServiceAddress, fmt.Sprintf("%s is an address of Service %s%s, and a rule for networks has the addresses behind Services, so that it matches no connection to the Service; write its pods, or its name in a policy for names",
					strings.TrimSuffix(strings.TrimSuffix(text, "/32"), "/128"), s.id(), s.at()))
			}
		}
		return
	case policy.PeerPods, policy.PeerPorts:
	default:
		return
	}
	if l.cluster != nil && l.cluster.namespaces != nil && !to.Within(l.cluster.namespaces) {
		return // pods that were not read may have the port
	}
	var selected []*Pod
	for i := range l.Pods {
		if pod := &l.Pods[i]; to.SelectsPod(pod.Namespace, l.namespaceLabels(pod.Namespace), pod.Labels) {
			selected = append(selected, pod)
		}
	}
	switch {
	case len(selected) == 0:
	case to.Kind == policy.PeerPods:
		l.byNumber(r.Ports, selected, warn)
	default:
		l.byName(to.PortNames(), selected, warn)
	}
}

// serviceAt returns the Service with pods whose address is a whole network, nil for none.
func (m *Manifests) serviceAt(network string) *Service {
	p, err := netip.ParsePrefix(network)
	if err != nil || !p.IsSingleIP() {
		return nil
	}
	for i := range m.Services {
		if s := &m.Services[i]; len(s.Selector) > 0 && s.has(p.Addr()) {
			return s
		}
	}
	return nil
}

// lead is the Service of a port, and the port of a pod to which it leads.
type lead struct {
	from *Service
	to   uint16
}

// byNumber finds ports of Services in a rule for the pods behind them, which have others. It
// accepts a rule that has the pods' port too, and a port that one of the pods has itself.
func (l *linter) byNumber(ports policy.PortSet, selected []*Pod, warn func(reason, message string)) {
	leads, fits := map[policy.PortRange]lead{}, map[policy.PortRange]bool{}
	for _, pod := range selected {
		for _, own := range pod.ports {
			fits[single(own.Protocol, own.Port)] = true
		}
		for _, s := range l.leading(pod) {
			for i := range s.Ports {
				p := &s.Ports[i]
				to, known := p.In(pod.ports)
				if !known {
					continue
				}
				fits[single(p.Protocol, to)] = true
				at := single(p.Protocol, p.Port)
				if ports.Contains(p.Protocol, to) {
					fits[at] = true
				}
				if leads[at].from == nil {
					leads[at] = lead{s, to}
				}
			}
		}
	}
	for _, at := range ports.Ranges() {
		if lead := leads[at]; lead.from != nil && !fits[at] {
			warn(ServicePort, fmt.Sprintf("%s is a port of Service %s%s, and a rule for pods has the port of the pods: write %d in its place", at, lead.from.id(), lead.from.at(), lead.to))
		}
	}
}

func single(p policy.Protocol, port uint16) policy.PortRange {
	return policy.PortRange{Protocol: p, First: port, Last: port}
}

// byName finds names of ports that no container of the selected pods has.
func (l *linter) byName(names []peers.PortName, selected []*Pod, warn func(reason, message string)) {
	has := func(name string, of []policy.Protocol) bool {
		return slices.ContainsFunc(selected, func(pod *Pod) bool {
			return slices.ContainsFunc(pod.ports, func(p policy.NamedPort) bool { return p.Name == name && slices.Contains(of, p.Protocol) })
		})
	}
	for len(names) > 0 {
		name, protocols := names[0].Name, []policy.Protocol(nil)
		for len(names) > 0 && names[0].Name == name { // sorted by name
			protocols, names = append(protocols, names[0].Protocol), names[1:]
		}
		if has(name, protocols) {
			continue
		}
		of := selected[0].name()
		if len(selected) > 1 {
			of = fmt.Sprintf("%s and %s", of, console.Plural(len(selected)-1, "other"))
		}
		service := ""
		for _, pod := range selected {
			for _, s := range l.leading(pod) {
				if service == "" && slices.ContainsFunc(s.spec.Ports, func(p corev1.ServicePort) bool { return p.Name == name }) {
					service = fmt.Sprintf("; Service %s has a port of this name, which does not count", s.id())
				}
			}
		}
		warn(NamedPort, fmt.Sprintf("no container of the pods of this rule (%s) has a port named %q for %s%s; write the name of a container's port, or its number", of, name, words(protocols), service))
	}
}

// words returns protocols as a text.
func words(protocols []policy.Protocol) string {
	var out []string
	for _, p := range protocols {
		out = append(out, p.String())
	}
	return strings.Join(out, ", ")
}

package check

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/netpol"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/policy/peers"
)

// services finds rules whose ports fit no Service of the manifests, and rules for the addresses
// of Services. Headless Services, patterns, and Services and pods that the manifests lack are
// not decided.
func (m *Manifests) services(o Options) (findings []Finding) {
	for i := range m.Policies {
		p := &m.Policies[i]
		for _, w := range p.read() {
			if message := m.dialled(w.pattern, w.ports, o); message != "" {
				findings = append(findings, p.finding(Warning, ServicePort, w.path, message))
			}
		}
	}
	for i := range m.ClusterPolicies {
		p := &m.ClusterPolicies[i]
		for _, r := range p.Rules {
			warn := func(reason, path, message string) {
				findings = append(findings, p.finding(Warning, reason, path, message))
			}
			for _, match := range r.Matches {
				if message := m.dialled(match.Pattern, r.Ports, o); message != "" && r.Action == policy.Accept {
					warn(ServicePort, match.Path, message)
				}
			}
			m.peer(r.Rule, r.Spec, warn)
		}
	}
	for i := range m.NetworkPolicies {
		n := &m.NetworkPolicies[i]
		for _, r := range netpol.Read(n.NetworkPolicy).Rules {
			m.peer(r.Rule, r.Spec, func(reason, path, message string) {
				f := n.finding(reason, path, message)
				f.Severity = Warning
				findings = append(findings, f)
			})
		}
	}
	return findings
}

// dialled says that the Service of a name has none of the ports of a rule for the name, "" where
// it has one or the name is of no Service of the manifests. A name's ports are those dialled.
func (m *Manifests) dialled(pattern fqdn.Pattern, ports policy.PortSet, o Options) string {
	if _, exact := pattern.Exact(); !exact || ports == "" {
		return ""
	}
	name, isService := strings.CutSuffix(pattern.String(), ".svc."+o.ClusterDomain)
	service, namespace, _ := strings.Cut(name, ".")
	at := slices.IndexFunc(m.Services, func(s Service) bool { return s.ServiceRef == policy.ServiceRef{Namespace: namespace, Name: service} })
	if !isService || at < 0 {
		return ""
	}
	s := &m.Services[at]
	if s.direct || len(s.ports) == 0 {
		return ""
	}
	var has []string
	for i := range s.ports {
		p := &s.ports[i]
		if ports.Contains(p.protocol, p.port) {
			return ""
		}
		has = append(has, p.String())
	}
	target := ""
	for i := range s.ports {
		if to := uint16(s.ports[i].target.IntVal); to > 0 && ports.Contains(s.ports[i].protocol, to) { // 0 for a name
			target = fmt.Sprintf(" (%d is a port of its pods, and a rule for a name has the port that is dialled)", to)
		}
	}
	return fmt.Sprintf("Service %s at %s has no port of this rule, %s, but %s; write a port of the Service%s", s.id(), s.at(), ports, strings.Join(has, ", "), target)
}

func (s *Service) id() string { return s.Namespace + "/" + s.Name }

// at is where the Service stands.
func (s *Service) at() string { return fmt.Sprintf("%s:%d", s.place.file, s.place.at("spec.ports")) }

// peer finds what does not fit in a rule for pods or networks, which is judged behind Services.
func (m *Manifests) peer(r *policy.Rule, to *peers.Spec, warn func(reason, path, message string)) {
	if to == nil || r.Broken {
		return
	}
	switch to.Kind {
	case policy.PeerNetworks:
		for text := range strings.SplitSeq(to.Key, ",") {
			if s := m.serviceAt(text); s != nil {
				warn(ServiceAddress, r.Path, fmt.Sprintf("%s is an address of Service %s at %s, and a rule for networks has the addresses behind Services, so that it matches no connection to the Service; write its pods, or its name in a policy for names",
					strings.TrimSuffix(strings.TrimSuffix(text, "/32"), "/128"), s.id(), s.at()))
			}
		}
		return
	case policy.PeerPods, policy.PeerPorts:
	default:
		return
	}
	var selected []*Pod
	for i := range m.Pods {
		if pod := &m.Pods[i]; to.SelectsPod(pod.Namespace, m.namespaceLabels(pod.Namespace), pod.Labels) {
			selected = append(selected, pod)
		}
	}
	switch {
	case len(selected) == 0:
	case to.Kind == policy.PeerPods:
		m.byNumber(r, selected, warn)
	default:
		m.byName(r, to.PortNames(), selected, warn)
	}
}

// serviceAt returns the Service with pods whose address is a whole network, nil for none.
func (m *Manifests) serviceAt(network string) *Service {
	p, err := netip.ParsePrefix(network)
	if err != nil || !p.IsSingleIP() {
		return nil
	}
	for i := range m.Services {
		if s := &m.Services[i]; len(s.selector) > 0 && slices.Contains(s.addrs, p.Addr()) {
			return s
		}
	}
	return nil
}

// byNumber finds ports of Services in a rule for the pods behind them, which have others.
func (m *Manifests) byNumber(r *policy.Rule, selected []*Pod, warn func(reason, path, message string)) {
	said := map[policy.PortRange]bool{}
	for i := range m.Services {
		s := &m.Services[i]
		for j := range s.ports {
			p := &s.ports[j]
			single := policy.PortRange{Protocol: p.protocol, First: p.port, Last: p.port}
			if said[single] || !slices.Contains(r.Ports.Ranges(), single) {
				continue
			}
			if to := m.elsewhere(s, p, r.Ports, selected); to > 0 {
				said[single] = true
				warn(ServicePort, r.Path, fmt.Sprintf("%s is a port of Service %s at %s, and a rule for pods has the port of the pods: write %d in its place", p, s.id(), s.at(), to))
			}
		}
	}
}

// elsewhere returns the port of the pods to which a Service leads one of its ports that a rule
// has; 0 where the rule has the pods' port too, or a selected pod has that port itself.
func (m *Manifests) elsewhere(s *Service, p *servicePort, ports policy.PortSet, selected []*Pod) (to uint16) {
	for _, pod := range selected {
		if slices.ContainsFunc(pod.ports, func(own policy.NamedPort) bool { return own.Protocol == p.protocol && own.Port == p.port }) {
			return 0
		}
		for i := range m.Services {
			if other := &m.Services[i]; other.selects(pod) && slices.ContainsFunc(other.ports, func(q servicePort) bool {
				target, known := q.targetIn(pod)
				return known && q.protocol == p.protocol && target == p.port
			}) {
				return 0
			}
		}
		if target, known := p.targetIn(pod); known && s.selects(pod) {
			if ports.Contains(p.protocol, target) {
				return 0
			}
			to = target
		}
	}
	return to
}

// byName finds names of ports that no container of the selected pods has.
func (m *Manifests) byName(r *policy.Rule, names []peers.PortName, selected []*Pod, warn func(reason, path, message string)) {
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
			of = fmt.Sprintf("%s and %s", of, plural(len(selected)-1, "other"))
		}
		service := ""
		for i := range m.Services {
			s := &m.Services[i]
			if slices.ContainsFunc(selected, s.selects) && slices.ContainsFunc(s.ports, func(p servicePort) bool { return p.name == name }) {
				service = fmt.Sprintf("; Service %s has a port of this name, which does not count", s.id())
				break
			}
		}
		warn(NamedPort, r.Path, fmt.Sprintf("no container of the pods of this rule (%s) has a port named %q for %s%s; write the name of a container's port, or its number", of, name, words(protocols), service))
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

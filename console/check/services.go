package check

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/policy/netpolicyfor"
	"github.com/namegate/namegate/source/manifest"
)

// Service is a Service of the manifests. Its selector is nil if its endpoints are not known.
type Service struct {
	policy.Service
	place place
	// direct: a name of the Service leads to no address of its own, but to its pods or another name.
	direct bool
	to     fqdn.Name    // the other name, "" for none
	addrs  []netip.Addr // of the Service itself, as far as the manifest has them
	// external are external IPs that are no address of its load balancer.
	external []string
	names    []string // of its ports
}

// portText writes a port of a Service.
func portText(p *policy.ServicePort) string {
	return string(policy.NewPortSet(single(p.Protocol, p.Port)))
}

// service takes a Service of a file, and tells whether it can be read.
func (m *Manifests) service(at place, o *manifest.Object) bool {
	var from corev1.Service
	if o.Name == "" || json.Unmarshal(o.JSON, &from) != nil {
		return false
	}
	s := Service{
		Service: policy.Service{Ref: policy.ServiceRef{Namespace: o.Namespace, Name: o.Name}, Selector: from.Spec.Selector}, place: at,
		direct: from.Spec.ClusterIP == corev1.ClusterIPNone || from.Spec.Type == corev1.ServiceTypeExternalName,
	}
	if from.Spec.Type == corev1.ServiceTypeExternalName {
		s.to, _ = fqdn.ParseName(from.Spec.ExternalName)
	}
	if s.Ref.Namespace == "" {
		s.Ref.Namespace = metav1.NamespaceDefault
	}
	if slices.ContainsFunc(m.Services, func(o Service) bool { return o.Ref == s.Ref }) {
		return true
	}
	texts := slices.Concat([]string{from.Spec.ClusterIP}, from.Spec.ClusterIPs, from.Spec.ExternalIPs)
	for _, ingress := range from.Status.LoadBalancer.Ingress {
		texts = append(texts, ingress.IP)
	}
	for _, text := range from.Spec.ExternalIPs {
		if !slices.ContainsFunc(from.Status.LoadBalancer.Ingress, func(i corev1.LoadBalancerIngress) bool { return i.IP == text }) {
			s.external = append(s.external, text)
		}
	}
	for _, text := range texts {
		if a, err := netip.ParseAddr(text); err == nil {
			s.addrs = append(s.addrs, a)
		}
	}
	s.Ports = policy.ServicePorts(&from)
	for _, p := range from.Spec.Ports {
		s.names = append(s.names, p.Name)
	}
	m.Services = append(m.Services, s)
	return true
}

// externalIPs finds Services with addresses that their authors chose.
func (m *Manifests) externalIPs() (findings []Finding) {
	const path = "spec.externalIPs"
	for i := range m.Services {
		if s := &m.Services[i]; len(s.external) > 0 {
			findings = append(findings, Finding{File: s.place.file, Line: s.place.at(path), Severity: Warning, Reason: policy.ReasonExternalIPs, Object: "service " + s.id(), Path: path,
				Message: fmt.Sprintf("connections of all pods to %s lead to this Service, even if another party has the address, and agents count it as an address of the cluster only if it is one of a node or in cluster.ranges; "+
					"use a load balancer's address, and forbid external IPs (admission plugin DenyServiceExternalIPs)", strings.Join(s.external[:min(len(s.external), 8)], ", "))})
		}
	}
	return findings
}

// leads returns the name to which the name of a Service leads, "" for none.
func (m *Manifests) leads(n fqdn.Name, o Options) fqdn.Name {
	i := slices.IndexFunc(m.Services, func(s Service) bool { return s.to != "" && s.name(o) == n })
	if i < 0 {
		return ""
	}
	return m.Services[i].to
}

// name returns the name of the Service in DNS.
func (s *Service) name(o Options) fqdn.Name {
	n, _ := fqdn.ParseName(s.Ref.Name + "." + s.Ref.Namespace + ".svc." + o.ClusterDomain)
	return n
}

// leaves says that a pattern accepts or passes the name of a Service that leads out of the
// cluster, "" for none.
func (m *Manifests) leaves(pattern fqdn.Pattern, o Options) string {
	for i := range m.Services {
		s := &m.Services[i]
		switch outside := s.to != "" && !inside(s.to.String(), o.ClusterDomain); {
		case !outside && (!s.direct || s.to != "" || len(s.Selector) > 0) || !pattern.Matches(s.name(o)):
		case outside:
			return fmt.Sprintf("Service %s%s leads to %s, which is no name of the cluster and is decided in its place; write that name in a rule if it is meant", s.id(), s.place.where("spec.externalName"), s.to)
		default:
			return fmt.Sprintf("the author of Service %s%s writes its endpoints, and only addresses of the cluster count for its name; if others are meant, write rebind allow %s CIDR in the Corefile", s.id(), s.place.where("spec"), s.name(o))
		}
	}
	return ""
}

// services are the Services of the manifests, by namespace.
type services map[string][]*Service

// of returns the Services that lead to a pod.
func (all services) of(pod *Pod) (some []*Service) {
	for _, s := range all[pod.Namespace] {
		if len(s.Selector) > 0 && hasLabels(s.Selector, pod.Labels) {
			some = append(some, s)
		}
	}
	return some
}

// targetIn returns the port of the pod to which a port leads, and whether it is known.
func targetIn(p *policy.ServicePort, pod *Pod) (uint16, bool) {
	if p.TargetName == "" {
		return p.Target, true
	}
	i := slices.IndexFunc(pod.ports, func(own policy.NamedPort) bool { return own.Name == p.TargetName && own.Protocol == p.Protocol })
	if i < 0 {
		return 0, false
	}
	return pod.ports[i].Port, true
}

// dialledServices returns the Services that connections to their names pass.
func (m *Manifests) dialledServices(domain fqdn.Name) netpolicyfor.Services {
	all := netpolicyfor.Services{Domain: domain}
	for i := range m.Services {
		if s := &m.Services[i]; !s.direct {
			all.List = append(all.List, &s.Service)
		}
	}
	return all
}

package check

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/policy/netpolicyfor"
	"github.com/namegate/namegate/source/manifest"
)

// Service is a Service of the manifests. Its selector is nil if its endpoints are not known.
type Service struct {
	policy.Service
	place    place
	spec     corev1.ServiceSpec
	to       fqdn.Name // the other name to which its own leads, "" for none
	balancer []string  // addresses of its load balancer
}

// service takes a Service of a file, and tells whether it can be read.
func (m *Manifests) service(at place, o *manifest.Object) bool {
	var from corev1.Service
	if o.Name == "" || json.Unmarshal(o.JSON, &from) != nil {
		return false
	}
	s := Service{
		Service: policy.Service{Ref: policy.ServiceRef{Namespace: cmp.Or(o.Namespace, metav1.NamespaceDefault), Name: o.Name}, Selector: from.Spec.Selector, Ports: policy.ServicePorts(&from)},
		place:   at, spec: from.Spec,
	}
	if from.Spec.Type == corev1.ServiceTypeExternalName {
		s.to, _ = fqdn.ParseName(from.Spec.ExternalName)
	}
	for _, ingress := range from.Status.LoadBalancer.Ingress {
		s.balancer = append(s.balancer, ingress.IP)
	}
	if m.serviceOf(s.Ref) == nil {
		m.Services = append(m.Services, s)
	}
	return true
}

// serviceOf returns the Service of a name, nil for none.
func (m *Manifests) serviceOf(ref policy.ServiceRef) *Service {
	if i := slices.IndexFunc(m.Services, func(s Service) bool { return s.Ref == ref }); i >= 0 {
		return &m.Services[i]
	}
	return nil
}

// direct tells whether the name of the Service leads to no address of its own, but to its pods or another name.
func (s *Service) direct() bool {
	return s.spec.ClusterIP == corev1.ClusterIPNone || s.spec.Type == corev1.ServiceTypeExternalName
}

// has tells whether an address is the Service's, as far as the manifest has them.
func (s *Service) has(a netip.Addr) bool {
	return slices.ContainsFunc(slices.Concat([]string{s.spec.ClusterIP}, s.spec.ClusterIPs, s.spec.ExternalIPs, s.balancer), func(text string) bool {
		own, err := netip.ParseAddr(text)
		return err == nil && own == a
	})
}

// externalIPs finds Services with addresses that their authors chose.
func (l *linter) externalIPs() {
	const path = "spec.externalIPs"
	for i := range l.Services {
		s := &l.Services[i]
		external := slices.DeleteFunc(slices.Clone(s.spec.ExternalIPs), func(text string) bool { return slices.Contains(s.balancer, text) })
		if len(external) > 0 {
			l.findings = append(l.findings, Finding{File: s.place.file, Line: s.place.at(path), Severity: Warning, Reason: policy.ReasonExternalIPs, Object: "service " + s.id(), Path: path,
				Message: fmt.Sprintf("connections of all pods to %s lead to this Service, even if another party has the address, and agents count it as an address of the cluster only if it is one of a node or in cluster.ranges; "+
					"use a load balancer's address, and forbid external IPs (admission plugin DenyServiceExternalIPs)", console.Listed(external, 8))})
		}
	}
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
func (l *linter) leaves(pattern fqdn.Pattern) string {
	for i := range l.Services {
		s := &l.Services[i]
		switch outside := s.to != "" && !inside(s.to.String(), l.ClusterDomain); {
		case !outside && (!s.direct() || s.to != "" || len(s.Selector) > 0) || !pattern.Matches(s.name(l.Options)):
		case outside:
			return fmt.Sprintf("Service %s%s leads to %s, which is no name of the cluster and is decided in its place; write that name in a rule if it is meant", s.id(), s.place.where("spec.externalName"), s.to)
		default:
			return fmt.Sprintf("the author of Service %s%s writes its endpoints, and only addresses of the cluster count for its name; if others are meant, write rebind allow %s CIDR in the Corefile", s.id(), s.place.where("spec"), s.name(l.Options))
		}
	}
	return ""
}

// leading returns the Services that lead to a pod.
func (l *linter) leading(pod *Pod) (some []*Service) {
	for _, s := range l.behind[pod.Namespace] {
		if len(s.Selector) > 0 && labels.SelectorFromSet(s.Selector).Matches(labels.Set(pod.Labels)) {
			some = append(some, s)
		}
	}
	return some
}

// dialledServices returns the Services that connections to their names pass.
func (m *Manifests) dialledServices(o Options) (all netpolicyfor.Services) {
	all.Domain, _ = fqdn.ParseName(o.ClusterDomain)
	for i := range m.Services {
		if s := &m.Services[i]; !s.direct() {
			all.List = append(all.List, &s.Service)
		}
	}
	return all
}

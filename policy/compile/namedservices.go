package compile

import (
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
)

// NamedServices are the Services of a cluster that map a port to another one, by the
// names of their cluster IPs: NAME.NAMESPACE.svc.DOMAIN. It is immutable.
type NamedServices struct {
	number uint64 // 1 is the first
	domain fqdn.Name
	list   []*namedService
	byName map[fqdn.Name]*namedService
	// changed has the services added or removed since the last number; a changed one is both
	changed []*namedService
}

// namedService is a Service that leads ports to others.
type namedService struct {
	*policy.Service
	name  fqdn.Name
	moved []policy.ServicePort // these ports alone
}

// NewNamedServices returns the Services that have a name in the cluster's domain; in ""
// none has. Each of services has a cluster IP.
func NewNamedServices(domain fqdn.Name, services []*policy.Service) *NamedServices {
	return (&NamedServices{domain: domain}).Next(services)
}

// Domain returns the cluster's.
func (x *NamedServices) Domain() fqdn.Name { return x.domain }

// Next returns what services are now. One that did not change keeps its pointer.
func (x *NamedServices) Next(services []*policy.Service) *NamedServices {
	next := &NamedServices{number: x.number + 1, domain: x.domain, byName: make(map[fqdn.Name]*namedService, len(x.list))}
	before := make(map[*policy.Service]*namedService, len(x.list))
	for _, n := range x.list {
		before[n.Service] = n
	}
	for _, s := range services {
		n := before[s]
		if delete(before, s); n == nil {
			if n = nameService(s, x.domain); n == nil {
				continue
			}
			next.changed = append(next.changed, n)
		}
		next.list = append(next.list, n)
		next.byName[n.name] = n
	}
	for _, gone := range before {
		next.changed = append(next.changed, gone)
	}
	return next
}

// nameService returns nil for a Service that leads every port to the same one, or
// cannot have a name.
func nameService(s *policy.Service, domain fqdn.Name) *namedService {
	n := &namedService{Service: s}
	for _, p := range s.Ports {
		if p.TargetName != "" || p.Target != p.Port {
			n.moved = append(n.moved, p)
		}
	}
	if len(n.moved) == 0 || domain == "" {
		return nil
	}
	name, ok := domain.Child(s.Ref.Name, s.Ref.Namespace, serviceLabel)
	if !ok {
		return nil
	}
	n.name = name
	return n
}

// serviceLabel is the label between the namespace of a Service and the cluster's domain.
const serviceLabel = "svc"

// namesService tells whether a pattern can match the name of a Service.
func namesService(p *fqdn.Pattern, domain fqdn.Name) bool {
	suffix, ok := domain.Child(serviceLabel)
	return ok && p.MatchesBelow(suffix, 2)
}

package status

import (
	"slices"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
)

// services are the cluster's, as far as companions are about them.
type services struct {
	domain fqdn.Name
	list   []*policy.Service
}

// same tells whether that is what was said before, at the cost of nothing.
func (s services) same(o services) bool {
	return s.domain == o.domain && len(s.list) == len(o.list) && (len(s.list) == 0 || &s.list[0] == &o.list[0])
}

// alike tells whether both lead what pods dial to the same ports.
func (s services) alike(o services) bool {
	return s.domain == o.domain && slices.EqualFunc(s.list, o.list, func(a, b *policy.Service) bool {
		return a == b || a.Ref == b.Ref && slices.Equal(a.Ports, b.Ports)
	})
}

// SetServices says which Services with a cluster IP there are, as policy.Cluster.Dialled
// has them. The Reporter keeps the list.
func (r *Reporter) SetServices(dialled []*policy.Service) {
	r.tellServices(func(s *services) { s.list = dialled })
}

// SetDomain says which domain the names of the cluster's Services are in.
func (r *Reporter) SetDomain(domain fqdn.Name) {
	r.tellServices(func(s *services) { s.domain = domain })
}

func (r *Reporter) tellServices(change func(*services)) {
	r.mu.Lock()
	last := r.services
	change(&r.services)
	now := r.services
	r.mu.Unlock()
	if !now.same(last) && !now.alike(last) {
		note(r.leadNews)
	}
}

func (r *Reporter) toldServices() services {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.services
}

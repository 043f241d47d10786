package companion

import (
	"slices"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
)

// Services are the Services of the cluster with a cluster IP, as policy.Cluster.Dialled has
// them, and the domain of their names.
type Services struct {
	Domain fqdn.Name
	List   []*policy.Service
}

// same tells whether both are one list, at the cost of nothing.
func (s Services) same(o Services) bool {
	return s.Domain == o.Domain && len(s.List) == len(o.List) && (len(s.List) == 0 || &s.List[0] == &o.List[0])
}

// Equal tells whether both lead what pods dial to the same ports.
func (s Services) Equal(o Services) bool {
	return s.same(o) || s.Domain == o.Domain && slices.EqualFunc(s.List, o.List, func(a, b *policy.Service) bool {
		return a == b || a.Ref == b.Ref && slices.Equal(a.Ports, b.Ports)
	})
}

package serve

import (
	"cmp"
	"net/http"
	"net/netip"
	"slices"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/explain"
	"github.com/namegate/namegate/policy"
)

// explainFrom answers why a pod or a node can or cannot be reached from a source.
func (r *request) explainFrom() error {
	to, err := explain.ParsePort(r.URL.Query().Get("port"))
	if err != nil {
		return console.Refuse(http.StatusBadRequest, "%v", err)
	}
	p, err := r.node()
	if p == nil && err == nil {
		p, err = r.subject()
	}
	if err != nil {
		return err
	}
	s := explain.Source{Text: r.URL.Query().Get("from")}
	if p.Local() { // else another agent answers
		if err := r.source(p, &s); err != nil {
			return err
		}
	}
	f := r.factsOf(p)
	f.Contested = contested(r.Snapshot, p, func(v *policy.View) bool { return v.Ingress != nil })
	return r.explained(explain.Question{Node: r.Node, To: to, From: &s}, f)
}

// source completes the source of connections to a pod: an address, node/NODE, or a pod, which the caller has to be
// allowed to see.
func (r *request) source(to *policy.Pod, s *explain.Source) error {
	from, err := explain.ParseFrom(s.Text)
	switch {
	case err != nil:
		return console.Refuse(http.StatusBadRequest, "%v", err)
	case from.Addr.IsValid():
		s.Addrs, s.OfNode, s.Inside, s.Pod = []netip.Addr{from.Addr}, r.Own(from.Addr), r.inside(from.Addr), r.podAt(from.Addr)
		return nil
	case from.Node != "":
		s.Inside = "node"
		if s.OfNode = from.Node == r.Node; s.OfNode {
			return nil
		}
		at := slices.IndexFunc(r.Nodes, func(n *policy.Pod) bool { return n.Name == from.Node })
		if at < 0 {
			return console.Refuse(http.StatusNotFound, "the agent of %s does not know the addresses of the node %s; write the address from which it connects", r.Node, from.Node)
		}
		s.Addrs = r.Nodes[at].IPs
		return nil
	}
	namespace := cmp.Or(from.Namespace, to.Namespace)
	if err := r.may(namespace); err != nil {
		return err
	}
	return r.sourcePod(namespace, from.Name, s)
}

// sourcePod completes a source that is a pod.
func (r *request) sourcePod(namespace, name string, s *explain.Source) error {
	at := slices.IndexFunc(r.Remote, func(p *policy.Pod) bool { return p.Namespace == namespace && p.Name == name && !p.Finished() })
	if at >= 0 {
		s.Pod = r.Remote[at]
	} else if p, err := r.find(namespace, name); err != nil {
		why := r.Unread
		if why == "" && r.RemoteNamespaces != nil && !slices.Contains(r.RemoteNamespaces, namespace) {
			why = "no rule of this node's pods has peers in " + namespace
		}
		if why != "" {
			return console.Refuse(http.StatusNotFound, "%v; pods of other nodes are not known: %s; write the address from which it connects", err, why)
		}
		return err
	} else if s.Pod = p; p.Finished() {
		return console.Refuse(http.StatusNotFound, "the pod %s has ended (%s) and connects nowhere", p, p.Phase)
	}
	s.Text, s.Addrs = s.Pod.String(), s.Pod.IPs
	if s.Pod.HostNetwork {
		s.Inside, s.OfNode = "node", s.Pod.Local()
	}
	return nil
}

// podAt returns the pod at an address, nil where none is known.
func (r *request) podAt(a netip.Addr) *policy.Pod {
	for p := range r.allPods() {
		if !p.Finished() && !p.HostNetwork && slices.Contains(p.IPs, a) {
			return p
		}
	}
	return nil
}

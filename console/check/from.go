package check

import (
	"cmp"
	"fmt"
	"net/http"
	"net/netip"
	"slices"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/explain"
	"github.com/namegate/namegate/policy"
)

// AskFrom returns whether a source may connect to the pod or node on a port: an answer for each pod, and each object that
// makes pods, of its name. The rules of a pod for egress are asked before. The error says which sources there are.
func (m *Manifests) AskFrom(to Pod, f explain.From, port explain.Target, o Options) (answers []Answer, err error) {
	pods := []Pod{{}}
	switch namespace := cmp.Or(f.Namespace, to.Namespace); {
	case f.Addr.IsValid():
		has := func(p Pod) bool { return slices.Contains(p.addrs, f.Addr) && !p.HostNetwork && !p.Finished() }
		if i := slices.IndexFunc(m.Pods, has); i >= 0 {
			pods = m.Pods[i : i+1]
		}
	case f.Node == "":
		if pods = m.PodsNamed(namespace, f.Name); len(pods) == 0 {
			return nil, m.NoPod(namespace, f.Name, "the address from which it connects")
		}
	}
	for _, pod := range pods {
		s, err := m.sourceOf(f, &pod, &to)
		if err == nil && pod.Name != "" && to.HostNetwork && len(to.addrs) == 0 {
			err = console.Refuse(http.StatusNotFound, "%s uses the host network, and %s no address of it; add the pod as `kubectl get pod -o yaml` prints it", to.name(), m.have())
		}
		if err != nil {
			return nil, err
		}
		answers = append(answers, m.askFrom(to, pod, s, port, o))
	}
	return answers, nil
}

// NoPod returns the error that there is no pod of a name. or is what to write in place of another.
func (m *Manifests) NoPod(namespace, name, or string) error {
	what, known := "no manifest has a pod %s/%s, or a workload that makes it; %s, or %s", "add the manifest that has it"
	if m.cluster != nil {
		what = "the cluster does not have a pod %s/%s, and no manifest has a workload that makes it; %s, or %s"
	}
	if len(m.Pods) > 0 {
		var names []string
		for _, p := range m.Pods {
			names = append(names, p.PodRef.String())
		}
		known = "write one of " + console.Listed(names, 8)
	}
	return console.Refuse(http.StatusNotFound, what, namespace, name, known, or)
}

// sourceOf returns the source of connections to a pod: a pod, unless that has no name.
func (m *Manifests) sourceOf(f explain.From, pod, to *Pod) (explain.Source, error) {
	s := explain.Source{Text: pod.PodRef.String(), Addrs: pod.addrs}
	node, isNode := pod.node, pod.HostNetwork
	switch {
	case f.Node != "":
		s.Text, s.Addrs, node, isNode = "node/"+f.Node, m.nodeAddrs[f.Node], f.Node, true
	case pod.Name == "":
		s.Text, s.Addrs = f.Addr.String(), []netip.Addr{f.Addr}
		for name, addrs := range m.nodeAddrs {
			if slices.Contains(addrs, f.Addr) {
				node, isNode = name, true
			}
		}
	}
	if !isNode {
		return s, nil
	}
	s.Inside, s.OfNode = "node", node != "" && node == to.node
	if !s.OfNode && len(s.Addrs) == 0 {
		return s, console.Refuse(http.StatusNotFound, "%s no address from which %s connects; write that address", m.have(), s.Text)
	}
	return s, nil
}

// askFrom is AskFrom for one source: a pod, unless that has no name.
func (m *Manifests) askFrom(to, from Pod, s explain.Source, port explain.Target, o Options) Answer {
	name, unknown := s.Text, to.locate(8, s.Addrs)
	pods := []Pod{to}
	switch {
	case from.Name == "":
	case from.Kind == "Pod" && from.PodRef == to.PodRef:
		from = to
	default:
		from.UID += ", that connects" // another pod of the workload, if both have the same
		unknown = append(unknown, from.locate(9, to.IPs)...)
		pods = append(pods, from)
	}
	if from.Name != "" {
		name, s.Pod, s.Addrs = from.name(), &from.Pod, from.IPs
	}
	snap := m.snapshot(o, pods...)
	facts := func(p *Pod) explain.Facts {
		f := m.facts(p, "", o, snap)
		f.Unknown, f.Pods = unknown, slices.Values([]*policy.Pod{&to.Pod})
		return f
	}
	a := Answer{explain.Explain(explain.Question{To: port, From: &s}, facts(&to)), "ingress"}
	switch {
	case from.Name != "":
		a = a.after(&to, port, facts(&from))
	case s.Inside == "":
		a.Notes = append(a.Notes, name+" counts as the address of no pod; for a pod write its name")
	}
	if to.isNode() {
		a.Notes = append(a.Notes, "failsafes of the node, such as TCP 22, are not asked")
	} else if s.Inside == "node" && to.node == "" {
		a.Notes = append(a.Notes, "processes of the pod's own node always reach it")
	}
	a.Pod, a.From, a.Reason = to.name(), name, a.Direction+": "+a.Reason
	return a
}

// after puts the answer of the source's rules for egress before that of the pod's for ingress.
func (a Answer) after(to *Pod, port explain.Target, f explain.Facts) Answer {
	resolver := port.Port == 53 && to.isResolver()
	if resolver {
		f.Resolvers = to.IPs
	}
	for _, addr := range to.IPs {
		if !slices.ContainsFunc(f.Pod.IPs, func(own netip.Addr) bool { return own.Is4() == addr.Is4() }) {
			continue
		}
		e := explain.Explain(explain.Question{To: port.At(addr)}, f)
		e.To = a.To
		switch said := fmt.Sprintf("egress: %s: %s", e.Verdict, e.Reason); {
		case resolver:
			e.Notes = append(e.Notes, "the agent answers queries in place of the resolver, whose rules for ingress do not count")
			return Answer{e, "egress"}
		case e.Verdict == explain.Denied || a.Allowed() && e.Verdict != explain.Allowed:
			return Answer{e, "egress"}
		case !slices.Contains(a.Notes, said):
			a.Notes = append(a.Notes, said)
		}
	}
	return a
}

// locate gives the pod its addresses, or without any one that stands for it, of the family of the other end. It
// returns such a one.
func (p *Pod) locate(last byte, other []netip.Addr) (unknown []netip.Addr) {
	p.Phase = ""
	p.Ports = slices.DeleteFunc(slices.Clone(p.ports), func(n policy.NamedPort) bool { return n.Name == "" })
	if p.IPs = p.addrs; len(p.IPs) > 0 {
		return nil
	}
	a := netip.AddrFrom4([4]byte{192, 0, 0, last}) // no pod's: RFC 6890
	if len(other) > 0 && other[0].Is6() {
		a = netip.AddrFrom16([16]byte{0: 1, 15: last}) // RFC 6666
	}
	p.IPs = []netip.Addr{a}
	return p.IPs
}

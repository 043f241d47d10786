package peers

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/namegate/namegate/policy"
)

// Index is every pod that can be a peer, found by what selectors ask for.
type Index struct {
	namespaces map[string]map[string]string
	spaces     map[string]*namespace
	local      map[policy.PodRef]*pod
	remote     map[*policy.Pod]*pod
	byAddr     buckets[netip.Addr]
	byLabel    map[label]*bucket // the labels that sets ask for, including labels without pods
	byPort     buckets[string]   // the name
	moved      []netip.Addr      // addresses of pods that came, went or changed
	dirty      []dirtyAddr       // the dirty addresses, sorted, each once
	joined     counts            // of the pods that came or changed in the running compile
}

// dirtyAddr is an address that may belong to other sets than before the running
// compile, with the pods that claim it now.
type dirtyAddr struct {
	netip.Addr
	pods []*pod
}

// namespace is a namespace that has peers.
type namespace struct {
	name   string
	labels map[string]string
	known  bool // its labels are
	bucket
}

// pod is a pod as a peer. It is immutable but for seen.
type pod struct {
	space  *namespace
	labels map[string]string
	ips    []netip.Addr       // as given
	addrs  []netip.Addr       // the valid addresses
	named  []policy.NamedPort // as given
	ports  []policy.NamedPort // the named ports, sorted by name
	seen   uint64
}

// NewIndex returns an index without pods.
func NewIndex() *Index {
	return &Index{
		spaces: map[string]*namespace{}, local: map[policy.PodRef]*pod{}, remote: map[*policy.Pod]*pod{},
		byAddr: buckets[netip.Addr]{}, byLabel: map[label]*bucket{}, byPort: buckets[string]{},
	}
}

// Update brings the index up to the compile of that number, and notes which addresses
// may belong to other sets than before.
func (x *Index) Update(number uint64, namespaces map[string]map[string]string, pods []policy.Pod, remote ...[]*policy.Pod) {
	x.moved, x.joined = nil, counts{}
	x.relabel(namespaces)
	present := 0
	for i := range pods {
		p := &pods[i]
		if !canBePeer(p) {
			continue
		}
		present++
		was := x.local[p.PodRef]
		if was == nil || !was.stands(p) {
			x.leave(was)
			was = x.join(p)
			x.local[p.PodRef] = was
		}
		was.seen = number
	}
	sweep(x, x.local, present, number)
	present = 0
	for _, list := range remote {
		for _, p := range list {
			if p == nil || !canBePeer(p) {
				continue
			}
			was := x.remote[p]
			if was == nil {
				was = x.join(p)
				x.remote[p] = was
			}
			if was.seen != number { // a pod that is given twice counts once
				present++
			}
			was.seen = number
		}
	}
	sweep(x, x.remote, present, number)
	slices.SortFunc(x.moved, netip.Addr.Compare)
	x.dirty = nil
	for _, a := range slices.Compact(x.moved) {
		x.dirty = append(x.dirty, dirtyAddr{a, x.byAddr.of(a).pods})
	}
}

// sweep removes the pods that the running compile did not see.
func sweep[K comparable](x *Index, known map[K]*pod, present int, number uint64) {
	if present == len(known) {
		return
	}
	for k, p := range known {
		if p.seen != number {
			delete(known, k)
			x.leave(p)
		}
	}
}

// canBePeer tells whether a pod's addresses are its own.
func canBePeer(p *policy.Pod) bool { return !p.HostNetwork && !p.Finished() && len(p.IPs) > 0 }

// stands tells whether the peer equals the pod.
func (p *pod) stands(as *policy.Pod) bool {
	return slices.Equal(p.ips, as.IPs) && slices.Equal(p.named, as.Ports) && maps.Equal(p.labels, as.Labels)
}

func (x *Index) join(from *policy.Pod) *pod {
	sp := x.spaces[from.Namespace]
	if sp == nil {
		sp = &namespace{name: from.Namespace}
		sp.labels, sp.known = x.namespaces[sp.name]
		x.spaces[sp.name] = sp
	}
	p := &pod{space: sp, labels: from.Labels, ips: from.IPs, addrs: peerAddrs(from.IPs), named: from.Ports, ports: byName(from.Ports)}
	sp.add(p, len(p.ports))
	p.listed(x.byLabel, func(r *bucket) { r.add(p, len(p.ports)) })
	for _, a := range p.addrs {
		x.byAddr.add(a, p, 0)
	}
	p.eachName(func(name string, ports int) { x.byPort.add(name, p, ports) })
	x.moved = append(x.moved, p.addrs...)
	x.joined.add(p)
	return p
}

func (x *Index) leave(p *pod) {
	if p == nil {
		return
	}
	if p.space.remove(p, len(p.ports)); len(p.space.pods) == 0 {
		delete(x.spaces, p.space.name)
	}
	p.listed(x.byLabel, func(r *bucket) { r.remove(p, len(p.ports)) })
	for _, a := range p.addrs {
		x.byAddr.remove(a, p, 0)
	}
	p.eachName(func(name string, ports int) { x.byPort.remove(name, p, ports) })
	x.moved = append(x.moved, p.addrs...)
}

// byName returns ports in the order of their names.
func byName(ports []policy.NamedPort) []policy.NamedPort {
	order := func(a, b policy.NamedPort) int { return strings.Compare(a.Name, b.Name) }
	if slices.IsSortedFunc(ports, order) {
		return ports
	}
	ports = slices.Clone(ports)
	slices.SortStableFunc(ports, order)
	return ports
}

// eachName calls do with the names of the pod's ports, each once, and how many have it.
func (p *pod) eachName(do func(name string, ports int)) {
	for rest := p.ports; len(rest) > 0; {
		n := len(of(rest, rest[0].Name))
		do(rest[0].Name, n)
		rest = rest[n:]
	}
}

// of returns the named ones of ports, which are sorted by name.
func of(ports []policy.NamedPort, name string) []policy.NamedPort {
	first, _ := slices.BinarySearchFunc(ports, name, func(p policy.NamedPort, name string) int { return strings.Compare(p.Name, name) })
	last := first
	for last < len(ports) && ports[last].Name == name {
		last++
	}
	return ports[first:last]
}

// peerAddrs returns the addresses that a pod can have, clean and each once.
func peerAddrs(ips []netip.Addr) []netip.Addr {
	fine := func(a netip.Addr) bool { return a == policy.CleanAddr(a) && policy.CheckPodAddr(a) == nil }
	if !slices.ContainsFunc(ips, func(a netip.Addr) bool { return !fine(a) }) {
		return ips
	}
	return policy.CleanAddrs(slices.DeleteFunc(slices.Clone(ips), func(a netip.Addr) bool { return policy.CheckPodAddr(a) != nil }))
}

// relabel sets the namespaces' labels, and notes the pods of changed ones.
func (x *Index) relabel(namespaces map[string]map[string]string) {
	x.namespaces = namespaces
	for name, sp := range x.spaces {
		set, known := namespaces[name]
		if known == sp.known && maps.Equal(set, sp.labels) {
			continue
		}
		sp.labels, sp.known = set, known
		for _, p := range sp.pods {
			x.joined.add(p)
			x.moved = append(x.moved, p.addrs...)
		}
	}
}

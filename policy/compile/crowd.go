package compile

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/namegate/namegate/policy"
)

// crowd is every pod that can be a peer, found by what selectors ask for.
type crowd struct {
	namespaces map[string]map[string]string
	spaces     map[string]*peerSpace
	local      map[policy.PodRef]*peerPod
	remote     map[*policy.Pod]*peerPod
	byAddr     index[netip.Addr]
	byLabel    map[label]*roster // the labels that sets ask for, also those that no pod has
	byPort     rosters[string]   // the name
	moved      []netip.Addr      // addresses of pods that came, went or changed
	dirty      []dirtyAddr       // those, sorted, each once
	joined     counts            // what came or changed in the running compile
}

// dirtyAddr is an address that may belong to other sets than before the running
// compile, with the pods that claim it now.
type dirtyAddr struct {
	netip.Addr
	pods []*peerPod
}

// peerSpace is a namespace that has peers.
type peerSpace struct {
	name   string
	labels map[string]string
	known  bool // its labels are
	roster
}

// peerPod is a pod as a peer. It is immutable but for seen.
type peerPod struct {
	space  *peerSpace
	labels map[string]string
	ips    []netip.Addr       // as given
	addrs  []netip.Addr       // those that a pod can have, clean
	named  []policy.NamedPort // as given
	ports  []policy.NamedPort // those, sorted by name
	seen   uint64
}

// index finds pods by a property that each may have several of.
type index[K comparable] map[K][]*peerPod

func (x index[K]) add(k K, p *peerPod) { x[k] = append(x[k], p) }

func (x index[K]) remove(k K, p *peerPod) {
	if x[k] = removed(x[k], p); len(x[k]) == 0 {
		delete(x, k)
	}
}

func newCrowd() *crowd {
	return &crowd{
		spaces: map[string]*peerSpace{}, local: map[policy.PodRef]*peerPod{}, remote: map[*policy.Pod]*peerPod{},
		byAddr: index[netip.Addr]{}, byLabel: map[label]*roster{}, byPort: rosters[string]{},
	}
}

// update brings the crowd up to the compile of that number, and notes which addresses
// may belong to other sets than before.
func (c *crowd) update(number uint64, namespaces map[string]map[string]string, pods []policy.Pod, remote []*policy.Pod) {
	c.moved, c.joined = nil, counts{}
	c.relabel(namespaces)
	present := 0
	for i := range pods {
		p := &pods[i]
		if !canBePeer(p) {
			continue
		}
		present++
		was := c.local[p.PodRef]
		if was == nil || !was.stands(p) {
			c.leave(was)
			was = c.join(p)
			c.local[p.PodRef] = was
		}
		was.seen = number
	}
	sweep(c, c.local, present, number)
	present = 0
	for _, p := range remote {
		if p == nil || !canBePeer(p) {
			continue
		}
		was := c.remote[p]
		if was == nil {
			was = c.join(p)
			c.remote[p] = was
		}
		if was.seen != number { // one that is given twice is one
			present++
		}
		was.seen = number
	}
	sweep(c, c.remote, present, number)
	slices.SortFunc(c.moved, netip.Addr.Compare)
	c.dirty = nil
	for _, a := range slices.Compact(c.moved) {
		c.dirty = append(c.dirty, dirtyAddr{a, c.byAddr[a]})
	}
}

// sweep lets those leave that the running compile did not see.
func sweep[K comparable](c *crowd, known map[K]*peerPod, present int, number uint64) {
	if present == len(known) {
		return
	}
	for k, p := range known {
		if p.seen != number {
			delete(known, k)
			c.leave(p)
		}
	}
}

// canBePeer tells whether a pod's addresses are its own.
func canBePeer(p *policy.Pod) bool { return !p.HostNetwork && !p.Finished() && len(p.IPs) > 0 }

// stands tells whether the peer is as the pod is.
func (p *peerPod) stands(as *policy.Pod) bool {
	return slices.Equal(p.ips, as.IPs) && slices.Equal(p.named, as.Ports) && maps.Equal(p.labels, as.Labels)
}

func (c *crowd) join(pod *policy.Pod) *peerPod {
	sp := c.spaces[pod.Namespace]
	if sp == nil {
		sp = &peerSpace{name: pod.Namespace}
		sp.labels, sp.known = c.namespaces[sp.name]
		c.spaces[sp.name] = sp
	}
	p := &peerPod{space: sp, labels: pod.Labels, ips: pod.IPs, addrs: peerAddrs(pod.IPs), named: pod.Ports, ports: byName(pod.Ports)}
	sp.add(p, len(p.ports))
	p.listed(c.byLabel, func(r *roster) { r.add(p, len(p.ports)) })
	for _, a := range p.addrs {
		c.byAddr.add(a, p)
	}
	p.eachName(func(name string, ports int) { c.byPort.add(name, p, ports) })
	c.moved = append(c.moved, p.addrs...)
	c.joined.add(p)
	return p
}

func (c *crowd) leave(p *peerPod) {
	if p == nil {
		return
	}
	if p.space.remove(p, len(p.ports)); len(p.space.pods) == 0 {
		delete(c.spaces, p.space.name)
	}
	p.listed(c.byLabel, func(r *roster) { r.remove(p, len(p.ports)) })
	for _, a := range p.addrs {
		c.byAddr.remove(a, p)
	}
	p.eachName(func(name string, ports int) { c.byPort.remove(name, p, ports) })
	c.moved = append(c.moved, p.addrs...)
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
func (p *peerPod) eachName(do func(name string, ports int)) {
	for rest := p.ports; len(rest) > 0; {
		n := len(of(rest, rest[0].Name))
		do(rest[0].Name, n)
		rest = rest[n:]
	}
}

// of returns of ports, which are sorted by name, those that have a name.
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
	return cleanAddrs(slices.DeleteFunc(slices.Clone(ips), func(a netip.Addr) bool { return policy.CheckPodAddr(a) != nil }))
}

// relabel takes the namespaces' labels, and notes the pods of those that changed.
func (c *crowd) relabel(namespaces map[string]map[string]string) {
	c.namespaces = namespaces
	for name, sp := range c.spaces {
		set, known := namespaces[name]
		if known == sp.known && maps.Equal(set, sp.labels) {
			continue
		}
		sp.labels, sp.known = set, known
		for _, p := range sp.pods {
			c.joined.add(p)
			c.moved = append(c.moved, p.addrs...)
		}
	}
}

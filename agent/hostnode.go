package agent

import (
	"errors"
	"io/fs"
	"log/slog"
	"net/netip"
	"slices"
	"sync"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/agent/rollout"
	"github.com/namegate/namegate/kernel/link"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/failsafe"
	"github.com/namegate/namegate/proxy/corefile"
)

// hostNode completes each state of the source with this node as a subject of policies.
type hostNode struct {
	name      string
	apiServer string                       // HOST:PORT as the agent dials it, "" for none
	config    func() *corefile.Config      // the running one
	read      func() ([]netip.Addr, error) // the addresses of this node
	uplinks   func() ([]link.Uplink, error)
	// readResolvers returns the resolvers of the host, and resolvers takes them over.
	readResolvers func() ([]netip.Addr, error)
	resolvers     func([]netip.Addr)
	offer         func(rollout.State)
	log           *slog.Logger

	mu      sync.Mutex
	state   *rollout.State // of the source; nil before the first
	pods    []netip.Addr   // of this node, in state
	own     []netip.Addr
	links   []link.Uplink
	servers []netip.Addr     // resolvers of the host
	control []netip.AddrPort // endpoints of the API server
	node    *policy.Node     // of the last completed state
	failing bool             // the addresses could not be read
	missing string           // of the rows that stay, as it was reported
}

// systemdResolved lists the resolvers behind systemd-resolved.
const systemdResolved = "/run/systemd/resolve/resolv.conf"

// openHostNode prepares the node as a subject.
func (a *agent) openHostNode() {
	a.host = &hostNode{
		name: a.o.Node, config: a.config.Load, read: a.kernel.Links.Addrs, uplinks: a.kernel.Links.Uplinks, offer: a.rollout.Offer, resolvers: a.network.host.setResolvers, log: a.log,
		readResolvers: func() ([]netip.Addr, error) { return resolversOf(a.o.ResolvConf, systemdResolved) },
	}
	if a.cluster != nil {
		a.host.apiServer = a.cluster.server
	}
	a.host.poll()
}

// resolversOf returns the resolvers of files in the form of resolv.conf(5), without those on
// loopback. Each file has the resolvers behind those on loopback of the file before it.
func resolversOf(files ...string) (out []netip.Addr, err error) {
	for i, file := range files {
		c, err := dns.ClientConfigFromFile(file)
		if err != nil {
			if i > 0 && errors.Is(err, fs.ErrNotExist) {
				break
			}
			return nil, err
		}
		stub := len(c.Servers) == 0
		for _, text := range c.Servers {
			a, err := netip.ParseAddr(text)
			if err == nil && !a.IsLoopback() {
				out = append(out, policy.CleanAddr(a))
			}
			stub = stub || err == nil && a.IsLoopback()
		}
		if !stub {
			break
		}
	}
	return policy.CleanAddrs(out), nil
}

// receive takes over a state of the source.
func (h *hostNode) receive(s rollout.State) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.state, h.pods = &s, nil
	for i := range s.Input.Pods {
		if p := &s.Input.Pods[i]; p.Local() && !p.HostNetwork && !p.Finished() {
			h.pods = append(h.pods, p.IPs...)
		}
	}
	h.emit(true)
}

// poll reads the addresses, interfaces and resolvers of the node. The last ones stay while the kernel cannot
// be asked, and while the files list no resolver.
func (h *hostNode) poll() {
	own, err := h.read()
	links, errLinks := h.uplinks()
	servers, errResolvers := h.readResolvers()
	h.mu.Lock()
	defer h.mu.Unlock()
	if errLinks == nil {
		h.links = links
	}
	err = errors.Join(err, errLinks, errResolvers)
	if err != nil && !h.failing {
		h.log.Warn("cannot read this node's addresses, interfaces or resolvers; policies for nodes are evaluated with the previous ones", "error", err)
	}
	h.failing = err != nil
	if len(own) > 0 {
		slices.SortFunc(own, netip.Addr.Compare)
		h.own = slices.Compact(own)
	}
	if len(servers) > 0 {
		h.servers = servers
	}
	h.emit(false)
}

// reconfigured takes over a changed configuration.
func (h *hostNode) reconfigured() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.emit(false)
}

// emit offers the completed state if the state or the node changed. The caller holds mu.
func (h *hostNode) emit(changed bool) {
	h.resolvers(hostResolvers(h.servers, h.config().Failsafe))
	if h.state == nil {
		return
	}
	n := &policy.Node{Name: h.name, Addrs: h.own, Interfaces: h.interfaces()}
	n.Failsafes, n.Missing = h.failsafes()
	h.keepLast(n)
	if own := h.state.Cluster.Own; own != nil {
		n.Labels = own.Labels
	}
	if n.Same(h.node) {
		if !changed {
			return
		}
		n = h.node
	}
	if n.Missing != "" && (h.node == nil || h.node.Missing != n.Missing) {
		h.log.Warn("failsafes of the node are not known; it accepts no policies for nodes", "missing", n.Missing)
	}
	h.node = n
	s := *h.state
	s.Input.Node = n
	h.offer(s)
}

// interfaces returns those with an address of the Node's status or a default route. The last ones stay while
// there are none: a policy that is in force stays so. The caller holds mu.
func (h *hostNode) interfaces() (names []string) {
	var addrs []netip.Addr
	if own := h.state.Cluster.Own; own != nil {
		addrs = own.Addrs
	}
	for _, l := range h.links {
		if l.Default || slices.ContainsFunc(l.Addrs, func(a netip.Addr) bool { return slices.Contains(addrs, a) }) {
			names = append(names, l.Name)
		}
	}
	if len(names) == 0 && h.node != nil {
		return h.node.Interfaces
	}
	return names
}

// keepLast gives a node whose rows are missing those that the last one had: a policy that is in
// force stays so. The caller holds mu.
func (h *hostNode) keepLast(n *policy.Node) {
	if n.Missing == "" || h.node == nil || h.node.Missing != "" {
		return
	}
	if n.Missing != h.missing {
		h.log.Warn("failsafes of the node are not known any more; the last ones stay until the agent ends", "missing", n.Missing)
	}
	h.missing, n.Missing = n.Missing, ""
	for _, f := range h.node.Failsafes {
		if !slices.ContainsFunc(n.Failsafes, func(o policy.Failsafe) bool { return o.Name == f.Name }) {
			n.Failsafes = append(n.Failsafes, f)
		}
	}
}

// failsafes returns the table of the node, and which rows are missing. The caller holds mu.
func (h *hostNode) failsafes() (rows []policy.Failsafe, missing string) {
	c := h.config()
	// An API server that ends takes its endpoint away: the last ones stay.
	if at := &h.state.Cluster.APIServers; len(at.Endpoints) == 0 {
		at.Endpoints = h.control
	} else {
		h.control = at.Endpoints
	}
	in := failsafe.Inputs{Config: &c.Failsafe, Cluster: &h.state.Cluster, APIServer: h.apiServer, Pods: h.pods, Ranges: c.ClusterRanges, Resolvers: h.servers, RelayPort: uint16(c.ServerNames.Port)}
	for _, z := range c.Zones {
		in.Upstreams = append(in.Upstreams, z.To...)
	}
	return in.Rows()
}

// current returns the node of the last completed state, nil before the first.
func (h *hostNode) current() *policy.Node {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.node
}

// hostResolvers returns the resolvers of the host: those of its files, and single addresses with UDP 53 of
// the Corefile, with which an administrator names the resolvers behind a resolver on the host.
func hostResolvers(servers []netip.Addr, c failsafe.Config) []netip.Addr {
	out := slices.Clone(servers)
	for _, f := range c.Rows {
		for _, n := range f.Networks {
			if f.Out && n.IsSingleIP() && slices.Contains(f.Ports, policy.PortRange{Protocol: policy.UDP, First: dnsPort, Last: dnsPort}) && !slices.Contains(out, n.Addr()) {
				out = append(out, n.Addr())
			}
		}
	}
	return out
}

package agent

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/namegate/namegate/agent/failsafes"
	"github.com/namegate/namegate/agent/rollout"
	"github.com/namegate/namegate/kernel/underlay"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/failsafe"
	"github.com/namegate/namegate/proxy/upstream"
)

// hostNode completes each state of the source with this node as a subject of policies. The
// first state waits until the failsafes were computed once: without them the policies of the
// node would be audited alone, although the agent before this one enforced them.
type hostNode struct {
	name   string
	keeper keeper
	read   func() ([]netip.Addr, error) // the addresses of this node
	offer  func(rollout.State)
	// resolvers takes over the resolvers of the host.
	resolvers func([]netip.Addr)
	log       *slog.Logger

	mu      sync.Mutex
	state   *rollout.State // of the source; nil before the first
	own     []netip.Addr
	list    *failsafe.List // nil before the first
	node    *policy.Node   // of the last completed state
	failing bool           // the addresses could not be read
	learned hostLearned
}

// keeper is a failsafes.Keeper.
type keeper interface {
	SetCluster(failsafes.Cluster)
	SetCorefile(failsafes.Corefile)
	Learn(host string, addrs []netip.Addr)
	Run(ctx context.Context, receive func(*failsafe.List)) error
}

// openHostNode prepares the node as a subject.
func (a *agent) openHostNode() error {
	kernel, err := underlay.Open()
	if err != nil {
		return err
	}
	a.kernel.closers = append(a.kernel.closers, kernel.Close)
	root := os.DirFS(a.o.HostRoot)
	o := failsafes.Options{Node: a.o.Node, Host: root, Underlay: kernel, Resolver: failsafes.NewHostResolver(root, upstream.Dialer(a.enforce.SocketMark())),
		File: filepath.Join(filepath.Dir(a.o.Socket), "failsafes.json"), Log: a.log}
	if a.cluster != nil {
		o.APIServer = a.cluster.server
	}
	keeper, err := failsafes.New(o)
	if err != nil {
		return err
	}
	keeper.SetCorefile(failsafes.CorefileOf(a.config.Load()))
	a.host = &hostNode{name: a.o.Node, keeper: keeper, read: a.kernel.Links.Addrs, offer: a.rollout.Offer, resolvers: a.network.host.setResolvers, log: a.log}
	return nil
}

// run keeps the node current until ctx ends.
func (h *hostNode) run(ctx context.Context) error {
	h.poll()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return h.keeper.Run(ctx, h.setFailsafes) })
	g.Go(func() error {
		every(ctx, nodeAddressesPeriod, h.poll)
		return nil
	})
	return g.Wait()
}

// receive takes over a state of the source.
func (h *hostNode) receive(s rollout.State) {
	var pods []netip.Addr
	for i := range s.Input.Pods {
		if p := &s.Input.Pods[i]; p.Local() && !p.HostNetwork && !p.Finished() {
			pods = append(pods, p.IPs...)
		}
	}
	h.keeper.SetCluster(failsafes.Cluster{Cluster: s.Cluster, Pods: pods})
	h.mu.Lock()
	defer h.mu.Unlock()
	h.state = &s
	h.emit(true)
}

func (h *hostNode) setFailsafes(l *failsafe.List) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.resolvers(hostResolvers(l))
	h.list = l
	h.emit(false)
}

// failsafes returns the failsafes of the node, nil before they were computed.
func (h *hostNode) failsafes() *failsafe.List {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.list
}

// poll reads the addresses of the node. The last ones stay while the kernel cannot be asked.
func (h *hostNode) poll() {
	own, err := h.read()
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil && !h.failing {
		h.log.Warn("cannot read this node's addresses; policies for nodes are evaluated with the previous ones", "error", err)
	}
	if h.failing = err != nil; h.failing {
		return
	}
	slices.SortFunc(own, netip.Addr.Compare)
	h.own = slices.Compact(own)
	h.emit(false)
}

// emit offers the completed state if the state or the node changed. The caller holds mu.
func (h *hostNode) emit(changed bool) {
	if h.state == nil || h.list == nil {
		return
	}
	n := &policy.Node{Name: h.name, Addrs: h.own, Names: slices.Sorted(maps.Keys(h.list.Queries)), Unknown: unknownFailsafes(h.list)}
	for _, o := range h.state.Cluster.Hosts {
		if o.Name == h.name {
			n.Labels = o.Labels
		}
	}
	for i := range h.list.Entries {
		if e := &h.list.Entries[i]; e.Match == "" && e.Prefix.IsValid() { // the nft tables have the others
			n.Failsafes = append(n.Failsafes, e.Failsafe)
		}
	}
	if n.Same(h.node) {
		if !changed {
			return
		}
		n = h.node
	}
	h.node = n
	s := *h.state
	s.Input.Node = n
	h.offer(s)
}

// unknownFailsafes tells which failsafes are not known, "" for none.
func unknownFailsafes(l *failsafe.List) string {
	if l.Complete() {
		return ""
	}
	var texts []string
	for _, f := range l.Findings {
		if !f.Stale {
			texts = append(texts, f.String())
		}
	}
	return strings.Join(texts, "; ")
}

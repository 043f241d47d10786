package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/namegate/namegate/agent/placement"
	"github.com/namegate/namegate/agent/rollout"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/netpolicyfor"
	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/source/cni"
	"github.com/namegate/namegate/source/kube"
	"github.com/namegate/namegate/status"
)

// clients are how the API server is asked.
type clients struct {
	kubernetes.Interface
	dynamic dynamic.Interface
	server  string // HOST:PORT of the API server
	// reports and statuses have each a rate limit of its own, that of the agent that writes conditions.
	reports  kubernetes.Interface
	statuses dynamic.Interface
}

func connect(kubeconfig string) (clients, error) {
	c, err := kube.Connect(kubeconfig)
	if err != nil {
		return clients{}, err
	}
	faster := rest.CopyConfig(c)
	faster.QPS, faster.Burst = status.StatusesPerSecond, status.StatusBurst
	typed, err1 := kubernetes.NewForConfig(c)
	other, err2 := dynamic.NewForConfig(c)
	reports, err3 := kubernetes.NewForConfig(faster)
	statuses, err4 := dynamic.NewForConfig(faster)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return clients{}, fmt.Errorf("make a client of the API server: %w", err)
	}
	server, err := serverOf(c.Host)
	if err != nil {
		return clients{}, err
	}
	return clients{typed, other, server, reports, statuses}, nil
}

// serverOf returns HOST:PORT of the API server at a URL, or at HOST:PORT.
func serverOf(address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		if u, err = url.Parse("https://" + address); err != nil {
			return "", fmt.Errorf("read the address of the API server: %w", err)
		}
	}
	port := u.Port()
	if port == "" {
		port = map[bool]string{true: "80", false: "443"}[u.Scheme == "http"]
	}
	return net.JoinHostPort(u.Hostname(), port), nil
}

// cluster is an agent's side of its cluster: the source, and the reports to the API
// server.
type cluster struct {
	source     *kube.Source
	server     string       // HOST:PORT of the API server
	results    *cni.Watcher // nil: the API server tells the pods' addresses
	attached   atomic.Pointer[cni.Results]
	reporter   *status.Reporter
	placement  *placement.Watcher
	clearTaint bool
	log        *slog.Logger

	mu    sync.Mutex
	state status.State // what the reporter was told last
}

func (a *agent) openCluster(o Cluster) error {
	c, err := connect(o.Kubeconfig)
	if err != nil {
		return err
	}
	config := a.config.Load()
	a.cluster = &cluster{server: c.server, clearTaint: o.ClearTaint, log: a.log}
	source, err := kube.New(kube.Options{Client: c, Dynamic: c.dynamic, NodeName: a.o.Node, Services: config.Services(), ClusterNetworkPolicies: o.ClusterNetworkPolicies, EnforceNetworkPolicies: a.o.EnforceNetworkPolicies, Nodes: a.o.Nodes, OwnNodeOnly: o.OwnNodeOnly, CNIResults: o.CNIResults != "", Log: a.log})
	if err != nil {
		return err
	}
	a.cluster.source = source
	if o.CNIResults != "" {
		a.cluster.results = cni.New(o.CNIResults, a.log, clock.RealClock{})
	}
	a.cluster.placement, err = placement.New(placement.Options{Client: c, Node: a.o.Node, Namespace: o.Namespace, DaemonSet: o.DaemonSet, Log: a.log})
	if err != nil {
		return err
	}
	a.cluster.reporter, err = status.New(status.Options{
		Client: c.reports, Dynamic: c.statuses, Namespace: o.Namespace, Node: a.o.Node, Identity: o.PodName, Version: a.o.Version, Enforce: a.o.enforce(),
		Endpoint: netpolicyfor.Endpoint(config.Bind...).Relay(config.ServerNames.Port), Nodes: a.o.Nodes,
		Log: a.log, Uninstalling: a.cluster.placement.Uninstalling, Agents: a.cluster.placement.Agents,
	})
	if err != nil {
		return err
	}
	a.source = a.cluster
	return nil
}

func (c *cluster) run(ctx context.Context, receive func(rollout.State)) error {
	if c.results != nil {
		ctx, cancel := context.WithCancel(ctx)
		var watching sync.WaitGroup
		watching.Go(func() {
			c.results.Run(ctx, func(r cni.Results) {
				c.attached.Store(&r)
				c.source.SetResults(r)
			})
		})
		defer watching.Wait()
		defer cancel()
	}
	var inputs uint64
	return c.source.Run(ctx, func(s kube.State) {
		c.set(func(to *status.State) {
			to.Policies, to.ClusterPolicies, to.NodePolicies, to.ClusterNetworkPolicies = s.Input.Policies, s.Input.ClusterPolicies, s.Input.NodePolicies, s.Input.ClusterNetworkPolicies
			if to.Problems = s.Problems; !s.Input.EnforceNetworkPolicies { // else there is no other engine
				to.NetworkPolicies = s.Input.NetworkPolicies
			}
		})
		if s.Inputs != inputs { // else only conditions were written
			inputs = s.Inputs
			receive(rollout.State{Input: s.Input, Problems: s.Problems, Cluster: s.Cluster})
		}
	})
}

// attached tells whether a network plugin's result has an address, or none can be read.
func (a *agent) attached(addr netip.Addr) bool {
	if a.cluster == nil {
		return true
	}
	r := a.cluster.attached.Load()
	return r == nil || *r == nil || r.Has(addr)
}

// away is for how long the API server has been unavailable, 0 while it is not.
func (c *cluster) away() time.Duration {
	since := c.source.Health().Disconnected
	if since.IsZero() {
		return 0
	}
	return time.Since(since)
}

func (c *cluster) follow(config *corefile.Config) error {
	c.source.Follow(config.Services())
	c.source.SetClusterRanges(config.ClusterRanges)
	return nil
}

// set changes what is reported.
func (c *cluster) set(change func(*status.State)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.state)
	c.reporter.Set(c.state)
}

// report writes to the API server until ctx ends. It begins once policies are in force:
// its report is true only then.
func (c *cluster) report(ctx context.Context, findings func() []status.Finding, progress func() (problems []policy.Problem, inSync bool)) error {
	look := func() {
		compiled, inSync := progress()
		found := findings()
		c.set(func(to *status.State) { to.Compiled, to.Findings, to.InSync = compiled, found, inSync })
	}
	look() // the first Lease is complete
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.reporter.Run(ctx) })
	g.Go(func() error {
		for wait(ctx, reportPeriod) == nil {
			look()
		}
		return nil
	})
	if c.clearTaint {
		g.Go(func() error { return c.untaint(ctx) })
	}
	return g.Wait()
}

// reportPeriod is how often the findings of this node are gathered for the cluster.
const reportPeriod = 2 * time.Second

// untaint lets pods come to the node, however long the API server is away.
func (c *cluster) untaint(ctx context.Context) error {
	for {
		err := c.placement.ClearTaint(ctx)
		if err == nil || ctx.Err() != nil {
			return nil
		}
		c.log.Warn("cannot remove the node's startup taint; trying again", "after", reportPeriod, "error", err)
		if wait(ctx, reportPeriod) != nil {
			return nil
		}
	}
}

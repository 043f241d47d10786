package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/namegate/namegate/agent/placement"
	"github.com/namegate/namegate/enforcer"
	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/source/kube"
	"github.com/namegate/namegate/status"
	"github.com/namegate/namegate/status/companion"
)

// clusterFlags are those that only an agent of a cluster has.
type clusterFlags struct {
	kubeconfig, namespace, podName, daemonSet string
	companion, clearTaint                     bool
	companionPorts                            string
}

func (f *clusterFlags) add(fl *pflag.FlagSet) {
	fl.StringVar(&f.kubeconfig, "kubeconfig", "", "how to reach the API server (default: as a pod of the cluster)")
	fl.StringVar(&f.namespace, "namespace", "", "the namespace that Namegate is installed in")
	fl.StringVar(&f.podName, "pod-name", "", "this agent's pod")
	fl.StringVar(&f.daemonSet, "daemonset", "", "the agents' DaemonSet: without it, or off its nodes, the agent removes its rules when it ends")
	fl.BoolVar(&f.companion, "companion", false, "write NetworkPolicies that open the endpoint where another NetworkPolicy limits egress")
	fl.StringVar(&f.companionPorts, "companion-ports", string(companion.PortsAlways),
		"whose companions open the ports of their policies' rules as well: Never, Asked (of policies with the annotation "+companion.Annotation+") or Always")
	fl.BoolVar(&f.clearTaint, "clear-taint", false, "take the taint namegate.io/agent-not-ready from this node when the agent is ready")
}

// missing names the flags that a cluster's agent cannot do without, and those whose
// value is none.
func (f *clusterFlags) missing(node string) error {
	if err := companion.Ports(f.companionPorts).Check(); err != nil {
		return fmt.Errorf("--companion-ports: %w", err)
	}
	for flag, value := range map[string]string{"--node-name": node, "--namespace": f.namespace, "--pod-name": f.podName, "--daemonset": f.daemonSet} {
		if value == "" {
			return fmt.Errorf("--source kube needs %s; set it from the pod's fields as the chart does", flag)
		}
	}
	return nil
}

// clients are how the API server is asked.
type clients struct {
	kubernetes.Interface
	dynamic dynamic.Interface
	// statuses is a dynamic client with the rate of the agent that writes conditions.
	statuses dynamic.Interface
}

func (f *clusterFlags) connect() (clients, error) {
	c, err := kube.Connect(f.kubeconfig)
	if err != nil {
		return clients{}, err
	}
	typed, err := kubernetes.NewForConfig(c)
	if err != nil {
		return clients{}, fmt.Errorf("make a client of the API server: %w", err)
	}
	other, err := dynamic.NewForConfig(c)
	if err != nil {
		return clients{}, fmt.Errorf("make a client of the API server: %w", err)
	}
	faster := rest.CopyConfig(c)
	faster.QPS, faster.Burst = status.StatusesPerSecond, status.StatusBurst
	statuses, err := dynamic.NewForConfig(faster)
	if err != nil {
		return clients{}, fmt.Errorf("make a client of the API server: %w", err)
	}
	return clients{typed, other, statuses}, nil
}

// cluster is what an agent of a cluster has beside the source.
type cluster struct {
	source     *kube.Source
	report     *status.Reporter
	placement  *placement.Watcher
	clearTaint bool
	health     *health
	log        *slog.Logger
}

// openSource opens what --source names.
func (a *agent) openSource(f agentFlags) error {
	dir, isDir := strings.CutPrefix(f.source, "dir:")
	switch {
	case f.source == "kube":
		return a.openCluster(f)
	case !isDir || dir == "":
		return fmt.Errorf("--source %q is not known; write --source kube or --source dir:PATH", f.source)
	}
	s, err := newFolder(dir, f.nodeName, a.log)
	a.source = s
	return err
}

func (a *agent) openCluster(f agentFlags) error {
	if err := f.cluster.missing(f.nodeName); err != nil {
		return err
	}
	c, err := f.cluster.connect()
	if err != nil {
		return err
	}
	config := a.config.Load()
	a.cluster = &cluster{clearTaint: f.cluster.clearTaint, health: a.health, log: a.log}
	source, err := kube.New(kube.Options{Client: c, Dynamic: c.dynamic, NodeName: f.nodeName, Services: config.Services(), Log: a.log})
	if err != nil {
		return err
	}
	a.cluster.source = source
	a.cluster.placement, err = placement.New(placement.Options{Client: c, Node: f.nodeName, Namespace: f.cluster.namespace, DaemonSet: f.cluster.daemonSet, Log: a.log})
	if err != nil {
		return err
	}
	a.cluster.report, err = status.New(status.Options{
		Client: c, Dynamic: c.statuses, Namespace: f.cluster.namespace, Node: f.nodeName, Identity: f.cluster.podName, Boot: bootID(),
		Companion: f.cluster.companion, CompanionPorts: companion.Ports(f.cluster.companionPorts), Endpoint: endpointPrefixes(config),
		Log: a.log, Uninstalling: a.cluster.placement.Uninstalling,
	})
	if err != nil {
		return err
	}
	a.source = a.cluster
	return nil
}

func (c *cluster) run(ctx context.Context, receive func(state)) error {
	return c.source.Run(ctx, func(s kube.State) {
		c.report.SetServices(s.Cluster.Dialled)
		c.report.SetPolicies(s.Input.Policies, s.Problems...)
		receive(state{input: s.Input, problems: s.Problems, cluster: s.Cluster, peersUnknown: s.PeersUnknown})
	})
}

func (c *cluster) follow(config *corefile.Config) error {
	c.source.Follow(config.Services())
	c.report.SetDomain(config.ClusterDomain)
	return nil
}

// tell runs what writes to the API server, once policies are in force: what it
// says of them is true then.
func (c *cluster) tell(ctx context.Context, findings func() []status.Finding) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer c.leave()
		return c.report.Run(ctx)
	})
	g.Go(func() error {
		return every(ctx, tellAgain, func() {
			c.report.SetReady(c.health.enforcing())
			c.report.SetFindings(findings())
		})
	})
	if c.clearTaint {
		g.Go(func() error { return c.untaint(ctx) })
	}
	return g.Wait()
}

// leaveWord is how long an agent may take to say that nothing is enforced on its node
// any more.
const leaveWord = 5 * time.Second

// leave says so, before the rules are removed: companions of policies with pods on the
// node must not open ports any more.
func (c *cluster) leave() {
	if !c.placement.Leaving() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaveWord)
	defer cancel()
	if err := c.report.Leave(ctx); err != nil {
		c.log.Warn("companions may open ports to pods of this node for three minutes more", "error", err)
	}
}

// endpointPrefixes are what a companion NetworkPolicy opens: where the endpoint is
// served, by any generation, and the endpoint itself.
func endpointPrefixes(c *corefile.Config) []netip.Prefix {
	out := enforcer.ServingRanges()
	for _, a := range c.Bind {
		if !slices.ContainsFunc(out, func(p netip.Prefix) bool { return p.Contains(a) }) {
			out = append(out, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	return out
}

// bootID returns in which boot the node is, in the kubelet's words; "" if the kernel
// does not say.
func bootID() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// untaint lets pods come to the node, however long the API server is away.
func (c *cluster) untaint(ctx context.Context) error {
	for {
		err := c.placement.ClearTaint(ctx)
		if err == nil || ctx.Err() != nil {
			return nil
		}
		c.log.Warn("the node keeps its taint; trying again", "after", tellAgain, "error", err)
		if wait(ctx, tellAgain) != nil {
			return nil
		}
	}
}

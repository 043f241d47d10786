package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/namegate/namegate/agent/placement"
	"github.com/namegate/namegate/e2e/bench/figure"
	"github.com/namegate/namegate/source/kube"
	"github.com/namegate/namegate/status"
)

// startLimit is how long an agent may take to its first state.
const startLimit = 10 * time.Minute

// agentClient is what an agent asks of the API server: the source, the reports, and the
// placement.
type agentClient struct {
	meter     meter
	source    *kube.Source
	reporter  *status.Reporter
	placement *placement.Watcher
	first     sync.Once
	took      time.Duration // from its start to its first state
	started   chan struct{}
}

// newAgent prepares the clients of the agent of a Node, with the limits of an agent.
func (b *bench) newAgent(i int) (*agentClient, error) {
	a := &agentClient{started: make(chan struct{})}
	config := b.config(&a.meter)
	// The limits of an agent, which kube.Connect sets: requests a second and at once.
	config.QPS, config.Burst = 20, 40
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client of the API server: %w", err)
	}
	other, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client of the API server: %w", err)
	}
	faster := rest.CopyConfig(config)
	faster.QPS, faster.Burst = status.StatusesPerSecond, status.StatusBurst
	statuses, err := dynamic.NewForConfig(faster)
	if err != nil {
		return nil, fmt.Errorf("make a client of the API server: %w", err)
	}
	log := slog.New(slog.DiscardHandler)
	agents := func() int {
		if i == 0 {
			return 1 // it is elected at once: so few of all agents would not be for minutes
		}
		return a.placement.Agents()
	}
	if a.source, err = kube.New(kube.Options{Client: client, Dynamic: other, NodeName: nodeName(i), OwnNodeOnly: !b.watchNodes, Log: log}); err != nil {
		return nil, err
	}
	if a.placement, err = placement.New(placement.Options{Client: client, Node: nodeName(i), Namespace: ownNamespace, DaemonSet: daemonSet, Log: log}); err != nil {
		return nil, err
	}
	a.reporter, err = status.New(status.Options{Client: client, Dynamic: statuses, Namespace: ownNamespace, Node: nodeName(i), Identity: daemonSet + "-" + nodeName(i),
		DaemonSet: daemonSet, Log: log, Uninstalling: a.placement.Uninstalling, Agents: agents})
	return a, err
}

// run asks until ctx ends, as an agent does; it reports once it has its first state.
func (a *agentClient) run(ctx context.Context) error {
	began := time.Now()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return a.placement.Run(ctx) })
	g.Go(func() error {
		return a.source.Run(ctx, func(s kube.State) {
			a.reporter.SetServices(s.Cluster.Dialled)
			a.reporter.SetNamespaces(s.Input.Namespaces)
			a.reporter.SetClusterPolicies(s.Input.ClusterPolicies, s.Input.ClusterNetworkPolicies, s.Problems)
			a.reporter.SetPolicies(s.Input.Policies, s.Problems...)
			a.first.Do(func() {
				a.took = time.Since(began)
				close(a.started)
			})
		})
	})
	g.Go(func() error {
		select {
		case <-a.started:
		case <-ctx.Done():
			return nil
		}
		a.reporter.SetFindings(nil)
		return a.reporter.Run(ctx)
	})
	return g.Wait()
}

// nodeOf is the Node of an agent.
func (o options) nodeOf(agent int) int { return spread(agent, o.agents, o.nodes) }

// spread returns the i-th of n places among all, each at another distance to multiples of round
// numbers, such as the number of namespaces.
func spread(i, n, all int) int { return i*(all/n) + i%(all/n) }

// runAgents starts the agents' clients and measures their start, a span without changes, and
// changes of pods.
func (b *bench) runAgents(ctx context.Context) (err error) {
	agents := make([]*agentClient, b.agents)
	for i := range agents {
		if agents[i], err = b.newAgent(b.nodeOf(i)); err != nil {
			return err
		}
	}
	running, stop := context.WithCancel(ctx)
	g, running := errgroup.WithContext(running)
	defer func() {
		stop()
		if e := g.Wait(); e != nil && !errors.Is(e, context.Canceled) {
			err = errors.Join(err, e)
		}
	}()
	b.Note("starting the clients of %d agents", b.agents)
	for _, a := range agents {
		g.Go(func() error { return a.run(running) })
	}
	late := time.After(startLimit)
	for _, a := range agents {
		select {
		case <-a.started:
		case <-late:
			return fmt.Errorf("agents have no state after %v", startLimit)
		case <-running.Done():
			return context.Cause(running)
		}
	}
	if err := b.settle(ctx, agents); err != nil {
		return err
	}
	if err := b.reportStart(agents); err != nil {
		return err
	}
	return errors.Join(b.idle(ctx, agents), b.change(ctx, agents))
}

// settleFor is how long the agents are left alone before a measurement that nothing may disturb;
// settleLimit is how long the elected one may take for the conditions of all policies.
const (
	settleFor   = 30 * time.Second
	settleLimit = 10 * time.Minute
)

// settle waits until the agents have written nothing but Leases for settleFor.
func (b *bench) settle(ctx context.Context, agents []*agentClient) error {
	writes := func() (all int64) {
		for _, c := range counts(agents) {
			all += c.writes
		}
		return all
	}
	ctx, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	for before := int64(-1); before != writes(); {
		before = writes()
		if err := b.pause(ctx, settleFor); err != nil {
			return fmt.Errorf("wait for the conditions of the policies: %w", err)
		}
	}
	return nil
}

func (b *bench) pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func counts(agents []*agentClient) []count {
	out := make([]count, len(agents))
	for i, a := range agents {
		out[i] = a.meter.count()
	}
	return out
}

// median is the middle of a number of each agent's counts: one agent is elected, and writes for all.
func median(counts []count, number func(count) int64) float64 {
	values := make([]float64, len(counts))
	for i, c := range counts {
		values[i] = float64(number(c))
	}
	return figure.Median(values)
}

// most is the greatest number of one agent, the elected one's.
func most(counts []count, number func(count) int64) float64 {
	out := math.Inf(-1)
	for _, c := range counts {
		out = max(out, float64(number(c)))
	}
	return out
}

func received(c count) int64 { return c.received }

// reportStart reports what agents asked until they had settled, and the server's memory.
func (b *bench) reportStart(agents []*agentClient) error {
	all := counts(agents)
	took := make([]float64, len(agents))
	for i, a := range agents {
		took[i] = float64(a.took.Milliseconds())
	}
	slices.Sort(took)
	return errors.Join(
		b.memory("agents"),
		b.figure("scale.start.ms", figure.Quantile(took, 0.99), "ms"),
		b.figure("scale.start.requests", median(all, count.requests), "requests"),
		b.figure("scale.start.watches", median(all, func(c count) int64 { return c.watches }), "watches"),
		b.figure("scale.start.mib", median(all, received)/(1<<20), "MiB"),
		b.figure("scale.start.all_mib", median(all, received)*float64(b.nodes)/(1<<20), "MiB"),
		b.figure("scale.elected.requests", most(all, count.requests), "requests"),
	)
}

// idle measures a span in which nothing changes.
func (b *bench) idle(ctx context.Context, agents []*agentClient) error {
	b.Note("measuring %v without changes", b.span)
	before := counts(agents)
	if err := b.pause(ctx, b.span); err != nil {
		return err
	}
	after := counts(agents)
	for i := range after {
		after[i] = after[i].minus(before[i])
	}
	// The first agent is elected, and stands for no other.
	others := after[min(1, len(after)-1):]
	second, nodes := b.span.Seconds(), float64(b.nodes)
	mean := func(number func(count) int64) float64 {
		sum := 0.0
		for _, c := range others {
			sum += float64(number(c))
		}
		return sum / float64(len(others)) / second
	}
	// Leases are renewed seldom, and evenly: the mean of all agents knows more than the median.
	return errors.Join(
		b.figure("scale.idle.requests_per_s", mean(count.requests)*nodes, "requests/s"),
		b.figure("scale.idle.leases_per_s", mean(func(c count) int64 { return c.leases })*nodes, "requests/s"),
		b.figure("scale.idle.kib_per_s", median(after, received)*nodes/second/(1<<10), "KiB/s"),
	)
}

// change gives pods another annotation each, and lets as many Nodes report again as their
// kubelets do every five minutes. It reports what an agent received for one of them: pods of
// other nodes reach only agents that look at them.
func (b *bench) change(ctx context.Context, agents []*agentClient) error {
	pods, err := b.afterChanges(ctx, agents, "pods", b.changes, func(ctx context.Context, i int) error {
		pod := spread(i, b.changes, b.pods)
		_, err := b.api.client.CoreV1().Pods(namespaceName(b.namespaceOf(pod))).Patch(ctx, podName(pod), types.StrategicMergePatchType,
			[]byte(`{"metadata": {"annotations": {"changed": "yes"}}}`), metav1.PatchOptions{})
		return err
	})
	if err != nil {
		return err
	}
	heartbeat := fmt.Appendf(nil, `{"status": {"conditions": [{"type": "Ready", "lastHeartbeatTime": %q}]}}`, time.Now().UTC().Format(time.RFC3339))
	nodes, err := b.afterChanges(ctx, agents, "Nodes", min(b.changes, b.nodes), func(ctx context.Context, i int) error {
		_, err := b.api.client.CoreV1().Nodes().Patch(ctx, nodeName(i), types.StrategicMergePatchType, heartbeat, metav1.PatchOptions{}, "status")
		return err
	})
	if err != nil {
		return err
	}
	all := float64(b.nodes) / (1 << 10)
	return errors.Join(
		b.figure("scale.change.bytes", pods, "bytes"), b.figure("scale.change.all_kib", pods*all, "KiB"),
		b.figure("scale.heartbeat.bytes", nodes, "bytes"), b.figure("scale.heartbeat.all_kib", nodes*all, "KiB"),
		b.figure("scale.heartbeat.mib_per_s", nodes*all/(1<<10)*float64(b.nodes)/heartbeatEvery.Seconds(), "MiB/s"),
	)
}

// heartbeatEvery is how often a kubelet writes the status of its Node if nothing changes: its
// default of nodeStatusReportFrequency.
const heartbeatEvery = 5 * time.Minute

// afterChanges makes changes and returns the bytes that an agent received for one of them, the mean.
func (b *bench) afterChanges(ctx context.Context, agents []*agentClient, what string, n int, change func(context.Context, int) error) (float64, error) {
	b.Note("changing %d %s", n, what)
	before := counts(agents)
	g, changing := errgroup.WithContext(ctx)
	g.SetLimit(b.writers)
	for i := range n {
		g.Go(func() error { return change(changing, i) })
	}
	if err := g.Wait(); err != nil {
		return 0, fmt.Errorf("change %s: %w", what, err)
	}
	if err := b.pause(ctx, settleFor/6); err != nil {
		return 0, err
	}
	after, sum := counts(agents), 0.0
	for i := range after {
		sum += float64(after[i].minus(before[i]).received)
	}
	return sum / float64(len(after)) / float64(n), nil
}

// figure reports one value; its state is the number of agents that were measured.
func (b *bench) figure(name string, value float64, unit string) error {
	return b.Report(figure.Figure{Name: name, Value: value, Unit: unit, State: fmt.Sprintf("%d agents", b.agents)}, 0)
}

package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"github.com/namegate/namegate/e2e/bench/figure"
	"github.com/namegate/namegate/e2e/bench/ground"
	"github.com/namegate/namegate/e2e/bench/process"
)

// The nodes that are compared.
const (
	guarded = "namegate"
	// ordered is namegate with cluster policies beside those of the namespace, for the same
	// pods. None of their rules matches what the client connects to, and most come before the
	// namespace's.
	ordered = "cluster-rules"
	// hosted is namegate with a policy for the node beside those of the namespace.
	hosted = "node-policy"
	// byNftables is namegate with the other dataplane.
	byNftables = "nftables"
	// noRules has connection tracking and address translation, as each node of a
	// cluster has for its Services, and no rule.
	noRules = "no-rules"
	// linear has rules as kube-router lays them out.
	linear = "linear"
	// kubeProxy has the rules of kube-proxy's iptables mode alone.
	kubeProxy = "kube-proxy"
	// untracked has not even connection tracking.
	untracked = "no-conntrack"
)

var nodeNames = []string{guarded, byNftables, ordered, hosted, noRules, linear, kubeProxy, untracked}

func podsState(n int) string { return fmt.Sprintf("%d pods", n) }

// clientNumber is the client's among the pods: not the first of any chain.
const clientNumber = maxPods / 2

// chosen returns n pods, the client in their middle.
func chosen(n int) (out []int) {
	for i := range n {
		out = append(out, (clientNumber-n/2+i+maxPods)%maxPods)
	}
	return out
}

// flow measures what rules cost connections and bytes.
func (b *bench) flow() (err error) {
	var nodes []*node
	defer func() {
		for _, n := range nodes {
			err = errors.Join(err, n.remove())
		}
	}()
	for _, name := range b.nodes {
		b.Note("flow: building the node %s with %d pods", name, maxPods)
		n, err := b.newNode(name, clientNumber, true)
		if err != nil {
			return err
		}
		nodes = append(nodes, n)
		if err := b.furnish(n); err != nil {
			return err
		}
	}
	for _, count := range b.pods {
		if err := b.flowThrough(nodes, count); err != nil {
			return err
		}
	}
	return nil
}

// furnish gives a node what makes it one to compare.
func (b *bench) furnish(n *node) error {
	switch n.name {
	case byNftables:
		n.dataplane = byNftables
		return b.guard(n, answer)
	case guarded, ordered, hosted:
		return errors.Join(n.translateOwn(), b.guard(n, answer))
	case noRules, linear:
		return n.track()
	case kubeProxy:
		return n.layServices()
	}
	return nil
}

// track makes the kernel track connections, and look whether their addresses are to
// be translated. Chains of type nat alone do not: the kernel tracks connections where a rule
// needs that, here kube-proxy's rule of masquerading, which matches nothing.
func (n *node) track() error {
	_, err := n.Node.Run("nft", "add table inet tracked; add chain inet tracked prerouting { type nat hook prerouting priority -100; }; "+
		"add chain inet tracked postrouting { type nat hook postrouting priority 100; }; "+
		"add rule inet tracked postrouting meta mark & 0x4000 == 0x4000 masquerade")
	return err
}

// translateOwn makes the kernel look whether addresses of the node's own connections are to be
// translated, as kube-proxy does on each node. Forwarded connections do not pass the hook.
func (n *node) translateOwn() error {
	_, err := n.Node.Run("nft", "add table inet tracked; add chain inet tracked output { type nat hook output priority -100; }; "+
		"add rule inet tracked output ip daddr 10.96.0.10 counter")
	return err
}

// measured is a kind of traffic.
type measured struct {
	figure, unit, role string
	port, threads      int
	// per divides what the client counted in a second.
	per float64
	// cpu is the figure of the processor time that client and server need for each that the
	// client counted; "" for none.
	cpu string
	// own: the node itself sends, not its pod.
	own bool
}

var traffic = []measured{
	{"flow.new_per_s", "1/s", "connect", sinkPort, 2, 1, "flow.new_cpu_us", false},
	{"flow.crr_per_s", "1/s", "crr", sinkPort + 2, 2, 1, "flow.crr_cpu_us", false},
	{"flow.rps", "1/s", "requests", sinkPort + 3, requestThreads, 1, "", false},
	{"flow.throughput_gbps", "Gbit/s", "stream", sinkPort + 1, 1, 1e9 / 8, "", false},
}

// flowThrough measures the nodes with a number of selected pods, in turn.
func (b *bench) flowThrough(nodes []*node, count int) error {
	for _, n := range nodes {
		var err error
		switch n.name {
		case guarded, byNftables, ordered, hosted:
			err = n.choose(chosen(count))
		case linear:
			err = n.layLinear(chosen(count))
		}
		if err != nil {
			return fmt.Errorf("%s with %s: %w", n.name, podsState(count), err)
		}
	}
	for _, m := range traffic {
		if err := b.rotate(nodes, m, count); err != nil {
			return err
		}
		if err := b.profiled(nodes, m, count); err != nil {
			return err
		}
	}
	return b.ownFlow(nodes, count)
}

// ownFlow measures connections of the nodes themselves: of the one with a policy for itself
// beside one without.
func (b *bench) ownFlow(nodes []*node, count int) error {
	both := slices.DeleteFunc(slices.Clone(nodes), func(n *node) bool { return n.name != guarded && n.name != hosted })
	if len(both) < 2 {
		return nil
	}
	for _, m := range traffic[:2] {
		m.own = true
		if err := b.rotate(both, m, count); err != nil {
			return err
		}
	}
	return nil
}

// profiled lets perf look on at each node's traffic.
func (b *bench) profiled(nodes []*node, m measured, count int) error {
	if b.profile == "" {
		return nil
	}
	for _, n := range nodes {
		err := b.Profile(b.profile, fmt.Sprintf("%s-%s-%d", m.figure, n.name, count), 0, b.span, func() error {
			for until := time.Now().Add(b.span + 200*time.Millisecond); time.Now().Before(until); {
				if _, _, err := b.push(n, m); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// rotate measures the nodes in turn, in another order in each round.
func (b *bench) rotate(nodes []*node, m measured, count int) error {
	rates, cpu := map[string]figure.Series{}, map[string]figure.Series{}
	for round := range b.rounds {
		for i := range nodes {
			n := nodes[(round+i)%len(nodes)]
			rate, each, err := b.push(n, m)
			if err != nil {
				return fmt.Errorf("%s with %s: %w", n.name, podsState(count), err)
			}
			rates[n.name], cpu[n.name] = append(rates[n.name], rate), append(cpu[n.name], each)
		}
	}
	err := b.compare(nodes, m, figure.Figure{Name: m.figure, Unit: m.unit}, rates, count)
	if err != nil || m.cpu == "" {
		return err
	}
	return b.compare(nodes, m, figure.Figure{Name: m.cpu, Unit: "us"}, cpu, count)
}

// compare reports a figure of the first node beside those of the others.
func (b *bench) compare(nodes []*node, m measured, f figure.Figure, series map[string]figure.Series, count int) error {
	first := series[nodes[0].name]
	f.Value, f.State = first.Median(), podsState(count)
	if len(nodes) == 1 {
		return b.Report(f, first.Others())
	}
	for _, n := range nodes[1:] {
		p, f := series[n.name], f
		switch n.name {
		case ordered: // with in relation to without
			f.Value, f.State = p.Median(), clusterRulesOf(count)
			f = f.Against(nodes[0].name, first.Median())
		case hosted:
			if f.Value, f.State = p.Median(), hostState(count); m.own {
				f.State = ownState(count)
			}
			f = f.Against(nodes[0].name, first.Median())
		case byNftables:
			f.Value, f.State = p.Median(), nftablesState(count)
			f = f.Against(nodes[0].name, first.Median())
		default:
			f = f.Against(n.name, p.Median())
		}
		if err := b.reportRatio(f, max(first.Others(), p.Others())); err != nil {
			return err
		}
	}
	nft, free := series[byNftables], series[noRules]
	if nodes[0].name == byNftables || nft == nil || free == nil {
		return nil
	}
	f.Value, f.State = nft.Median(), nftablesState(count)
	return b.reportRatio(f.Against(noRules, free.Median()), max(nft.Others(), free.Others()))
}

func (b *bench) reportRatio(f figure.Figure, others float64) error {
	b.Note("%s, %s: %.4g, %s %.4g: %.3f", f.Name, f.State, f.Value, f.Peer, f.PeerValue, f.Ratio)
	return b.Report(f, others)
}

// nftablesState is the state of the node with the other dataplane.
func nftablesState(count int) string { return podsState(count) + ", dataplane nftables" }

// clusterRulesOf is the state of a node with cluster policies and selected pods.
func clusterRulesOf(count int) string { return podsState(count) + ", " + clusterRules }

// push lets a node's client send for one round. It returns what the client counted in a
// second, and the processor time of client and server for each, in microseconds.
func (b *bench) push(n *node, m measured) (rate, cpu figure.Reading, err error) {
	self, err := os.Executable()
	if err != nil {
		return rate, cpu, err
	}
	before, err := n.spent()
	if err != nil {
		return rate, cpu, err
	}
	began := time.Now()
	cmd := exec.CommandContext(b.Context, self, m.role, netip.AddrPortFrom(target4, uint16(m.port)).String(), b.span.String(), fmt.Sprint(m.threads))
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	cmd.Env = append(os.Environ(), "GODEBUG=asyncpreemptoff=1") // signals would interrupt connect
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	sender := n.Pod(client).Host
	if m.own {
		sender = n.Node
	}
	if err := sender.Do(cmd.Start); err != nil {
		return rate, cpu, err
	}
	err = cmd.Wait()
	if b.Context.Err() != nil {
		return rate, cpu, ground.ErrInterrupted
	}
	if err != nil {
		return rate, cpu, fmt.Errorf("%w: %s", err, said.String())
	}
	after, err := n.spent()
	if err != nil {
		return rate, cpu, err
	}
	var done, nanoseconds float64
	if _, err := fmt.Sscan(out.String(), &done, &nanoseconds); err != nil {
		return rate, cpu, fmt.Errorf("read what the client counted from %q: %w", out.String(), err)
	}
	used := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	others := max(0, (after.busy-before.busy-(after.ours-before.ours)-used).Seconds()/time.Since(began).Seconds())
	rate = figure.Reading{Value: done / (nanoseconds / 1e9) / m.per, Others: others}
	return rate, figure.Reading{Value: (used + after.sink - before.sink).Seconds() * 1e6 / done, Others: others}, nil
}

// spent is processor time: of everybody, of the benchmark with its servers, and of the sink
// among these.
type spent struct{ busy, ours, sink time.Duration }

func (n *node) spent() (s spent, err error) {
	for _, pid := range []int{os.Getpid(), n.sink.PID()} {
		if s.sink, err = process.CPU(pid); err != nil {
			return s, fmt.Errorf("a part of the benchmark is gone: %w", err)
		}
		s.ours += s.sink
	}
	s.busy, err = process.Busy()
	return s, err
}

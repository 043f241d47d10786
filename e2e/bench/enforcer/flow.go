package main

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/namegate/namegate/e2e/bench/child"
	"github.com/namegate/namegate/e2e/bench/figure"
	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
)

const (
	// noRules is a node with connection tracking and address translation, as each node of a
	// cluster has for its Services, and no rule.
	noRules = "no-rules"
	// linear is a node with rules as kube-router lays them out.
	linear = "linear"
	// flowPods is how many pods are selected.
	flowPods = 110
)

var podsState = fmt.Sprintf("%d pods", flowPods)

// chosen returns n pods, the client in their middle.
func chosen(n int) (out []int) {
	for i := range n {
		out = append(out, (clientNumber-n/2+i+maxPods)%maxPods)
	}
	return out
}

// flow measures what rules cost connections and bytes.
func (b *bench) flow() {
	names := []string{noRules, linear}
	for _, d := range dataplanes {
		names = append(names, d.name)
	}
	nodes := map[string]*node{}
	for _, name := range names {
		n := b.newNode("flow-", name, true)
		nodes[name] = n
		b.furnish(n, name)
	}
	for _, m := range traffic {
		series := map[string]figure.Series{}
		for round := range b.Rounds {
			for i := range names {
				name := names[(round+i)%len(names)]
				series[name] = append(series[name], b.push(nodes[name], m))
			}
		}
		for _, d := range dataplanes {
			for _, peer := range []string{noRules, linear} {
				own, p := series[d.name], series[peer]
				f := figure.Figure{Name: m.figure, Value: own.Median(), Unit: m.unit, State: podsState + d.state}.Against(peer, p.Median())
				b.Note("%s, %s: %.4g, %s %.4g: %.3f", f.Name, f.State, f.Value, f.Peer, f.PeerValue, f.Ratio)
				b.Report(f, max(own.Others(), p.Others()))
			}
		}
	}
}

// ingressState is of connections from outside to a pod of flowPods with rules for ingress.
var ingressState = podsState + ", ingress"

// ingress measures what rules for ingress cost connections to a pod.
func (b *bench) ingress() {
	names := []string{noRules}
	for _, d := range dataplanes {
		names = append(names, d.name)
	}
	nodes := map[string]*node{}
	for _, name := range names {
		n := b.newNode("ingress-", name, true)
		nodes[name] = n
		if name == noRules {
			fatal.If(b, n.track())
		} else {
			b.enforce(n, ingressManifests(chosen(flowPods)), func(s lab.Status) bool { return s.InSync && len(s.Problems) == 0 }, "--node-name", "node-a", "--enforce-network-policies")
		}
		fatal.If(b, n.sink.Stop()) // the one in the world
		var err error
		n.sink, err = child.Self(n.Pod(client).Host, n.dir, "sink-in", "sink", fmt.Sprint(sinkPort))
		fatal.If(b, err)
	}
	to := netip.AddrPortFrom(nodes[noRules].Pod(client).Addr4, sinkPort)
	series := map[string]figure.Series{}
	for round := range b.Rounds {
		for i := range names {
			name := names[(round+i)%len(names)]
			series[name] = append(series[name], b.pushTo(nodes[name], nodes[name].World, to, traffic[0]))
		}
	}
	for _, d := range dataplanes {
		own, p := series[d.name], series[noRules]
		f := figure.Figure{Name: traffic[0].figure, Value: own.Median(), Unit: traffic[0].unit, State: ingressState + d.state}.Against(noRules, p.Median())
		b.Note("%s, %s: %.4g, %s %.4g: %.3f", f.Name, f.State, f.Value, f.Peer, f.PeerValue, f.Ratio)
		b.Report(f, max(own.Others(), p.Others()))
	}
}

// furnish makes a node one of those to compare.
func (b *bench) furnish(n *node, name string) {
	switch name {
	case noRules:
		fatal.If(b, n.track())
	case linear:
		fatal.If(b, n.track())
		b.layLinear(n, chosen(flowPods))
	default:
		b.guard(n, answer, chosen(flowPods))
		b.resolve(n)
	}
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

// measured is a kind of traffic.
type measured struct {
	figure, unit, role string
	port, threads      int
	// per divides what the client counted in a second.
	per float64
}

var traffic = []measured{
	{"flow.new_per_s", "1/s", "connect", sinkPort, 2, 1},
	{"flow.crr_per_s", "1/s", "crr", sinkPort + 2, 2, 1},
	{"flow.rps", "1/s", "requests", sinkPort + 3, requestThreads, 1},
	{"flow.throughput_gbps", "Gbit/s", "stream", sinkPort + 1, 1, 1e9 / 8},
}

// push lets a node's client send for one round, and returns what it counted in a second.
func (b *bench) push(n *node, m measured) figure.Reading {
	return b.pushTo(n, n.Pod(client).Host, netip.AddrPortFrom(target4, uint16(m.port)), m)
}

// pushTo is push from a host to an address that the sink listens on.
func (b *bench) pushTo(n *node, from *lab.Host, to netip.AddrPort, m measured) figure.Reading {
	meter := b.NewMeter(0, n.sink.PID())
	env := []string{"GODEBUG=asyncpreemptoff=1"} // signals would interrupt connect
	out, used := b.child(from, env, m.role, to.String(), b.Span.String(), fmt.Sprint(m.threads))
	var done, nanoseconds float64
	_, err := fmt.Sscan(string(out), &done, &nanoseconds)
	fatal.If(b, err)
	_, others := meter.End(used)
	return figure.Reading{Value: done / (nanoseconds / 1e9) / m.per, Others: others}
}

// child runs a role of the benchmark's own program on a host. It returns its output and its
// processor time. env is added to its environment.
func (b *bench) child(h *lab.Host, env []string, args ...string) ([]byte, time.Duration) {
	self, err := os.Executable()
	fatal.If(b, err)
	cmd := exec.CommandContext(b.Context, self, args...)
	var out, failure bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &failure
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	fatal.If(b, h.Do(cmd.Start))
	if err := cmd.Wait(); err != nil {
		b.Fatal(fmt.Errorf("%s: %w: %s", args[0], err, failure.String()))
	}
	return out.Bytes(), cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
}

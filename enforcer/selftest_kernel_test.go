package enforcer_test

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/enforcer"
	"github.com/namegate/namegate/enforcer/dataplane/nftables"
	"github.com/namegate/namegate/enforcer/dataplane/xtables"
	"github.com/namegate/namegate/enforcer/ruleset/layout"
	"github.com/namegate/namegate/kernel/conntrack"
	"github.com/namegate/namegate/kernel/inject"
	"github.com/namegate/namegate/kernel/ipset"
	"github.com/namegate/namegate/kernel/iptables"
	"github.com/namegate/namegate/kernel/link"
	"github.com/namegate/namegate/kernel/nft/timed"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/proxy"
	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/granttest"
	"github.com/namegate/namegate/testkit/policytest"
)

// node is a peering with a proxy and injection that run on it, whose client is selected.
type node struct {
	*peering
	pod *lab.Pod
	ref policy.PodRef
	s   *proxy.Server
	in  *inject.Kernel
}

// do runs f in the node's namespace.
func (n *node) do(f func() error) {
	n.t.Helper()
	fatal.If(n.t, n.Node.Do(f))
}

func newNode(t *testing.T, plane string, network lab.Network, resolvers ...netip.Addr) *node {
	t.Helper()
	if resolvers == nil {
		resolvers = []netip.Addr{lab.Resolver4, lab.Resolver6}
	}
	n := &node{peering: newPeering(t, plane, network, resolvers...), ref: policytest.Ref("client")}
	n.pod, n.allowed = n.Pod("client"), []string{"any example.org"}
	n.apply()
	n.do(func() (err error) {
		n.in, err = inject.Open()
		return err
	})
	t.Cleanup(func() { _ = n.in.Close() })
	n.do(n.serve)
	n.beat()
	return n
}

// inNode writes entries in a node: the goroutine that writes grants is in no node.
type inNode struct {
	*timed.Store
	do func(func() error) error
}

func (n inNode) ApplyEntries(ops []timed.Op) {
	err := n.do(func() error { n.Store.ApplyEntries(ops); return nil })
	for i := range ops {
		ops[i].Err = errors.Join(ops[i].Err, err)
	}
}

func (n inNode) ListEntries(names []string, each func(string, []timed.Entry)) error {
	return n.do(func() error { return n.Store.ListEntries(names, each) })
}

func (n inNode) ListGrants(names []string, each func(string, []timed.Entry)) error {
	return n.do(func() error { return n.Store.ListGrants(names, each) })
}

const iptablesPlane, nftablesPlane = "iptables", "nftables"

// planes are the dataplanes.
var planes = []string{iptablesPlane, nftablesPlane}

// open makes an enforcer of the kernel of the node, in which it is called, which closes with the test.
func (p *peering) open() (*enforcer.Enforcer, *conntrack.Kernel, error) {
	p.t.Helper()
	tables, err := layout.Open()
	fatal.If(p.t, err)
	flows, err := conntrack.Open()
	fatal.If(p.t, err)
	links, err := link.Open()
	fatal.If(p.t, err)
	for _, seam := range []interface{ Close() }{tables, flows, links} {
		p.t.Cleanup(seam.Close)
	}
	k := enforcer.Kernel{Tables: tables, Flows: lister{flows, p}, Links: links, Entries: inNode{tables.Store, p.Node.Do}, Dataplane: nftables.Config{Tables: tables, Entries: inNode{tables.Store, p.Node.Do}}.New}
	if p.plane == iptablesPlane {
		chains, err := iptables.NewExec(iptables.Default)
		fatal.If(p.t, err)
		sets, err := ipset.Open()
		fatal.If(p.t, err)
		p.t.Cleanup(sets.Close)
		k.Dataplane = xtables.Config{Sets: sets, Chains: chains}.New
	}
	resolvers := p.resolvers
	if resolvers == nil {
		resolvers = []netip.Addr{lab.Resolver4}
	}
	e, err := enforcer.New(enforcer.Config{Inside: func(a netip.Addr) bool { return a == service4 || a == service6 }, Mark: enforcer.DefaultMark, Candidate: enforcer.DefaultCandidate, Accepted: enforcer.DefaultAccepted, Resolvers: resolvers}, k, nil, slog.New(slog.DiscardHandler))
	return e, flows, err
}

// serve answers probes at the addresses of the agent.
func (n *node) serve() error {
	config, err := corefile.Parse("Corefile", ". {\n forward . 192.0.2.53\n}\n")
	if err != nil {
		return err
	}
	if n.s, err = proxy.New(proxy.Options{Config: config, Granter: &granttest.Granter{}}); err != nil {
		return err
	}
	n.t.Cleanup(func() { _ = n.s.Close(context.Background()) })
	var at []netip.AddrPort
	for _, a := range n.e.Status().Serving {
		at = append(at, netip.AddrPortFrom(a, 53))
	}
	n.s.Publish(n.snapshot)
	return n.s.Listen(at)
}

// enforce brings the last snapshot into force again, as the node is now.
func (n *node) enforce() {
	n.t.Helper()
	n.do(func() error { return n.e.Prepare(context.Background(), n.snapshot) })
	n.commit()
}

// beat keeps interception on until the test's end.
func (n *node) beat() {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- n.Node.Do(func() error {
			n.e.Interception().KeepAlive(ctx, func(context.Context) error { return nil }, func() {})
			return nil
		})
	}()
	n.t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			n.t.Error(err)
		}
	})
	fatal.Await(n.t, "interception begins", func() bool { return n.e.Status().Intercepting })
}

func (n *node) wants(what string, want enforcer.Path) {
	n.t.Helper()
	n.do(func() error {
		for end := time.Now().Add(time.Minute); ; {
			got, err := n.e.TestPath(context.Background(), n.ref, n.in.Send, n.s.ExpectProbe)
			// A machine that stands still for the time of a test makes a path that works fail.
			if want == enforcer.PathWorks && got != want && err == nil && time.Now().Before(end) {
				continue
			}
			if got != want || err != nil {
				n.t.Errorf("%s: %v, %v, want %v", what, got, err, want)
			}
			return nil
		}
	})
}

func (n *node) does(line string) string {
	n.t.Helper()
	words := strings.Fields(line)
	out, err := n.Node.Run(words[0], words[1:]...)
	fatal.If(n.t, err)
	return out
}

// forgetProbed empties what the kernel remembers of tests for some seconds.
func (n *node) forgetProbed() {
	n.t.Helper()
	n.does("nft flush set inet namegate probed4")
	n.does("nft flush set inet namegate probed6")
}

// eachPlane runs a test with each dataplane, at the same time.
func eachPlane(f func(t *testing.T, plane string)) func(*testing.T) {
	return func(t *testing.T) {
		t.Parallel()
		for _, plane := range planes {
			t.Run(plane, func(t *testing.T) {
				t.Parallel()
				f(t, plane)
			})
		}
	}
}

var networks = []lab.Network{lab.Routed, lab.Bridged}

// TestPathOnTheKernel: each outcome with packets.
func TestPathOnTheKernel(t *testing.T) {
	t.Parallel()
	for _, network := range networks {
		t.Run(string(network), eachPlane(func(t *testing.T, plane string) {
			n := newNode(t, plane, network)
			n.wants("untouched", enforcer.PathWorks)
			n.does("iptables -w -I INPUT -p udp --dport 53 -j DROP")
			n.wants("another engine's rule drops it", enforcer.PathBlocked)
			n.does("iptables -w -D INPUT -p udp --dport 53 -j DROP")
			n.wants("the rule is gone", enforcer.PathWorks)
			n.does("ip6tables -w -I INPUT -p udp --dport 53 -j DROP")
			n.wants("the other family's rule drops it", enforcer.PathBlocked)
			n.does("ip6tables -w -D INPUT -p udp --dport 53 -j DROP")
			n.forgetProbed()
			// As programs of eBPF do: the packet goes where they route it, and the
			// node's own stack never sees it.
			n.does("tc qdisc add dev " + n.pod.Iface + " ingress")
			n.does("tc filter add dev " + n.pod.Iface + " parent ffff: protocol all u32 match u32 0 0 action mirred egress redirect dev out0")
			n.wants("routed around netfilter", enforcer.PathUnseen)
			n.does("tc qdisc del dev " + n.pod.Iface + " ingress")
			n.wants("at last", enforcer.PathWorks)
			if got := n.does("conntrack -L -p udp --sport 9"); strings.Contains(got, "ASSURED") {
				t.Errorf("the self-test was answered: %s", got)
			}
		}))
	}
}

// TestPathOfUnfilteredBridge: a resolver on the pods' own bridge is asked as a
// neighbour, and netfilter sees that only where bridged packets are handed to it.
// What leaves the bridge it sees anyway.
func TestPathOfUnfilteredBridge(t *testing.T) {
	t.Parallel()
	const off = "sysctl -q -w net.bridge.bridge-nf-call-iptables=0 net.bridge.bridge-nf-call-ip6tables=0"
	away := newNode(t, iptablesPlane, lab.Bridged)
	away.does(off)
	away.enforce()
	away.wants("the resolver is elsewhere", enforcer.PathWorks)

	near := newNode(t, iptablesPlane, lab.Bridged, netip.MustParseAddr("10.1.0.6"), netip.MustParseAddr("fd00:1::6"))
	near.wants("the resolver is a neighbour", enforcer.PathWorks)
	near.forgetProbed()
	near.does(off)
	near.enforce()
	near.wants("the bridge is not filtered", enforcer.PathUnseen)
}

// TestPathNeedsNothingOfThePod: it works with a pod that is not there any more to
// send anything, and the pod hears nothing of it.
func TestPathNeedsNothingOfThePod(t *testing.T) {
	t.Parallel()
	n := newNode(t, nftablesPlane, lab.Routed)
	heard, err := n.pod.Sniff("eth0")
	fatal.If(t, err)
	defer heard.Close()
	n.does("ip -6 route add 2001:db8:ffff::/48 via fd00:1::5 dev " + n.pod.Iface) // for Settle
	n.wants("untouched", enforcer.PathWorks)
	fatal.If(t, heard.Settle(n.Node))
	diff.Equal(t, 0, heard.Saw(n.pod.Addr4), "packets that the pod got")
	untested := func(what string, ref policy.PodRef, fails bool) {
		t.Helper()
		n.do(func() error {
			got, err := n.e.TestPath(context.Background(), ref, n.in.Send, n.s.ExpectProbe)
			if got != enforcer.PathUntested || (err != nil) != fails {
				t.Errorf("%s: %v, %v", what, got, err)
			}
			return nil
		})
	}
	untested("a pod that is not known", policytest.Ref("nobody"), false)
	n.does("ip link del " + n.pod.Iface)
	untested("a pod whose link is gone", n.ref, true)
}

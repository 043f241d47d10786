package agent

import (
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/namegate/namegate/agent/rollout"
	"github.com/namegate/namegate/kernel/link"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// row returns the networks of the rows of a name.
func row(n *policy.Node, name string) (text string) {
	for _, f := range n.Failsafes {
		if f.Name == name {
			for _, p := range f.Networks {
				text += p.Addr().String() + " "
			}
		}
	}
	return strings.TrimSpace(text)
}

// TestHostNode: each change of the node offers the last state with the changed node, and a state without
// a change has the same node. What was known last stays while it cannot be read.
func TestHostNode(t *testing.T) {
	var offers []rollout.State
	var has, servers, resolvers []netip.Addr
	links := []link.Uplink{{Name: "cni0", Addrs: addrs("10.1.0.1")}, {Name: "eth0", Addrs: addrs("192.0.2.1")}, {Name: "eth1", Addrs: addrs("198.51.100.1"), Default: true}}
	var fails error
	parse := func(lines string) *corefile.Config {
		c, err := corefile.Parse("Corefile", ". {\nforward . 192.0.2.77\n"+lines+"}\n")
		fatal.If(t, err)
		return c
	}
	config := parse("")
	h := &hostNode{
		name: "n1", apiServer: "192.0.2.10:6443", config: func() *corefile.Config { return config },
		read: func() ([]netip.Addr, error) { return slices.Clone(has), fails }, uplinks: func() ([]link.Uplink, error) { return links, fails }, readResolvers: func() ([]netip.Addr, error) { return servers, fails },
		resolvers: func(all []netip.Addr) { resolvers = all },
		offer:     func(s rollout.State) { offers = append(offers, s) }, log: slog.New(slog.DiscardHandler),
	}
	expect := func(count int) *policy.Node {
		t.Helper()
		diff.MustEqual(t, count, len(offers), "states offered")
		if count == 0 {
			return nil
		}
		return offers[count-1].Input.Node
	}
	state := rollout.State{
		Cluster: policy.Cluster{Nodes: addrs("192.0.2.1", "192.0.2.2"), Own: &policy.Host{Labels: map[string]string{"role": "edge"}, Addrs: addrs("192.0.2.1")},
			APIServers: policy.APIServers{Endpoints: []netip.AddrPort{netip.MustParseAddrPort("192.0.2.10:6443")}}},
		Input: compile.Input{Pods: []policy.Pod{
			{PodRef: policy.PodRef{Name: "own"}, IPs: addrs("10.1.0.5")}, {PodRef: policy.PodRef{Name: "far"}, NodeName: "n0", IPs: addrs("10.2.0.5")},
			{PodRef: policy.PodRef{Name: "host"}, HostNetwork: true, IPs: addrs("192.0.2.1")}, {PodRef: policy.PodRef{Name: "done"}, Phase: "Succeeded", IPs: addrs("10.1.0.6")},
		}},
	}
	has = addrs("192.0.2.1", "10.1.0.1", "192.0.2.1")
	h.poll()
	expect(0)
	h.receive(state)
	if n := expect(1); !strings.Contains(n.Missing, "resolvers of the host") || h.current() != n {
		t.Errorf("without a resolver: %+v", n)
	}
	servers = addrs("192.0.2.53")
	h.poll()
	n := expect(2)
	if n.Name != "n1" || n.Labels["role"] != "edge" || n.Missing != "" || !slices.Equal(n.Addrs, addrs("10.1.0.1", "192.0.2.1")) || !slices.Equal(resolvers, servers) || !slices.Equal(n.Interfaces, []string{"eth0", "eth1"}) {
		t.Errorf("%+v, resolvers %v", n, resolvers)
	}
	for name, want := range map[string]string{"nodes": "192.0.2.1 192.0.2.2", "API server": "192.0.2.10", "pods of this node": "10.1.0.5", "resolvers": "192.0.2.53 192.0.2.77"} {
		diff.Equal(t, want, row(n, name), "row", name)
	}
	h.poll()
	expect(2)
	h.receive(state)
	diff.Equal(t, n, expect(3), "the node after an equal one")
	has, links = addrs("192.0.2.1"), links[:2]
	h.poll()
	if n = expect(4); !slices.Equal(n.Addrs, addrs("192.0.2.1")) || !slices.Equal(n.Interfaces, []string{"eth0"}) {
		t.Errorf("addresses %v, interfaces %v", n.Addrs, n.Interfaces)
	}
	links = nil // the network is set up anew
	h.poll()
	servers = nil // a program that writes the file empties it first
	h.poll()
	has, fails = nil, errors.New("the kernel is busy")
	h.poll()
	expect(4)
	has, fails, servers = addrs("192.0.2.1"), nil, addrs("192.0.2.54")
	h.poll()
	if n = expect(5); row(n, "resolvers") != "192.0.2.54 192.0.2.77" {
		t.Errorf("resolvers %s", row(n, "resolvers"))
	}
	config = parse("failsafe none\nfailsafe out 192.0.2.55 UDP 53\n")
	h.reconfigured()
	if n = expect(6); len(n.Failsafes) != 1 || row(n, "Corefile:4") != "192.0.2.55" || !slices.Equal(resolvers, addrs("192.0.2.54", "192.0.2.55")) {
		t.Errorf("%+v, resolvers %v", n.Failsafes, resolvers)
	}
}

// TestRowsThatGoMissingStay: a policy that is in force is not weakened by a reload.
func TestRowsThatGoMissingStay(t *testing.T) {
	config := new(corefile.Config)
	load := func(lines string) {
		c, err := corefile.Parse("Corefile", ". {\nforward . 192.0.2.77\n"+lines+"}\n")
		fatal.If(t, err)
		config = c
	}
	var last *policy.Node
	h := &hostNode{
		name: "n1", apiServer: "api.test:6443", config: func() *corefile.Config { return config },
		read:          func() ([]netip.Addr, error) { return addrs("192.0.2.1"), nil },
		uplinks:       func() ([]link.Uplink, error) { return nil, nil },
		readResolvers: func() ([]netip.Addr, error) { return addrs("192.0.2.53"), nil },
		resolvers:     func([]netip.Addr) {}, offer: func(s rollout.State) { last = s.Input.Node }, log: slog.New(slog.DiscardHandler),
	}
	load("")
	h.poll()
	of := policy.Cluster{Nodes: addrs("192.0.2.1"), APIServers: policy.APIServers{Endpoints: []netip.AddrPort{netip.MustParseAddrPort("192.0.2.10:6443")}}}
	h.receive(rollout.State{Cluster: of})
	if last.Missing == "" {
		t.Fatal("nothing is missing at first")
	}
	load("failsafe out 192.0.2.10 TCP 6443\n")
	h.reconfigured()
	if last.Missing != "" || row(last, "Corefile:3") != "192.0.2.10" {
		t.Fatalf("%+v", last)
	}
	load("")
	h.reconfigured()
	if last.Missing != "" || row(last, "Corefile:3") != "192.0.2.10" {
		t.Errorf("after the row went: missing %q, rows %+v", last.Missing, last.Failsafes)
	}
	h.apiServer = "192.0.2.10:6443"
	endpoint := func(at ...netip.AddrPort) {
		h.receive(rollout.State{Cluster: policy.Cluster{APIServers: policy.APIServers{Endpoints: at}}})
	}
	diff.Equal(t, "192.0.2.1", row(last, "nodes"))
	endpoint(netip.MustParseAddrPort("192.0.2.11:6443"))
	diff.Equal(t, "192.0.2.1", row(last, "nodes"), "without a Node")
	endpoint() // an API server that ends takes its address away
	diff.Equal(t, "192.0.2.10 192.0.2.11", row(last, "API server"), "without an endpoint")
	diff.Equal(t, "192.0.2.11", row(last, "API server to the kubelet"), "without an endpoint")
	endpoint(netip.MustParseAddrPort("192.0.2.12:6443"))
	diff.Equal(t, "192.0.2.10 192.0.2.12", row(last, "API server"), "with another endpoint")
}

// TestResolversOf: behind a resolver on loopback, the next file counts too.
func TestResolversOf(t *testing.T) {
	for _, c := range []struct{ first, behind, want string }{
		{"search x.test\nnameserver 192.0.2.53\nnameserver 2001:db8::53\n", "nameserver 192.0.2.99\n", "192.0.2.53 2001:db8::53"},
		{"nameserver 127.0.0.53\n", "nameserver 192.0.2.53\nnameserver fe80::1%eth0\n", "192.0.2.53 fe80::1"},
		{"nameserver 127.0.0.53\nnameserver 192.0.2.1\n", "nameserver 192.0.2.1\n", "192.0.2.1"},
		{"", "nameserver 192.0.2.53\n", "192.0.2.53"},
		{"nameserver 127.0.0.1\n", "", ""},
		{"# nothing\nnameserver x\n", "", ""},
	} {
		dir := t.TempDir()
		files := []string{filepath.Join(dir, "resolv.conf"), filepath.Join(dir, "behind")}
		fatal.If(t, os.WriteFile(files[0], []byte(c.first), 0o600))
		if c.behind != "" {
			fatal.If(t, os.WriteFile(files[1], []byte(c.behind), 0o600))
		}
		got, err := resolversOf(files...)
		if err != nil || !slices.Equal(got, addrList(c.want)) {
			t.Errorf("%q, behind it %q: %v, %v", c.first, c.behind, got, err)
		}
	}
	if _, err := resolversOf(filepath.Join(t.TempDir(), "none"), ""); err == nil {
		t.Error("a missing file has no resolvers")
	}
}

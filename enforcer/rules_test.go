package enforcer

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/kernel/iptables"
	"github.com/namegate/namegate/kernel/link"
	"github.com/namegate/namegate/policy"
)

// twoPods are one routed and one bridged pod, the second with IPv4 alone on its
// bridge port.
func twoPods() []*dataplane.Subject {
	routed := policy.PodRef{Namespace: "shop", Name: "web", UID: "1"}
	bridged := policy.PodRef{Namespace: "shop", Name: "db", UID: "2"}
	return []*dataplane.Subject{
		{
			Pod: bridged, Addrs: addrs("10.1.0.6 2001:db8:1::6"), Grants: []policy.PortSet{"any"}, Isolated: true,
			Peers: peerRules(
				dataplane.Match{Peer: policy.Peer{Kind: policy.PeerPods, Key: "shop: app=db"}, Ports: "tcp/5432"},
				dataplane.Match{Peer: policy.Peer{Kind: policy.PeerPods, Key: `all: "quoted" \`}, Ports: "any"},
				dataplane.Match{Peer: policy.Peer{Kind: policy.PeerNetworks, Key: "192.0.2.0/24"}, Ports: "sctp/7,tcp/8000-9000,udp"},
				dataplane.Match{Peer: policy.Peer{Kind: policy.PeerPorts, Key: "http/tcp shop: *"}, Ports: "any"},
				dataplane.Match{Peer: policy.Peer{}, Ports: "udp/123"},
			),
			Homes: map[netip.Addr]link.Home{addr("10.1.0.6"): {Iface: "br0", Port: "port6"}},
		},
		{
			Pod: routed, Addrs: addrs("10.1.0.5 2001:db8:1::5"), Grants: []policy.PortSet{"tcp/443,tcp/8000-9000,udp/53", "udp"}, Isolated: true,
			Homes: map[netip.Addr]link.Home{addr("10.1.0.5"): {Iface: "veth5"}, addr("2001:db8:1::5"): {Iface: "veth5"}},
		},
	}
}

// peerRules is the list of rules that accept matches.
func peerRules(matches ...dataplane.Match) *dataplane.RuleList {
	var all []dataplane.Rule
	for _, m := range matches {
		all = append(all, dataplane.Rule{Match: m, Action: policy.Allow})
	}
	return dataplane.NewRuleList(all)
}

// applied puts a ruleset into a fake, which refuses rules that refer to nothing.
func applied(t *testing.T, r ruleset) *iptables.Fake {
	t.Helper()
	f := iptables.NewFake()
	for table, chains := range r.render() {
		tx := iptables.NewTransaction(r.family, table)
		for name, rules := range chains {
			tx.Replace(name, rules...)
		}
		for _, h := range hooks {
			if h.table == table {
				tx.Insert(h.chain, "-j "+h.to)
			}
		}
		if err := f.Restore(context.Background(), tx); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

func TestRenderedRules(t *testing.T) {
	for _, family := range ipVersions {
		f := applied(t, ruleset{family: family, mark: DefaultMark, pods: twoPods()})
		var got strings.Builder
		for _, table := range tables {
			fmt.Fprintf(&got, "*%s\n%s", table, f.Dump(family, table))
		}
		file := filepath.Join("testdata", strings.ToLower(family.String())+".rules")
		if os.Getenv("UPDATE_GOLDEN") != "" {
			if err := os.WriteFile(file, []byte(got.String()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got.String(), "\n")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", file, diff)
		}
	}
}

func TestRulesOfManyPodsReferToNothingMissing(t *testing.T) {
	var pods []*dataplane.Subject
	a, b := addr("10.1.0.1"), addr("2001:db8:1::1")
	for i := range 300 {
		p := &dataplane.Subject{
			Pod:   policy.PodRef{Namespace: "shop", Name: fmt.Sprint(i)},
			Addrs: []netip.Addr{a, b}, Grants: []policy.PortSet{"any", "tcp/443"}, Isolated: true,
			Homes: map[netip.Addr]link.Home{a: {Iface: fmt.Sprintf("veth%08x", i*7919)}, b: {Iface: "br0", Port: fmt.Sprintf("port%d", i)}},
		}
		pods, a, b = append(pods, p), a.Next(), b.Next()
	}
	for _, family := range ipVersions {
		f := applied(t, ruleset{family: family, mark: DefaultMark, pods: pods})
		for _, table := range tables {
			for line := range strings.Lines(f.Dump(family, table)) {
				if strings.Contains(line, "  ") || strings.Contains(line, "<nil>") || strings.Contains(line, "%!") {
					t.Fatalf("a rule that iptables would not print so: %s", line)
				}
			}
		}
	}
}

// TestSecondNet asks the chain of the second net alone, as if the first were gone.
func TestSecondNet(t *testing.T) {
	w := newWorld(t)
	w.apply([]policy.Pod{pod("web", "10.1.0.5 2001:db8:1::5", "allow")}, pol("allow", "tcp/443 www.example.org"))
	const ours = DefaultMark
	tests := []struct {
		what string
		p    packet
		want string
	}{
		{"new and not admitted", packet{proto: 6}, "DROP"},
		{"admitted", packet{proto: 6, conn: ours}, "ACCEPT"},
		{"admitted, among other bits", packet{proto: 6, conn: ours | 0x2000}, "ACCEPT"},
		{"other bits alone", packet{proto: 6, conn: 0xffffffff &^ ours}, "DROP"},
		{"established and not admitted", packet{proto: 6, state: "ESTABLISHED"}, "DROP"},
		{"invalid", packet{proto: 6, state: "INVALID"}, "DROP"},
		{"the packet mark of a tracked connection", packet{proto: 6, mark: ours}, "DROP"},
		{"untracked", packet{proto: 17, state: "UNTRACKED"}, "DROP"},
		{"untracked and marked", packet{proto: 17, state: "UNTRACKED", mark: ours}, "ACCEPT"},
		{"an answer to who asked the pod", packet{proto: 6, state: "ESTABLISHED", reply: true}, "ACCEPT"},
	}
	for _, test := range tests {
		for _, src := range addrs("10.1.0.5 2001:db8:1::5") {
			p := test.p
			p.src, p.dst = src, addr("192.0.2.1")
			if src.Is6() {
				p.dst = addr("2001:db8::1")
			}
			if got := w.machine(versionOf(src), "security").run(chainDrop, &p); got != test.want {
				t.Errorf("%s from %s: %s", test.what, src, got)
			}
		}
	}
	back := []struct {
		what string
		p    packet
		want string
	}{
		{"a reply to an admitted connection", packet{reply: true, conn: ours}, "ACCEPT"},
		{"a reply to one that is not admitted", packet{reply: true, state: "ESTABLISHED"}, "DROP"},
		{"a connection to the pod", packet{}, "ACCEPT"},
	}
	for _, test := range back {
		p := test.p
		p.src, p.dst, p.proto = addr("192.0.2.1"), addr("10.1.0.5"), 6
		if got := w.machine(4, "security").run(chainDrop, &p); got != test.want {
			t.Errorf("%s: %s", test.what, got)
		}
	}
	for _, test := range []struct {
		what       string
		icmp, hops int
		dst, want  string
	}{
		{"neighbour discovery", 135, 255, "2001:db8:1::1", "ACCEPT"},
		{"discovery that has passed a router", 135, 254, "2001:db8:1::1", "DROP"},
		{"listener discovery to a group", 143, 1, "ff02::16", "ACCEPT"},
		{"listener discovery to an address", 143, 255, "2001:db8::1", "DROP"},
		{"an untracked echo", 128, 255, "2001:db8::1", "DROP"},
	} {
		p := packet{src: addr("2001:db8:1::5"), dst: addr(test.dst), proto: 58, state: "UNTRACKED", icmp: test.icmp, hops: test.hops}
		if got := w.machine(6, "security").run(chainDrop, &p); got != test.want {
			t.Errorf("%s: %s", test.what, got)
		}
	}
	related := packet{src: addr("10.1.0.5"), dst: addr("192.0.2.1"), proto: 1, state: "RELATED"}
	if got := w.machine(4, "security").run(chainDrop, &related); got != "ACCEPT" {
		t.Error("an ICMP error of the pod's is dropped")
	}
}

func TestStaleMarksAreClearedFirst(t *testing.T) {
	w := newWorld(t)
	w.apply([]policy.Pod{pod("web", "10.1.0.5", "allow")}, pol("allow"))
	p := packet{src: addr("10.1.0.5"), dst: addr("192.0.2.1"), proto: 6, mark: 0xffffffff, conn: 0xffffffff}
	w.machine(4, "mangle").run("PREROUTING", &p)
	if p.mark != 0xffffffff&^DefaultMark || p.conn != 0xffffffff&^DefaultMark {
		t.Errorf("a new connection comes with mark %#x and connection mark %#x", p.mark, p.conn)
	}
	p = packet{src: addr("10.1.0.5"), dst: addr("192.0.2.1"), proto: 6, state: "ESTABLISHED", conn: 0xffffffff}
	w.machine(4, "mangle").run("PREROUTING", &p)
	if p.conn != 0xffffffff {
		t.Errorf("an established connection's mark became %#x", p.conn)
	}
	p = packet{src: addr("10.1.0.9"), dst: addr("192.0.2.1"), proto: 6, mark: 0xffffffff, conn: 0xffffffff}
	w.machine(4, "mangle").run("PREROUTING", &p)
	if p.mark != 0xffffffff || p.conn != 0xffffffff {
		t.Error("the marks of who is not selected changed")
	}
}

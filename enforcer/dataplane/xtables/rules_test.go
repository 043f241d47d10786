package xtables

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/kernel/iptables"
	"github.com/namegate/namegate/kernel/link"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/iptablestest"
	"github.com/namegate/namegate/testkit/policytest"
)

const testMark, testCandidate = 0x40, 0x20

var addr, addrs = netip.MustParseAddr, policytest.Addrs

// twoPods are one routed and one bridged pod, the second with IPv4 alone on its
// bridge port.
func twoPods() []*dataplane.Subject {
	routed := policy.PodRef{Namespace: "shop", Name: "web", UID: "1"}
	bridged := policy.PodRef{Namespace: "shop", Name: "db", UID: "2"}
	return []*dataplane.Subject{
		{
			Pod: bridged, Addrs: addrs("10.1.0.6 2001:db8:1::6"), Judged: addrs("10.1.0.6 2001:db8:1::6"), Grants: []policy.PortSet{"any"}, Isolated: true,
			Homes: map[netip.Addr]link.Home{addr("10.1.0.6"): {Iface: "br0", Port: "port6"}},
		},
		{
			Pod: routed, Addrs: addrs("10.1.0.5 2001:db8:1::5"), Judged: addrs("10.1.0.5 2001:db8:1::5"), Grants: []policy.PortSet{"sctp/9", "tcp/443", "tcp/443,tcp/8000-9000,udp/53", "udp"}, Isolated: true,
			Homes: map[netip.Addr]link.Home{addr("10.1.0.5"): {Iface: "veth5"}, addr("2001:db8:1::5"): {Iface: "veth5"}},
		},
	}
}

// applied puts a ruleset into a fake, which refuses rules that refer to nothing.
func applied(t *testing.T, r ruleset) *iptablestest.Fake {
	t.Helper()
	f := iptablestest.NewFake()
	for name, chains := range r.render() {
		fatal.If(t, f.Restore(context.Background(), (&table{family: r.family, name: name}).change(chains)))
	}
	return f
}

func TestRenderedRules(t *testing.T) {
	for _, family := range families {
		f := applied(t, ruleset{family: family, mark: testMark, candidate: testCandidate, subjects: twoPods()})
		var got strings.Builder
		for _, table := range tables {
			fmt.Fprintf(&got, "*%s\n%s", table, f.Dump(family, table))
		}
		file := filepath.Join("testdata", strings.ToLower(family.String())+".rules")
		if os.Getenv("UPDATE_GOLDEN") != "" {
			fatal.If(t, os.WriteFile(file, []byte(got.String()), 0o644))
		}
		want, err := os.ReadFile(file)
		fatal.If(t, err)
		diff.Error(t, strings.Split(string(want), "\n"), strings.Split(got.String(), "\n"), file)
	}
}

// recordedChains keeps the text of each transaction.
type recordedChains struct {
	*iptablestest.Fake
	written strings.Builder
}

func (c *recordedChains) Restore(ctx context.Context, tx *iptables.Transaction) error {
	c.written.WriteString(tx.String())
	return c.Fake.Restore(ctx, tx)
}

// TestDoubledJumps go with the chains: two agents that overlap may both have inserted one.
func TestDoubledJumps(t *testing.T) {
	ctx, chains := context.Background(), iptablestest.NewFake()
	r := newRules(chains, nil, dataplane.Owner{Mark: testMark, Candidate: testCandidate, Now: time.Now})
	fatal.If(t, r.write(ctx, wanted{}))
	tx := iptables.NewTransaction(iptables.IPv4, "mangle")
	tx.Insert("PREROUTING", "-j "+chainNames)
	fatal.If(t, chains.Restore(ctx, tx))
	fatal.If(t, r.removeAll(ctx))
	if left := chains.Dump(iptables.IPv4, "mangle"); strings.Contains(left, ChainPrefix) {
		t.Errorf("left are\n%s", left)
	}
}

// TestAPodThatComesRemovesNoRule: the chains that are there get rules in the places where a
// new write has them.
func TestAPodThatComesRemovesNoRule(t *testing.T) {
	ctx := context.Background()
	all := dataplane.Subjects{}
	a, b := addr("10.1.0.1"), addr("2001:db8:1::1")
	for i := range 60 {
		p := &dataplane.Subject{
			Pod:   policy.PodRef{Namespace: "shop", Name: fmt.Sprint(i), UID: fmt.Sprint(i)},
			Addrs: []netip.Addr{a, b}, Judged: []netip.Addr{a, b}, Grants: []policy.PortSet{"tcp/443"}, Isolated: true,
			Homes: map[netip.Addr]link.Home{a: {Iface: fmt.Sprintf("veth%02d", i)}, b: {Iface: fmt.Sprintf("veth%02d", i)}},
		}
		all[p.Pod], a, b = p, a.Next(), b.Next()
	}
	owner := dataplane.Owner{Mark: testMark, Candidate: testCandidate, Now: time.Now}
	fresh := &recordedChains{Fake: iptablestest.NewFake()}
	fatal.If(t, newRules(fresh, nil, owner).write(ctx, wanted{subjects: all}))
	for _, coming := range []string{"7", "20", "41"} { // not the first and the last, which change the common network
		ref := policy.PodRef{Namespace: "shop", Name: coming, UID: coming}
		before := maps.Clone(all)
		delete(before, ref)
		chains := &recordedChains{Fake: iptablestest.NewFake()}
		r := newRules(chains, nil, owner)
		fatal.If(t, r.write(ctx, wanted{subjects: before}))
		chains.written.Reset()
		fatal.If(t, r.write(ctx, wanted{subjects: all}))
		created := ":" + podChain(ref) + " - [0:0]"
		for line := range strings.Lines(chains.written.String()) {
			if line = strings.TrimSpace(line); line != created && strings.HasPrefix(line, ":") || strings.HasPrefix(line, "-D") || strings.HasPrefix(line, "-X") {
				t.Errorf("pod %s comes, and its transaction has %q", coming, line)
			}
		}
		for _, f := range families {
			diff.Error(t, strings.Split(fresh.Dump(f, "mangle"), "\n"), strings.Split(chains.Dump(f, "mangle"), "\n"), "pod", coming, "came to", f)
		}
		fatal.If(t, r.write(ctx, wanted{subjects: before}))
		if left := chains.Dump(iptables.IPv4, "mangle"); strings.Contains(left, podChain(ref)) {
			t.Errorf("pod %s went, and there is a rule of it:\n%s", coming, left)
		}
	}
}

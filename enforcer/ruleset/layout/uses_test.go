package layout_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/enforcer/ruleset/layout"
	"github.com/namegate/namegate/kernel/nft/timed"
	"github.com/namegate/namegate/testkit/fatal"
)

// usesOf are the sets of rules and grants whose entries packets match, in the kernel or in fakes.
type usesOf struct {
	t      *testing.T
	tables *stateTables
	packet func(e timed.Entry) // that matches an entry of each set
}

// asking are rules that ask the sets for packets of the node itself.
const asking = `add chain inet namegate asking { type filter hook output priority 0; }
add rule inet namegate asking ip saddr . ip daddr @entries-allowed-4
add rule inet namegate asking ip6 saddr . ip6 daddr @entries-allowed-6
add rule inet namegate asking meta l4proto udp ip daddr . meta l4proto . th dport @grants-g-4
add rule inet namegate asking meta l4proto udp ip6 daddr . meta l4proto . th dport @grants-g-6
`

// inUse runs a test on the kernel and on fakes.
func inUse(t *testing.T, test func(u usesOf)) {
	ctx := context.Background()
	setup := func(t *testing.T, tables *stateTables) {
		fatal.If(t, errors.Join(tables.Setup(ctx), tables.Apply(ctx, named()), tables.AddSets(ctx, nil, []layout.GrantSet{{Name: "g", Ported: true}})))
	}
	t.Run("kernel", func(t *testing.T) {
		tables := inKernel(t)
		for _, words := range []string{"link set lo up", "addr add 10.1.0.5/32 dev lo", "addr add 2001:db8:1::5/128 dev lo nodad", "route add local 198.51.100.0/24 dev lo", "-6 route add local 2001:db8:5::/64 dev lo"} {
			if out, err := exec.Command("ip", strings.Fields(words)...).CombinedOutput(); err != nil {
				t.Fatalf("ip %s: %v: %s", words, err, out)
			}
		}
		setup(t, tables)
		fatal.If(t, errors.Join(tables.Heartbeat(ctx), tables.Heartbeat(ctx)))
		piped(t, asking)
		test(usesOf{t, tables, func(e timed.Entry) {
			subject := pod4
			if e.Addr.Is6() {
				subject = pod6
			}
			d := net.Dialer{LocalAddr: &net.UDPAddr{IP: subject.AsSlice()}}
			c, err := d.Dial("udp", netip.AddrPortFrom(e.Addr, 443).String())
			fatal.If(t, err)
			defer c.Close()
			if _, err := c.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
		}})
	})
	t.Run("fake", func(t *testing.T) {
		tables := ofFakes()
		setup(t, tables)
		test(usesOf{t, tables, func(e timed.Entry) {
			fatal.If(t, errors.Join(tables.FakeMatch("allowed", false, timed.Entry{Subject: entry(e.Addr, 0, "", 0).Subject, Addr: e.Addr}),
				tables.FakeMatch("g", true, timed.Entry{Addr: e.Addr, Protocol: 17, Port: 443})))
		}})
	})
}

// write writes an entry to both sets.
func (u usesOf) write(to netip.Addr, held timed.Held, uses uint64) {
	u.t.Helper()
	e := entry(to, time.Hour, "reason", held)
	e.Uses = uses
	g := e
	g.Subject, g.Protocol, g.Port = netip.Addr{}, 17, 443
	applied(u.t, u.tables, timed.Op{Set: "allowed", Count: true, Entries: []timed.Entry{e}}, timed.Op{Set: "g", Grants: true, Count: true, Entries: []timed.Entry{g}})
}

// remove removes an entry from both sets.
func (u usesOf) remove(to netip.Addr) {
	u.t.Helper()
	e := entry(to, 0, "", timed.Unknown)
	g := timed.Entry{Addr: to, Protocol: 17, Port: 443}
	applied(u.t, u.tables, timed.Op{Set: "allowed", Remove: true, Entries: []timed.Entry{e}}, timed.Op{Set: "g", Grants: true, Remove: true, Entries: []timed.Entry{g}})
}

// want compares which entries packets have matched.
func (u usesOf) want(what string, want map[netip.Addr]bool) {
	u.t.Helper()
	got := map[string]bool{}
	each := func(set string, part []timed.Entry) {
		for _, e := range part {
			got[fmt.Sprint(set, " ", e.Addr)] = e.Uses > 0
		}
	}
	fatal.If(u.t, errors.Join(u.tables.ListEntries([]string{"allowed"}, each), u.tables.ListGrants([]string{"g"}, each)))
	for a, used := range want {
		for _, set := range []string{"allowed", "g"} {
			if is, there := got[fmt.Sprint(set, " ", a)]; !there || is != used {
				u.t.Errorf("%s: %s of set %s was used: %v (found: %v), want %v", what, a, set, is, there, used)
			}
		}
	}
}

// TestUses: an entry counts the packets that match it, also when its timeout moves and when it
// is replaced, by one that is given a higher count or none.
func TestUses(t *testing.T) {
	t.Parallel()
	inUse(t, func(u usesOf) {
		other := map[netip.Addr]netip.Addr{far4: netip.MustParseAddr("198.51.100.8"), far6: netip.MustParseAddr("2001:db8:5::8")}
		for to, other := range other {
			packet := func() {
				u.packet(timed.Entry{Addr: to})
				u.want("after a packet", map[netip.Addr]bool{to: true, other: false})
			}
			u.write(to, timed.Absent, 0)
			u.write(other, timed.Absent, 0)
			u.want("new", map[netip.Addr]bool{to: false, other: false})
			packet()
			u.write(to, timed.SameComment, 7)
			u.want("after its timeout moved", map[netip.Addr]bool{to: true})
			u.write(to, timed.Unknown, 0)
			u.want("replaced", map[netip.Addr]bool{to: true})
			u.write(to, timed.Absent, 0)
			u.want("replaced by one that was not expected", map[netip.Addr]bool{to: true})
			u.remove(to)
			u.write(to, timed.Unknown, 0)
			u.want("new again", map[netip.Addr]bool{to: false})
			packet()
			u.write(other, timed.SameComment, 0)
			u.want("after the timeout of another moved", map[netip.Addr]bool{to: true, other: false})
			u.write(to, timed.Unknown, 7)
			u.want("written with a count", map[netip.Addr]bool{to: true})
		}
		if u.t.Name() != t.Name()+"/kernel" {
			return
		}
		// The program nft reads each table whenever it changes one.
		if text := ruleset(u.t); !strings.Contains(text, "10.1.0.5 . 198.51.100.7 quota") {
			u.t.Errorf("nft lists\n%s", text)
		}
	})
}

// TestUsesOutliveAnotherLayout: what was used before the tables are made anew counts after it.
func TestUsesOutliveAnotherLayout(t *testing.T) {
	t.Parallel()
	inUse(t, func(u usesOf) {
		ctx, s := context.Background(), named()
		s.GrantSets = []layout.GrantSet{{Name: "g", Ported: true}}
		other := netip.MustParseAddr("198.51.100.8")
		u.write(far4, timed.Absent, 0)
		u.write(other, timed.Absent, 0)
		u.packet(timed.Entry{Addr: far4})
		u.tables.decideNamespace()
		u.want("before", map[netip.Addr]bool{far4: true, other: false})
		fatal.If(t, u.tables.Apply(ctx, s))
		u.want("after", map[netip.Addr]bool{far4: true, other: false})
	})
}

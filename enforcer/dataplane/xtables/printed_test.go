package xtables

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/kernel/ipset"
	"github.com/namegate/namegate/kernel/iptables"
	"github.com/namegate/namegate/kernel/link"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/netns"
)

// manyPods have every kind of port set and home, and are enough that chains branch.
func manyPods() []*dataplane.Subject {
	kinds := []policy.PortSet{"any", "tcp", "udp", "sctp", "tcp/443", "udp/53", "sctp/9", "tcp/8000-9000", "sctp/7-8", "tcp/443,tcp/8000-9000,udp/53",
		"tcp/1,tcp/3,tcp/5,tcp/7,tcp/9,tcp/11,tcp/13,tcp/15,tcp/17,tcp/19,tcp/21,tcp/23,tcp/25,tcp/27,tcp/29,tcp/31"}
	// The longest names, and the most ports of a rule without a protocol.
	var ports []policy.PortRange
	for i := range uint16(64) {
		for _, protocol := range []policy.Protocol{policy.TCP, policy.UDP, policy.SCTP} {
			ports = append(ports, policy.PortRange{Protocol: protocol, First: 50000 + 2*i, Last: 50000 + 2*i})
		}
	}
	long := *twoPods()[1]
	long.Pod = policy.PodRef{Namespace: strings.Repeat("n", 63), Name: strings.Repeat("p", 253), UID: "3"}
	long.Addrs, long.Homes, long.Grants = addrs("10.1.0.7 2001:db8:1::7"), nil, []policy.PortSet{policy.NewPortSet(ports...)}
	long.Judged = long.Addrs
	pods := append(twoPods(), &long)
	for i := range 60 {
		p := &dataplane.Subject{
			Pod: policy.PodRef{Namespace: "shop", Name: fmt.Sprintf("web-%d", i), UID: fmt.Sprint(i)}, Isolated: true,
			Addrs:  []netip.Addr{addr(fmt.Sprintf("10.1.1.%d", i+1)), addr(fmt.Sprintf([]string{"2001:db8:1:1::%x", "2001:db8:1:1::%x:1"}[i%2], i+1))},
			Grants: kinds[i%len(kinds) : min(i%len(kinds)+3, len(kinds))],
			Homes:  map[netip.Addr]link.Home{},
		}
		p.Judged = p.Addrs
		for _, a := range p.Addrs {
			p.Homes[a] = link.Home{Iface: fmt.Sprintf("veth%d", i)}
			if i%3 == 0 {
				p.Homes[a] = link.Home{Iface: "br0", Port: fmt.Sprintf("port%d", i)}
			}
		}
		pods = append(pods, p)
	}
	return pods
}

// Both kinds of iptables print our rules as they are written, so that nothing needs to
// be read back after a write.
func TestRulesArePrintedAsWritten(t *testing.T) {
	t.Setenv("XTABLES_LOCKFILE", t.TempDir()+"/xtables.lock")
	for _, variant := range []iptables.Variant{iptables.Legacy, iptables.NFT} {
		t.Run(string(variant), func(t *testing.T) {
			chains, err := iptables.NewExec(variant)
			if iptables.IsMissing(err) {
				t.Skip(err)
			} else {
				fatal.If(t, err)
			}
			for _, pods := range [][]*dataplane.Subject{nil, twoPods(), manyPods()} {
				t.Run(fmt.Sprint(len(pods), " pods"), func(t *testing.T) { writtenAndPrinted(t, chains, pods) })
			}
		})
	}
}

func writtenAndPrinted(t *testing.T, chains *iptables.Exec, pods []*dataplane.Subject) {
	netns.Own(t)
	sets, err := ipset.Open()
	fatal.If(t, err)
	defer sets.Close()
	for _, s := range StaticSets() {
		fatal.If(t, sets.Ensure(s))
	}
	for _, p := range pods {
		for _, ports := range p.Grants {
			for _, f := range families {
				set := dataplane.GrantSet{Pod: p.Pod, Ports: ports, IPv6: f == iptables.IPv6, Name: GrantSetName(p.Pod, ports, f)}
				fatal.If(t, sets.Ensure(grantHeader(set)))
			}
		}
	}
	for _, f := range families {
		for name, want := range (ruleset{family: f, mark: testMark, candidate: testCandidate, subjects: pods}).render() {
			tx := (&table{family: f, name: name}).change(want)
			if err := chains.Restore(context.Background(), tx); err != nil {
				t.Errorf("%v %s: %v", f, name, err)
				continue
			}
			saved, err := chains.Save(context.Background(), f, name)
			fatal.If(t, err)
			if tx := (&table{family: f, name: name, have: ours(saved)}).change(want); !tx.Empty() {
				t.Errorf("%v %s of %d pods (-written +printed):\n%s", f, name, len(pods), cmp.Diff(want, ours(saved)))
			}
		}
	}
}

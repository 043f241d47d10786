package layout_test

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/namegate/namegate/enforcer/ruleset/layout"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/netns"
)

// manyKinds returns a state with elements of every set, and ordered rules of every shape, n
// of each.
func manyKinds(n int) layout.State {
	addr := func(format string, args ...any) netip.Addr { return netip.MustParseAddr(fmt.Sprintf(format, args...)) }
	s := layout.State{
		Gateways: []netip.Addr{addr("fe80::%x", n)}, Endpoint: []netip.Addr{addr("198.18.0.%d", n)},
		Resolvers: map[netip.Addr]netip.Addr{addr("198.18.0.%d", n): addr("198.18.1.%d", n), addr("2001:db8::%x", n): addr("2001:db8:1::%x", n)},
		PodRanges: []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("198.19.%d.0/24", n)), netip.MustParsePrefix("2001:db8:2::/64")},
		Backends:  []netip.AddrPort{netip.AddrPortFrom(addr("198.18.2.%d", n), 53), netip.AddrPortFrom(addr("2001:db8:3::%x", n), 5353)},
		Serving:   []netip.Addr{addr("198.18.1.%d", n)}, DNS: []netip.Addr{addr("198.18.0.%d", n)},
	}
	ports := [][]policy.PortRange{
		nil, {{Protocol: policy.TCP, First: 443, Last: 443}}, {{Protocol: policy.UDP, First: 53, Last: uint16(100 + n)}}, {{Protocol: policy.SCTP, First: 0, Last: 65535}},
		{{Protocol: policy.TCP, First: 80, Last: 80}, {Protocol: policy.TCP, First: 443, Last: 443}, {Protocol: policy.UDP, First: 0, Last: 5}, {Protocol: policy.UDP, First: 7, Last: 9}, {Protocol: policy.UDP, First: 60000, Last: 65535}},
	}
	var rules []*layout.TierRule
	rule := func(r *layout.TierRule) {
		r.Ports, r.Action = ports[len(rules)%len(ports)], layout.Action(len(rules)%4)
		rules = append(rules, r)
	}
	for i := range 10 * n {
		name := fmt.Sprint(i)
		switch i % 5 {
		case 0:
			s.Peers = append(s.Peers, layout.PeerSet{Name: name, Kind: policy.PeerPods, Addrs: []netip.Addr{addr("192.0.2.%d", i), addr("2001:db8:4::%x", i)}})
			rule(&layout.TierRule{Peers: name})
		case 1:
			s.Peers = append(s.Peers, layout.PeerSet{Name: name, Kind: policy.PeerNetworks, Networks: []netip.Prefix{
				netip.PrefixFrom(addr("198.51.%d.0", i), 24), netip.PrefixFrom(addr("198.51.%d.0", i+1), 25), netip.PrefixFrom(addr("203.0.113.%d", i), 32), netip.PrefixFrom(addr("2001:db8:5:%x::", i), 64),
			}})
			rule(&layout.TierRule{Peers: name})
		case 2:
			s.Peers = append(s.Peers, layout.PeerSet{Name: name, Kind: policy.PeerPorts, Ports: []policy.PeerPort{{Addr: addr("192.0.2.%d", i), Protocol: policy.UDP, Port: 53}, {Addr: addr("2001:db8:4::%x", i), Protocol: policy.TCP, Port: 65535}}})
			rule(&layout.TierRule{Peers: name})
		default:
			s.Entries = append(s.Entries, name)
			rule(&layout.TierRule{Entries: name})
		}
	}
	rule(&layout.TierRule{})
	for i := range 4 {
		pod := []netip.Addr{addr("198.19.0.%d", i+n), addr("2001:db8:2::%x", i+n)}
		s.Pods, s.Selected, s.Known = append(s.Pods, pod), append(s.Selected, pod...), append(s.Known, pod...)
		s.Tiers = append(s.Tiers, layout.Tiers{ID: fmt.Sprint(n, i), Subjects: pod, Admin: rules[:(i+1)*len(rules)/4], Baseline: rules[i:], Namespace: i%2 == 0, DNS: i > 1})
		s.Dropped, s.Audited, s.Intercepted, s.Plain = pod, pod, pod, pod
		for _, a := range pod {
			if i%2 == 0 {
				s.Homes, s.Ifaces = append(s.Homes, layout.Home{Iface: fmt.Sprint("veth", n), Addr: a}), []string{fmt.Sprint("veth", n)}
			} else {
				s.Homes, s.PortHomes, s.Ports = append(s.Homes, layout.Home{Iface: "br0", Addr: a}), append(s.PortHomes, layout.Home{Iface: fmt.Sprint("port", i+n), Addr: a}), append(s.Ports, fmt.Sprint("port", i+n))
			}
		}
	}
	return s
}

// withSubjects adds Namespace tiers of every form, n of each, that the tables decide.
func withSubjects(s layout.State, n int) layout.State {
	s.Staged, s.Recheck = s.Selected[:n%3], s.Selected[n%2:]
	for i := range 2 * n {
		id := fmt.Sprintf("%012x", i)
		p := layout.Subject{ID: id, Grants: []layout.GrantSet{
			{Name: id, Ported: true}, {Name: id + "-any"},
			{Name: id + "-0123", Ports: []policy.PortRange{{Protocol: policy.TCP, First: 1, Last: uint16(9 + n)}, {Protocol: policy.UDP, First: 0, Last: 65535}, {Protocol: policy.SCTP, First: 7, Last: 7}, {Protocol: policy.TCP, First: 443, Last: 443}}},
		}[i%3:]}
		s.GrantSets = append(s.GrantSets, p.Grants...)
		if i < len(s.Pods) {
			p.Addrs = s.Pods[i]
		}
		if i%4 > 0 {
			p.List = fmt.Sprintf("list%d", i%4)
		}
		s.Subjects = append(s.Subjects, p)
	}
	for i := 1; i < 4; i++ {
		var rules []*layout.TierRule
		for j, p := range s.Peers {
			rules = append(rules, &layout.TierRule{Peers: p.Name, Action: layout.Accept, Ports: [][]policy.PortRange{nil, {{Protocol: policy.TCP, First: uint16(n), Last: uint16(n + j)}}}[j%2]})
		}
		s.Lists = append(s.Lists, layout.RuleList{ID: fmt.Sprintf("list%d", i), Rules: rules[:i*len(rules)/3]})
	}
	return s
}

// tableText is what the program nft shows of the chains, rules and sets of a table.
func tableText(t *testing.T, family string) []string {
	t.Helper()
	out, err := exec.Command("nft", "--terse", "list", "table", family, layout.TableName).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	blocks := strings.Split(string(out), "\n\n")
	slices.Sort(blocks)
	return blocks
}

// TestChangesAreWrittenAsTheProgramWritesThem: tables that came to a state by changes hold what
// the program nft makes of it at once.
func TestChangesAreWrittenAsTheProgramWritesThem(t *testing.T) {
	t.Parallel()
	t.Run("by candidates", func(t *testing.T) {
		t.Parallel()
		testChanges(t, false, manyKinds)
	})
	t.Run("by subjects", func(t *testing.T) {
		t.Parallel()
		testChanges(t, true, func(n int) layout.State { return withSubjects(manyKinds(n), n) })
	})
}

func testChanges(t *testing.T, namespace bool, manyKinds func(n int) layout.State) {
	ctx := context.Background()
	texts := map[bool][2][]string{}
	for _, changed := range []bool{false, true} {
		netns.Own(t)
		states := []layout.State{manyKinds(5)}
		if changed {
			states = []layout.State{{}, manyKinds(5), manyKinds(1), manyKinds(2), {}, manyKinds(2), manyKinds(5)}
		}
		var tables *stateTables
		for i, s := range states {
			if i%3 == 0 { // another agent takes over what is there, whatever it wants
				var err error
				tables, err = openTables()
				fatal.If(t, err)
				t.Cleanup(tables.Close)
				if namespace {
					tables.decideNamespace()
				}
				fatal.If(t, tables.Setup(ctx))
			}
			if i%2 == 1 {
				fatal.If(t, tables.AddSets(ctx, s.Entries, s.GrantSets))
			}
			fatal.If(t, tables.Apply(ctx, s))
			if found, err := tables.Verify(ctx, s); err != nil || len(found) > 0 {
				t.Fatalf("state %d: %q deviate: %v", i, found, err)
			}
		}
		texts[changed] = [2][]string{tableText(t, "inet"), tableText(t, "bridge")}
	}
	for i := range texts[true] {
		diff.Error(t, texts[false][i], texts[true][i], "what changes write, by the program and by changes")
	}
	if n := strings.Count(strings.Join(texts[true][0], ""), " @"); n < 100 {
		t.Errorf("%d lookups: the rules are not shown", n)
	}
}

package nft_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/kernel/nft"
	"github.com/namegate/namegate/kernel/nft/timed"
	"github.com/namegate/namegate/testkit/fatal"
)

// unfollowed exempts a port from connection tracking.
const unfollowed = `table inet unfollowed { chain c { type filter hook prerouting priority -300; udp dport 82 notrack; udp sport 82 notrack; }; }`

// entriesWorld is a node with two pods, "a" and "b", that share a list of rules by name.
type entriesWorld struct {
	*lab.Lab
	t      *testing.T
	tables *nft.Tables
}

// do calls f in the node's network namespace.
func (w *entriesWorld) do(f func() error) {
	w.t.Helper()
	fatal.If(w.t, w.Node.Do(f))
}

// add adds entries of pod "a" for the addresses of both families that end with last.
func (w *entriesWorld) add(set string, timeout time.Duration, last ...byte) {
	w.t.Helper()
	op := timed.Op{Set: set}
	p := w.Pod("a")
	for _, n := range last {
		op.Entries = append(op.Entries, timed.Entry{Subject: p.Addr4, Addr: worldAddr(n, false), Timeout: timeout, Comment: "of a"},
			timed.Entry{Subject: p.Addr6, Addr: worldAddr(n, true), Timeout: timeout, Comment: "of a"})
	}
	ops := []timed.Op{op}
	w.do(func() error { w.tables.ApplyEntries(ops); return ops[0].Err })
}

// left returns how long each entry of a set lives, by the last number of its address.
func (w *entriesWorld) left(set string) map[byte][]time.Duration {
	w.t.Helper()
	out := map[byte][]time.Duration{}
	w.do(func() error {
		return w.tables.ListEntries([]string{set}, func(_ string, part []timed.Entry) {
			for _, e := range part {
				if e.Comment != "of a" {
					w.t.Errorf("the entry of %s has the comment %q", e.Addr, e.Comment)
				}
				raw := e.Addr.AsSlice()
				out[raw[len(raw)-1]] = append(out[raw[len(raw)-1]], e.Timeout)
			}
		})
	})
	return out
}

// newEntriesWorld makes the node with a list of rules.
func newEntriesWorld(t *testing.T, network lab.Network, sets []string, tiers nft.Tiers) *entriesWorld {
	t.Helper()
	if os.Getuid() != 0 {
		t.Fatal("this test asks the kernel: run it as root")
	}
	l, err := lab.New(network)
	fatal.If(t, err)
	t.Cleanup(func() { _ = l.Remove() })
	w := &entriesWorld{Lab: l, t: t}
	s := nft.State{Entries: sets}
	for i, name := range []string{"a", "b"} {
		p, err := l.AddPod(name, 5+i)
		fatal.If(t, err)
		s.Selected, s.Pods = append(s.Selected, p.Addr4, p.Addr6), append(s.Pods, []netip.Addr{p.Addr4, p.Addr6})
	}
	tiers.Subjects = s.Selected
	s.Tiers = []nft.Tiers{tiers}
	outside, err := l.ServeWorld(nil, 80, 81, 82)
	fatal.If(t, err)
	t.Cleanup(outside.Close)
	fatal.If(t, l.Ready())
	w.do(func() (err error) {
		if w.tables, err = nft.Open(bits); err != nil {
			return err
		}
		return errors.Join(w.tables.Setup(context.Background()), w.tables.Apply(context.Background(), s))
	})
	return w
}

// TestEntriesDecidePackets: an entry counts for its subject alone, and for the address and
// port that were dialled, in the place of its rule.
func TestEntriesDecidePackets(t *testing.T) {
	t.Parallel()
	port := func(protocol string, n uint16) nft.PortRange {
		return nft.PortRange{Protocol: protocol, First: n, Last: n}
	}
	for _, network := range []lab.Network{lab.Routed, lab.Bridged} {
		t.Run(fmt.Sprint(network), func(t *testing.T) {
			t.Parallel()
			w := newEntriesWorld(t, network,
				[]string{"ports", "denied", "passed", "accepted"},
				nft.Tiers{ID: "a", Admin: []*nft.TierRule{
					{Entries: "ports", Ports: []nft.PortRange{port("tcp", 81), port("udp", 80), port("udp", 82)}, Action: nft.Reject},
					{Entries: "denied", Action: nft.Reject},
					{Entries: "passed", Action: nft.Pass},
					{Action: nft.Accept},
				}, Baseline: []*nft.TierRule{{Entries: "accepted", Action: nft.Accept}, {Action: nft.Reject}}})
			fatal.If(t, w.Node.Pipe(unfollowed, "nft", "-f", "-"))
			var services []lab.Service
			for _, v6 := range []bool{false, true} {
				service := func(last byte, port uint16, to byte, at uint16) {
					services = append(services, lab.Service{Addr: worldAddr(last, v6), Protocol: "tcp", Port: port, To: []netip.AddrPort{netip.AddrPortFrom(worldAddr(to, v6), at)}})
				}
				service(101, 80, 2, 80)
				service(102, 80, 1, 80)
				service(103, 80, 4, 81)
				service(104, 81, 7, 80)
			}
			fatal.If(t, w.SetServices(services...))
			w.add("denied", 2*time.Minute, 1, 101, 8)
			w.add("ports", 2*time.Minute, 4, 103, 104)
			w.add("passed", 2*time.Minute, 5, 6)
			w.add("accepted", 2*time.Minute, 3, 6)
			for _, test := range []struct {
				pod, network string
				last         byte
				port         uint16
				want         lab.Outcome
				by           string
			}{
				{"a", "tcp", 1, 80, lab.Refused, "the address is denied, before a rule that accepts all"},
				{"a", "udp", 1, 81, lab.Refused, "the address is denied"},
				{"a", "udp", 1, 82, lab.Refused, "the address is denied, untracked"},
				{"a", "icmp", 1, 0, lab.Silent, "the address is denied"},
				{"b", "tcp", 1, 80, lab.Answered, "the entry is another pod's"},
				{"b", "udp", 1, 82, lab.Answered, "the entry is another pod's, untracked"},
				{"b", "icmp", 1, 0, lab.Answered, "the entry is another pod's"},
				{"a", "tcp", 2, 80, lab.Answered, "no entry"},
				{"a", "udp", 2, 82, lab.Answered, "no entry, untracked"},
				{"a", "tcp", 101, 80, lab.Refused, "the Service that was dialled is denied"},
				{"b", "tcp", 101, 80, lab.Answered, "the Service is denied to another pod"},
				{"a", "tcp", 102, 80, lab.Answered, "the address that is reached was not dialled"},
				{"a", "tcp", 4, 81, lab.Refused, "the port is denied"},
				{"a", "tcp", 4, 80, lab.Answered, "another port"},
				{"a", "udp", 4, 80, lab.Refused, "the port of the other protocol is denied"},
				{"a", "udp", 4, 81, lab.Answered, "the port of another protocol"},
				{"a", "udp", 4, 82, lab.Refused, "the port is denied, untracked"},
				{"a", "icmp", 4, 0, lab.Answered, "no port"},
				{"a", "tcp", 103, 80, lab.Answered, "the port that is reached was not dialled"},
				{"a", "tcp", 104, 81, lab.Refused, "the port that was dialled is denied"},
				{"a", "tcp", 5, 80, lab.Refused, "passed to a tier that denies"},
				{"a", "tcp", 6, 80, lab.Answered, "passed to a rule that accepts"},
				{"a", "udp", 6, 82, lab.Answered, "passed to a rule that accepts, untracked"},
				{"a", "udp", 5, 82, lab.Refused, "passed to a tier that denies, untracked"},
			} {
				for _, v6 := range []bool{false, true} {
					to := netip.AddrPortFrom(worldAddr(test.last, v6), test.port)
					if got := w.Pod(test.pod).ProbeFor(test.network, to, lab.PatienceFor(test.want)); got != test.want {
						t.Errorf("pod %s to %s %s: %s, want %s: %s", test.pod, test.network, to, got, test.want, test.by)
					}
				}
			}
			for set, addrs := range map[string][]byte{"denied": {1, 101, 8}, "ports": {4, 103, 104}, "passed": {5, 6}, "accepted": {3, 6}} {
				left := w.left(set)
				for _, last := range addrs {
					if d := left[last]; len(d) != 2 || max(d[0], d[1]) > 2*time.Minute {
						t.Errorf("set %s, address %d: %v left, want an entry of each family that no packet renewed", set, last, d)
					}
				}
			}
		})
	}
}

// TestEntriesEnd: without an agent that does anything, an Accept ends with its entry.
func TestEntriesEnd(t *testing.T) {
	t.Parallel()
	w := newEntriesWorld(t, lab.Routed, []string{"accepted"},
		nft.Tiers{ID: "a", Admin: []*nft.TierRule{{Entries: "accepted", Action: nft.Accept}, {Action: nft.Reject}}})
	to := netip.AddrPortFrom(worldAddr(1, false), 80)
	probe := func() lab.Outcome { return w.Pod("a").ProbeFor("tcp", to, lab.Limit) }
	if got := probe(); got != lab.Refused {
		t.Errorf("without an entry: %s", got)
	}
	w.add("accepted", time.Hour, 1)
	if got := probe(); got != lab.Answered {
		t.Errorf("with an entry: %s", got)
	}
	w.add("accepted", 100*time.Millisecond, 1)
	for until := time.Now().Add(lab.Limit); probe() != lab.Refused; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("the entry does not end")
		}
	}
}

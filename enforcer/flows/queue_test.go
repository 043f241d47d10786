package flows

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/kernel/conntrack"
	"github.com/namegate/namegate/testkit/conntracktest"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/policytest"
)

const bit = 0x40

// node is a queue on fakes, with the addresses that its judge allows connections to.
type node struct {
	*Queue
	t             *testing.T
	time          time.Time
	conns         *conntracktest.Fake
	recorded      map[netip.Addr]bool // the recheck set in the kernel
	allowed       string
	reasons       map[Reason]bool // that the judge got
	resets        []conntrack.Flow
	refuses       bool // the kernel refuses changes of connections and of the recheck set
	refusesDelete bool // it refuses to remove connections
}

func newNode(t *testing.T) *node {
	n := &node{t: t, time: time.Unix(1_700_000_000, 0), conns: conntracktest.NewFake(), recorded: map[netip.Addr]bool{}, reasons: map[Reason]bool{}}
	n.restart()
	return n
}

// restart makes a queue that knows nothing of the last one's subjects.
func (n *node) restart() {
	n.Queue = New(refusingConns{n.conns, n}, recheckSet{n}, bit, func(f conntrack.Flow) { n.resets = append(n.resets, f) }, func() time.Time { return n.time })
}

var errRefused = errors.New("the kernel is out of memory")

type refusingConns struct {
	*conntracktest.Fake
	n *node
}

func (r refusingConns) SetMark(f conntrack.Flow, value, mask uint32) error {
	if r.n.refuses {
		return errRefused
	}
	return r.Fake.SetMark(f, value, mask)
}

func (r refusingConns) Delete(f conntrack.Flow) error {
	if r.n.refusesDelete {
		return errRefused
	}
	return r.Fake.Delete(f)
}

type recheckSet struct{ n *node }

func (d recheckSet) ListRecheck(context.Context) ([]netip.Addr, error) {
	return slices.Collect(maps.Keys(d.n.recorded)), nil
}

func (d recheckSet) ChangeRecheck(_ context.Context, addrs []netip.Addr, remove bool) error {
	if d.n.refuses {
		return errRefused
	}
	for _, a := range addrs {
		if d.n.recorded[a] = true; remove {
			delete(d.n.recorded, a)
		}
	}
	return nil
}

// open tracks admitted connections, "SOURCE DESTINATION" each.
func (n *node) open(conns ...string) {
	for i, c := range conns {
		src, dst, _ := strings.Cut(c, " ")
		n.conns.Track(conntrack.Flow{Protocol: 6, Mark: bit, Src: netip.AddrPortFrom(netip.MustParseAddr(src), uint16(i+1)), Dst: netip.AddrPortFrom(netip.MustParseAddr(dst), 443)})
	}
}

// admitted checks which connections have an admission.
func (n *node) admitted(want ...string) {
	n.t.Helper()
	all, err := n.conns.Flows(conntrack.Query{Sources: addrs("10.1.0.5 10.1.0.6 2001:db8::5"), Mark: bit, Mask: bit})
	fatal.If(n.t, err)
	got := []string{}
	for _, f := range all {
		got = append(got, fmt.Sprint(f.Src.Addr(), " ", f.Dst.Addr()))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		n.t.Errorf("admitted are %q, want %q", got, want)
	}
}

func (n *node) judge(f conntrack.Flow, why Reason) bool {
	n.reasons[why] = true
	return slices.Contains(strings.Fields(n.allowed), f.Dst.Addr().String())
}

func (n *node) run() {
	n.t.Helper()
	fatal.If(n.t, n.Run(n.judge))
}

// set checks which addresses the kernel has.
func (n *node) set(want string) {
	n.t.Helper()
	got := slices.SortedFunc(maps.Keys(n.recorded), netip.Addr.Compare)
	if !slices.Equal(got, addrs(want)) {
		n.t.Errorf("the kernel holds recheck set of %v, want %q", got, want)
	}
}

var addrs = policytest.Addrs

func TestConnectionsCutByEachReason(t *testing.T) {
	const name, peer, lost = "10.1.0.5 192.0.2.1", "10.1.0.5 10.2.0.1", "10.1.0.5 10.2.0.2"
	for _, test := range []struct {
		what    string
		recheck func(q *Queue)
		stays   []string
		left    string
		judged  Reason // 0: none is
	}{
		{"the policy changed", func(q *Queue) { q.Recheck(PolicyChanged, addrs("10.1.0.5")) }, []string{name}, "10.1.0.5", PolicyChanged},
		{"rules were lost", func(q *Queue) {
			q.Recheck(RulesLost, addrs("10.1.0.5"))
			q.Recheck(PolicyChanged, addrs("10.1.0.5"))
		}, []string{name}, "10.1.0.5", RulesLost},
		{"the pod is gone", func(q *Queue) { q.Recheck(PodRemoved, addrs("10.1.0.5")) }, nil, "10.1.0.5", 0},
		{"a peer is lost", func(q *Queue) { q.Recheck(PeersLost, addrs("10.1.0.5"), addrs("10.2.0.2 192.0.2.1")...) }, []string{name, peer}, "10.2.0.2 192.0.2.1", PeersLost},
		{"a peer is lost, and the policy changed", func(q *Queue) {
			q.Recheck(PolicyChanged, addrs("10.1.0.5"))
			q.Recheck(PeersLost, addrs("10.1.0.5"), addrs("10.2.0.2")...)
		}, []string{name}, "10.1.0.5 10.2.0.2", PolicyChanged},
		{"another pod loses a peer too", func(q *Queue) {
			q.Recheck(PeersLost, addrs("10.1.0.5"), addrs("10.2.0.2")...)
			q.Recheck(PeersLost, addrs("10.1.0.9"), addrs("10.2.0.1")...)
			q.Recheck(PeersLost, addrs("10.1.0.6"), addrs("10.2.0.1")...)
		}, []string{name, peer}, "10.2.0.1 10.2.0.2", PeersLost},
	} {
		n := newNode(t)
		n.allowed = "192.0.2.1"
		n.open(name, peer, lost, "10.1.0.6 10.2.0.2")
		n.t.Log(test.what)
		test.recheck(n.Queue)
		fatal.If(t, n.Record())
		n.set(test.left)
		n.run()
		n.admitted(append(test.stays, "10.1.0.6 10.2.0.2")...)
		n.set(test.left)
		n.time = n.time.Add(packetGrace)
		n.run()
		n.set("")
		if n.reasons[test.judged] != (test.judged > 0) || len(n.reasons) > 1 {
			t.Errorf("%s: the judge got the reasons %v", test.what, n.reasons)
		}
	}
}

// TestSecondLook has connections appear after the first look, whose packets were judged
// before the change.
func TestSecondLook(t *testing.T) {
	n := newNode(t)
	n.allowed = "192.0.2.1"
	n.Recheck(PodRemoved, addrs("10.1.0.5 2001:db8::5"))
	fatal.If(t, n.Record(addrs("10.1.0.6")...))
	n.run()
	n.open("10.1.0.5 192.0.2.1", "10.1.0.5 192.0.2.2", "2001:db8::5 2001:db8::1")
	n.time = n.time.Add(packetGrace - 1)
	if scans := n.conns.Scans(); n.Due() {
		t.Error("due before every packet has arrived")
	} else if n.run(); n.conns.Scans() != scans {
		t.Error("looked before every packet has arrived")
	}
	n.time = n.time.Add(1)
	if !n.Due() {
		t.Error("not due")
	}
	n.refuses = true
	if n.Run(n.judge) == nil {
		t.Error("a refusal is no error")
	}
	n.set("10.1.0.5 10.1.0.6 2001:db8::5")
	n.refuses = false
	n.run()
	n.admitted("10.1.0.5 192.0.2.1") // the next pod's
	n.set("")
	if scans := n.conns.Scans(); n.Due() {
		t.Error("due once more")
	} else if n.run(); n.conns.Scans() != scans {
		t.Error("looked once more")
	}
}

// TestRecheckLater: addresses that come one after the other share a listing, and are not recorded.
func TestRecheckLater(t *testing.T) {
	n := newNode(t)
	n.allowed = "192.0.2.1"
	n.open("10.1.0.5 192.0.2.2", "10.1.0.6 192.0.2.1", "10.1.0.6 192.0.2.2")
	n.RecheckLater(PolicyChanged, nil)
	n.RecheckLater(PolicyChanged, addrs("10.1.0.5"))
	n.time = n.time.Add(packetGrace / 2)
	n.RecheckLater(PolicyChanged, addrs("10.1.0.6"))
	n.run()
	if n.conns.Scans() != 0 || n.Due() {
		t.Error("looked before a second is over")
	}
	n.time = n.time.Add(packetGrace / 2)
	n.set("")
	n.run()
	if scans := n.conns.Scans(); scans != 1 || n.Due() {
		t.Errorf("%d listings", scans)
	}
	n.admitted("10.1.0.6 192.0.2.1")
}

// TestASecondLookAfterAdmit: what a pod opened while no policy selected it is no new connection when one does again.
func TestASecondLookAfterAdmit(t *testing.T) {
	n := newNode(t)
	n.allowed = "192.0.2.1"
	n.Recheck(PodRemoved, addrs("10.1.0.5"))
	n.run()
	n.open("10.1.0.5 192.0.2.1")
	fatal.If(t, n.conns.SetMark(conntrack.Flow{Protocol: 6, Src: netip.MustParseAddrPort("10.1.0.5:1"), Dst: netip.MustParseAddrPort("192.0.2.1:443")}, 0, bit))
	fatal.If(t, n.Admit(addrs("10.1.0.5"), func(conntrack.Flow) bool { return true }))
	n.time = n.time.Add(packetGrace)
	n.run()
	n.admitted("10.1.0.5 192.0.2.1")
	if n.reasons[RulesLost] || !n.reasons[PolicyChanged] {
		t.Errorf("the judge got the reasons %v", n.reasons)
	}
}

func TestAFailureIsTriedAgain(t *testing.T) {
	n := newNode(t)
	n.open("10.1.0.5 192.0.2.1")
	n.Recheck(PolicyChanged, addrs("10.1.0.5"))
	n.refuses = true
	if n.Record(addrs("10.1.0.6")...) == nil || n.Run(n.judge) == nil {
		t.Error("a refusal is no error")
	}
	n.refuses = false
	fatal.If(t, n.Record())
	n.set("10.1.0.5 10.1.0.6")
	n.run()
	n.admitted()
	n.time = n.time.Add(packetGrace)
	n.refuses = true
	if n.Run(n.judge) == nil || !n.Due() {
		t.Error("recheck set that the kernel does not remove are no error, or not tried again")
	}
	n.refuses = false
	n.run()
	n.set("")
	if n.Due() {
		t.Error("due once more")
	}
}

// TestALossIsQueuedOnce: while roll-outs fail, each one queues what the last one did.
func TestALossIsQueuedOnce(t *testing.T) {
	n := newNode(t)
	for range 10 {
		n.Recheck(PeersLost, addrs("10.1.0.5 10.1.0.6"), addrs("192.0.2.1")...)
		n.Recheck(PeersLost, addrs("10.1.0.6"), addrs("192.0.2.1")...)
	}
	if got := len(n.pending.lost[addrs("192.0.2.1")[0]]); got != 2 {
		t.Errorf("%d sets of pods are queued, of 2 distinct ones", got)
	}
}

func TestRecheckSetSurvivesTheAgent(t *testing.T) {
	n := newNode(t)
	fatal.If(t, n.Record(addrs("10.1.0.5 2001:db8::5")...))
	n.restart()
	recorded, err := n.Recover()
	if err != nil || len(recorded) != 2 || len(n.Recorded()) != 2 {
		t.Errorf("recovered %v, %v", recorded, err)
	}
	n.Recheck(PolicyChanged, n.Recorded())
	n.run()
	n.set("10.1.0.5 2001:db8::5")
	n.time = n.time.Add(packetGrace)
	n.run()
	n.set("")
}

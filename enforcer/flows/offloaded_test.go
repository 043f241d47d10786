package flows

import (
	"testing"

	"github.com/namegate/namegate/kernel/conntrack"
	"github.com/namegate/namegate/testkit/fatal"
)

// offload moves the connections of n to a flow table and returns them, the first one of UDP.
func (n *node) offload() (all []conntrack.Flow) {
	n.t.Helper()
	all, err := n.conns.Flows(conntrack.Query{Sources: addrs("10.1.0.5")})
	fatal.If(n.t, err)
	for i := range all {
		if i == 0 {
			fatal.If(n.t, n.conns.Delete(all[i]))
			all[i].Protocol = 17
			n.conns.Track(all[i])
		}
		n.conns.Offload(all[i], true)
	}
	return all
}

// later runs the queue when it is due again.
func (n *node) later() {
	n.t.Helper()
	n.time = n.time.Add(packetGrace)
	if !n.Due() {
		n.t.Error("not due")
	}
	n.run()
}

func (n *node) notCut(when string, want int) {
	n.t.Helper()
	if got := n.NotCut(); len(got) != want {
		n.t.Errorf("%s: not cut are %v, want %d", when, got, want)
	}
}

// TestOffloadedConnectionsAreRemoved: a connection in a flow table that loses its admission is removed,
// and looked for once more. One that is allowed stays there.
func TestOffloadedConnectionsAreRemoved(t *testing.T) {
	n := newNode(t)
	n.allowed = "192.0.2.9"
	n.open("10.1.0.5 192.0.2.1", "10.1.0.5 192.0.2.2", "10.1.0.5 192.0.2.9")
	all := n.offload()
	n.Recheck(PolicyChanged, addrs("10.1.0.5"))
	n.run()
	n.admitted("10.1.0.5 192.0.2.9")
	left, err := n.conns.Flows(conntrack.Query{Sources: addrs("10.1.0.5")})
	if err != nil || len(left) != 1 || left[0].Dst.Addr() != addrs("192.0.2.9")[0] {
		t.Errorf("tracked are %v, %v", left, err)
	}
	n.notCut("after the removal", 2)
	// A packet that was under way brought one back.
	back := all[1]
	back.Mark, back.Offloaded = 0, true
	n.conns.Track(back)
	n.later()
	n.notCut("after it came back", 1)
	n.later()
	n.notCut("in the end", 0)
	if len(n.resets) > 0 {
		t.Errorf("reset were %v", n.resets)
	}
	n.Recheck(PolicyChanged, addrs("10.1.0.5"))
	n.conns.Offload(left[0], true)
	n.run()
	n.notCut("of an allowed connection", 0)
}

// TestOffloadedConnectionsOfOldKernels: a kernel that does not remove them gives one of TCP back after a
// reset. One of UDP is not cut until it is gone, and is looked for until then.
func TestOffloadedConnectionsOfOldKernels(t *testing.T) {
	n := newNode(t)
	n.conns.SetOld(true)
	n.open("10.1.0.5 192.0.2.1", "10.1.0.5 192.0.2.2", "10.1.0.5 192.0.2.3")
	all := n.offload()
	n.Recheck(PodRemoved, addrs("10.1.0.5"))
	n.run()
	n.admitted()
	n.notCut("before the resets", 3)
	if len(n.resets) != 2 || n.resets[0].Protocol != 6 || n.resets[1].Protocol != 6 {
		t.Errorf("reset were %v", n.resets)
	}
	for _, f := range n.resets[:1] {
		n.conns.Offload(f, false)
	}
	n.later()
	n.notCut("after the first reset", 2)
	if len(n.resets) != 3 {
		t.Errorf("reset were %v: one was lost", n.resets)
	}
	n.conns.Offload(n.resets[2], false)
	n.later()
	n.notCut("of UDP", 1)
	// The next pod of the address has the connection admitted.
	fatal.If(t, n.conns.SetMark(all[0], bit, bit))
	n.later()
	n.notCut("of UDP, admitted anew", 0)
	if n.Due() {
		t.Error("due once more")
	}
}

// TestARefusedRemovalIsTriedAgain: another error of the kernel is one of Run.
func TestARefusedRemovalIsTriedAgain(t *testing.T) {
	n := newNode(t)
	n.open("10.1.0.5 192.0.2.1")
	n.offload()
	n.Recheck(PolicyChanged, addrs("10.1.0.5"))
	n.refusesDelete = true
	if n.Run(n.judge) == nil {
		t.Error("a refusal is no error")
	}
	n.refusesDelete = false
	n.time = n.time.Add(packetGrace)
	n.run()
	n.later()
	n.notCut("in the end", 0)
	if left, err := n.conns.Flows(conntrack.Query{Sources: addrs("10.1.0.5")}); err != nil || len(left) > 0 {
		t.Errorf("tracked are %v, %v", left, err)
	}
}

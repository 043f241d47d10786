package handover

import (
	"maps"
	"net/netip"
	"testing"
	"time"
)

func TestPredecessor(t *testing.T) {
	serving, idle, dialled := netip.MustParseAddr("169.254.20.64"), netip.MustParseAddr("169.254.20.65"), netip.MustParseAddr("192.0.2.53")
	now, listens := time.Unix(1_700_000_000, 0), true
	p := NewPredecessor(func(a netip.Addr) bool { return listens && a == serving }, func() time.Time { return now })
	if p.Present() || p.Serves(serving) || len(p.Addrs()) > 0 {
		t.Error("present before it is looked for")
	}
	p.Find([]netip.Addr{serving, idle}, map[netip.Addr]netip.Addr{serving: dialled})
	if !p.Present() || !p.Serves(serving) || p.Serves(idle) || !maps.Equal(p.Addrs(), map[netip.Addr]netip.Addr{serving: dialled}) {
		t.Errorf("serves at %v", p.Addrs())
	}
	now = now.Add(patience - 1)
	if p.Gone() || p.TimedOut() {
		t.Error("gone or overdue while it serves")
	}
	now = now.Add(1)
	if !p.TimedOut() {
		t.Error("waited for without end")
	}
	listens = false
	if !p.Gone() || !p.Present() {
		t.Error("not gone, or forgotten before its addresses are taken over")
	}
	p.Forget()
	if p.Present() || p.Serves(serving) {
		t.Error("present after Forget")
	}
}

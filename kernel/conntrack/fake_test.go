package conntrack_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/namegate/namegate/kernel/conntrack"
	"github.com/namegate/namegate/testkit/fatal"
)

func TestFake(t *testing.T) {
	t.Parallel()
	f := conntrack.NewFake()
	udp := conntrack.Flow{Protocol: 17, Src: netip.MustParseAddrPort("10.1.0.5:1000"), Dst: netip.MustParseAddrPort("192.0.2.1:53"), Mark: others}
	tcp := udp
	tcp.Protocol = 6
	zoned := udp
	zoned.Zone = 7
	for _, flow := range []conntrack.Flow{udp, tcp, zoned} {
		f.Track(flow)
	}
	fatal.If(t, f.SetMark(tcp, 0xffffffff, ours))
	for _, got := range flows(t, f, "10.1.0.5") {
		want := uint32(others)
		if got.Protocol == 6 {
			want |= ours
		}
		if got.Mark != want || got.Peer != got.Dst {
			t.Errorf("protocol %d: mark %#x, peer %s", got.Protocol, got.Mark, got.Peer)
		}
	}
	f.Establish(udp, time.Minute)
	f.Establish(zoned, 0)
	if got := established(t, f, others, ours); len(got) != 2 || got[0].Src != udp.Src || got[0].Peer != udp.Dst || got[0].Idle != time.Minute {
		t.Errorf("established: %+v", got)
	}
	if got := established(t, f, ours, ours); len(got) != 0 || f.Scans() == 0 {
		t.Errorf("established with the mark: %+v", got)
	}
	for range 2 {
		if err := f.Delete(zoned); err != nil {
			t.Error(err)
		}
		if err := f.SetMark(zoned, ours, ours); err != nil {
			t.Error(err)
		}
	}
	if got := established(t, f, 0, 0); len(got) != 1 {
		t.Errorf("established after one was deleted: %+v", got)
	}
	left := flows(t, f, "10.1.0.5")
	if len(left) != 2 || left[0].Mark != others|ours || left[1].Zone != 0 {
		t.Errorf("left %v", left)
	}
	if got := flows(t, f, "10.1.0.6"); len(got) != 0 {
		t.Errorf("flows of another source: %v", got)
	}
}

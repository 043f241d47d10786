package scenarios

import (
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
)

// forgeStage is a guarded stage with a pod that no policy selects, raw access to
// the pods' cards, and sniffers where packets must not arrive.
type forgeStage struct {
	*stage
	neighbour *lab.Sniffer
	cards     map[string]*lab.Card
	ways      uint32
}

func newForgeStage(t *testing.T, kind nodeKind) *forgeStage {
	t.Helper()
	s := guardedStage(t, kind)
	f := &forgeStage{stage: s, cards: map[string]*lab.Card{}}
	s.addPod("free", 7)
	fatal.If(t, s.Ready())
	f.neighbour = s.sniff(s.Pod("b").Host, "eth0")
	for _, name := range []string{"a", "b", "free"} {
		c, err := s.Pod(name).Card("eth0")
		fatal.If(t, err)
		t.Cleanup(c.Close)
		f.cards[name] = c
	}
	return f
}

// hop is the hardware address that a pod's packets to an address go to.
func (f *forgeStage) hop(pod string, dst netip.Addr) net.HardwareAddr {
	f.t.Helper()
	if f.Network == lab.Bridged {
		for _, p := range []string{"a", "b", "free"} {
			if dst == f.Pod(p).Addr4 || dst == f.Pod(p).Addr6 {
				return f.cards[p].HW
			}
		}
	}
	dev := f.Pod(pod).Iface
	if f.Network == lab.Bridged {
		dev = "br0"
	}
	hw, err := f.Node.Hardware(dev)
	fatal.If(f.t, err)
	return hw
}

// way returns another one each time.
func (f *forgeStage) way(src, dst netip.Addr) way {
	f.ways++
	return way{src, dst, f.ways}
}

// send sends packets from a pod.
func (f *forgeStage) send(pod string, w way, packets [][]byte) {
	f.t.Helper()
	hop := f.hop(pod, w.dst)
	for _, p := range packets {
		fatal.If(f.t, f.cards[pod].SendIP(hop, p))
	}
}

// settleAll waits until both sniffers have recorded what arrived before the call.
func (f *forgeStage) settleAll() {
	f.t.Helper()
	f.settle()
	w := f.way(f.Pod("free").Addr4, f.Pod("b").Addr4)
	fatal.Await(f.t, "a packet from an unselected pod to the neighbour", func() bool {
		f.send("free", w, w.packet(17, w.udp()))
		return f.neighbour.SawToken(w.token()) > 0
	})
}

// sent is a forged packet on its way, and whether it is to arrive.
type sent struct {
	what string
	way
	want bool
}

// judge asserts of all that was sent that it arrived where it had to, and nowhere
// else.
func (f *forgeStage) judge(all []sent) {
	f.t.Helper()
	f.settleAll()
	arrivals := 0
	for _, s := range all {
		got := f.world.SawToken(s.token())+f.neighbour.SawToken(s.token()) > 0
		switch {
		case got && !s.want:
			f.t.Errorf("%s arrived", s.what)
		case !got && s.want:
			f.t.Errorf("%s did not arrive", s.what)
		case got:
			arrivals++
		}
	}
	f.t.Logf("%d forgeries, of which %d were to arrive", len(all), arrivals)
}

// TestForgedPackets sends every kind of packet that a program with NET_RAW can make
// up: to addresses that are denied, outside and next door, where nothing must
// arrive; and to ones that are open, and from a pod that no policy selects, where
// the very same kind does arrive unless the kernel itself forwards no such thing.
func TestForgedPackets(t *testing.T) {
	staged(t, onEach, newForgeStage, func(t *testing.T, f *forgeStage) {
		var all []sent
		for _, family := range []struct {
			word, denied, open, web string
			forgeries               []forgery
			of                      func(*lab.Pod) netip.Addr
		}{
			{"IPv4", "198.51.100.66", "198.51.100.3", "198.51.100.1", forgeries4(), func(p *lab.Pod) netip.Addr { return p.Addr4 }},
			{"IPv6", "2001:db8:1::66", "2001:db8:1::3", "2001:db8:1::1", forgeries6(), func(p *lab.Pod) netip.Addr { return p.Addr6 }},
		} {
			for _, forged := range family.forgeries {
				for _, to := range []struct {
					pod, word string
					dst       netip.Addr
					want      bool
				}{
					{"a", "a denied address", netip.MustParseAddr(family.denied), false},
					{"a", "the neighbour", family.of(f.Pod("b")), false},
					{"a", "an open address", netip.MustParseAddr(family.open), forged.open},
					{"a", "an address that is open on TCP port 80", netip.MustParseAddr(family.web), forged.web},
					{"free", "a denied address", netip.MustParseAddr(family.denied), forged.free},
					{"free", "the neighbour", family.of(f.Pod("b")), forged.free},
				} {
					if to.pod == "free" && !to.want {
						continue
					}
					w := f.way(family.of(f.Pod(to.pod)), to.dst)
					f.send(to.pod, w, forged.make(w))
					all = append(all, sent{fmt.Sprintf("%s: %s from pod %s to %s", family.word, forged.name, to.pod, to.word), w, to.want})
				}
			}
		}
		f.judge(all)
		f.expect("a", "tcp", "198.51.100.1:80", lab.Answered)
		f.holds("after all of it")
	})
}

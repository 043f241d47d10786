package enforcer

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/namegate/namegate/kernel/link"
	"github.com/namegate/namegate/kernel/nft"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestOffloadedConnectionsAreCut: on a kernel that does not remove connections from flow tables, a
// connection of TCP that no policy allows any more is reset by a segment that comes in from its pod; the
// status names it until it is gone.
func TestOffloadedConnectionsAreCut(t *testing.T) {
	t.Parallel()
	for _, to := range []string{"192.0.2.3:443", "[2001:db8::3]:443"} {
		w := newNode(t)
		from := map[bool]netip.Addr{true: addr("10.1.0.5"), false: addr("fd00:1::5")}[addrPort(to).Addr().Is4()]
		w.links.SetHome(from, link.Home{Iface: "br0", Port: "port5"})
		w.flows.SetOld(true)
		var sent []string
		w.inject = func(iface string, packet []byte) error {
			header, pseudo := 20, slices.Concat(packet[12:20], []byte{0, 6, 0, 20})
			if from.Is6() {
				header, pseudo = 40, slices.Concat(packet[8:40], []byte{0, 6, 0, 20})
			} else if checksum(packet[:20]) != 0 {
				t.Error("a wrong checksum of the header")
			}
			tcp := packet[header:]
			if len(tcp) != 20 || checksum(append(pseudo, tcp...)) != 0 {
				t.Errorf("a segment %x with a wrong checksum", tcp)
			}
			sent = append(sent, fmt.Sprintf("%s %x %d %d", iface, tcp[13], uint16(tcp[0])<<8|uint16(tcp[1]), uint16(tcp[2])<<8|uint16(tcp[3])))
			return nil
		}
		w.restart()
		web := pod("web", from.String(), "allow", "more")
		w.apply([]policy.Pod{web}, pol("allow", "tcp/80 www.example.org"), pol("more", "tcp/443 mail.test"))
		w.answer(web, "mail.test", 60, addrPort(to).Addr().String())
		f := w.track(netip.AddrPortFrom(from, 4000).String(), to)
		w.flows.Offload(f, true)
		w.apply([]policy.Pod{web}, pol("allow", "tcp/80 www.example.org"))
		if w.admitted(f) || !slices.Equal(sent, []string{"port5 4 4000 443"}) {
			t.Errorf("admitted: %v, sent %q", w.admitted(f), sent)
		}
		if got, want := w.e.Status().NotCut, fmt.Sprintf("tcp %s to %s", f.Src, f.Dst); !slices.Equal(got, []string{want}) {
			t.Errorf("not cut are %q, want %q", got, want)
		}
		w.flows.Offload(f, false)
		w.clock.Pass(packetGrace)
		w.recheck()
		if got := w.e.Status().NotCut; len(got) > 0 || len(sent) != 1 {
			t.Errorf("not cut are %q, sent %q", got, sent)
		}
	}
}

// TestFlowTablesOfPodsAreReported: flow tables with an interface of an isolated pod.
func TestFlowTablesOfPodsAreReported(t *testing.T) {
	t.Parallel()
	w := newNode(t)
	w.links.SetHome(addr("10.1.0.5"), link.Home{Iface: "veth5"})
	w.links.SetHome(addr("10.1.0.6"), link.Home{Iface: "br0", Port: "port6"})
	w.links.SetHome(addr("10.1.0.7"), link.Home{Iface: "veth7"})
	w.restart()
	w.apply([]policy.Pod{pod("a", "10.1.0.5", "allow"), pod("b", "10.1.0.6", "allow"), pod("c", "10.1.0.7")}, pol("allow", "tcp/80 www.example.org"))
	table := nft.Table{Family: "inet", Name: "router"}
	for _, test := range []struct {
		devices []string
		want    []string
	}{
		{nil, nil}, {[]string{"eth0"}, nil}, {[]string{"eth0", "veth7"}, nil},
		{[]string{"eth0", "veth5"}, []string{"10.1.0.5"}}, {[]string{"veth*"}, []string{"10.1.0.5"}},
		{[]string{"port6"}, []string{"10.1.0.6"}}, {[]string{"br0", "veth5"}, []string{"10.1.0.5", "10.1.0.6"}},
	} {
		w.e.k.Tables.FakeFlowtables(nft.Flowtable{Table: table, Name: "fast", Devices: test.devices})
		var got []string
		of := w.e.Status().Offloading
		for _, a := range slices.SortedFunc(maps.Keys(of), netip.Addr.Compare) {
			if got = append(got, a.String()); of[a] != "inet router fast" {
				t.Errorf("%s is in %q", a, of[a])
			}
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("devices %q: %q, want %q", test.devices, got, test.want)
		}
	}
	fatal.If(t, w.e.Cleanup(context.Background()))
}

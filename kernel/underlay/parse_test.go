package underlay

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/namegate/namegate/kernel/nfattr"
)

// TestTunnelOf has the kinds of tunnels that a kernel of the tests may lack.
func TestTunnelOf(t *testing.T) {
	t.Parallel()
	named := netlink.LinkAttrs{Name: "t0", Index: 7}
	far4, far6 := net.ParseIP("192.0.2.9"), net.ParseIP("2001:db8::9")
	const fou = 1 // TUNNEL_ENCAP_FOU of linux/if_tunnel.h
	for _, c := range []struct {
		link netlink.Link
		want string // protocols/port remote, "chosen"; "" is no tunnel
	}{
		{&netlink.Vxlan{LinkAttrs: named, Port: 8472, Group: far4}, "[17]/8472 192.0.2.9"},
		{&netlink.Vxlan{LinkAttrs: named, Port: 4789, FlowBased: true}, "[17]/4789 - chosen"},
		{&netlink.Vxlan{LinkAttrs: named, Port: 4789, Group: net.ParseIP("239.1.1.1")}, "[17]/4789 239.1.1.1"},
		{&netlink.Geneve{LinkAttrs: named, Dport: 6081, Remote: far6}, "[17]/6081 2001:db8::9"},
		{&netlink.Geneve{LinkAttrs: named, Dport: 6081, FlowBased: true}, "[17]/6081 - chosen"},
		{&netlink.Iptun{LinkAttrs: named, Remote: far4}, "[4]/0 192.0.2.9"},
		{&netlink.Iptun{LinkAttrs: named, Remote: far4, Proto: 137}, "[137]/0 192.0.2.9"},
		{&netlink.Iptun{LinkAttrs: named, Remote: net.IPv4zero}, "[4]/0 -"},
		{&netlink.Iptun{LinkAttrs: named, Remote: far4, EncapType: fou, EncapDport: 5555}, "[17]/5555 192.0.2.9"},
		{&netlink.Sittun{LinkAttrs: named, Remote: far4}, "[41]/0 192.0.2.9"},
		{&netlink.Ip6tnl{LinkAttrs: named, Remote: far6}, "[4 41]/0 2001:db8::9"},
		{&netlink.Ip6tnl{LinkAttrs: named, Remote: far6, Proto: 41}, "[41]/0 2001:db8::9"},
		{&netlink.Gretun{LinkAttrs: named, Remote: far4}, "[47]/0 192.0.2.9"},
		{&netlink.Gretap{LinkAttrs: named, FlowBased: true}, "[47]/0 - chosen"},
		{&netlink.Vti{LinkAttrs: named, Remote: far4}, "[50]/0 192.0.2.9"},
		{&netlink.Wireguard{LinkAttrs: named}, "[17]/0 -"},
		{&netlink.GenericLink{LinkAttrs: named, LinkType: "bareudp"}, "[]/0 - chosen"},
		{&netlink.GenericLink{LinkAttrs: named, LinkType: "nlmon"}, ""},
		{&netlink.Veth{LinkAttrs: named}, ""},
	} {
		got := ""
		if tun, ok := tunnelOf(c.link); ok {
			got = fmt.Sprintf("%v/%d %s", tun.protocols, tun.port, strings.ReplaceAll(tun.remote.String(), "invalid IP", "-"))
			if tun.chosen {
				got += " chosen"
			}
			if tun.index != 7 || tun.name != "t0" || tun.kind != c.link.Type() {
				t.Errorf("%s: %+v", c.link.Type(), tun)
			}
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.link.Type(), got, c.want)
		}
	}
}

// TestGathered: the remote of a device, and the devices whose peers are unknown.
func TestGathered(t *testing.T) {
	t.Parallel()
	g := gathered{peers: map[Peer]bool{}, unknown: map[Unknown]bool{}}
	far := netip.MustParseAddr("192.0.2.9")
	g.device(tunnel{name: "gre1", kind: "gre", protocols: []uint8{47}, remote: far})
	g.device(tunnel{name: "genev_sys_6081", kind: "geneve", protocols: []uint8{17}, port: 6081, chosen: true, up: true})
	g.device(tunnel{name: "bare0", kind: "bareudp", chosen: true, up: true})
	g.device(tunnel{name: "erspan0", kind: "erspan", chosen: true}) // of the module of GRE
	dst, src := net.ParseIP("198.51.100.7"), net.ParseIP("192.0.2.1")
	g.ipsec(netlink.XfrmState{Dst: dst, Src: src, Proto: netlink.XFRM_PROTO_ESP})
	g.ipsec(netlink.XfrmState{Dst: far.AsSlice(), Src: src, Proto: netlink.XFRM_PROTO_ESP, Encap: &netlink.XfrmStateEncap{DstPort: 4500}})
	g.ipsec(netlink.XfrmState{Dst: net.IPv4zero, Src: src, Proto: netlink.XFRM_PROTO_ESP})
	other := netip.MustParseAddr("198.51.100.7")
	want := Tunnels{
		Peers: []Peer{
			{far, 17, 500, "IPsec states"}, {far, 17, 4500, "IPsec states"}, {far, 47, 0, "tunnel gre1"},
			{other, 17, 500, "IPsec states"}, {other, 17, 4500, "IPsec states"}, {other, 50, 0, "IPsec states"},
		},
		Unknown: []Unknown{{"bare0", "bareudp", 0, 0}, {"genev_sys_6081", "geneve", 17, 6081}},
	}
	if d := cmp.Diff(want, g.tunnels(), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); d != "" {
		t.Error(d)
	}
}

// wireguard is a message of WG_CMD_GET_DEVICE with peers that have the given endpoints.
func wireguard(endpoints ...[]byte) []byte {
	b := []byte{unix.WG_CMD_GET_DEVICE, unix.WG_GENL_VERSION, 0, 0}
	b = nfattr.AppendString(b, unix.WGDEVICE_A_IFNAME, "wg0")
	b, all := nfattr.Begin(b, unix.WGDEVICE_A_PEERS)
	for _, e := range endpoints {
		var one int
		b, one = nfattr.Begin(b, 0)
		b = nfattr.Append(b, unix.WGPEER_A_PUBLIC_KEY, make([]byte, 32))
		if e != nil {
			b = nfattr.Append(b, unix.WGPEER_A_ENDPOINT, e)
		}
		nfattr.End(b, one)
	}
	nfattr.End(b, all)
	return b
}

func sockaddr(to string) []byte {
	ap := netip.MustParseAddrPort(to)
	family, length, at := uint16(unix.AF_INET), 16, 4
	if ap.Addr().Is6() {
		family, length, at = unix.AF_INET6, 28, 8
	}
	b := make([]byte, length)
	binary.NativeEndian.PutUint16(b, family)
	binary.BigEndian.PutUint16(b[2:], ap.Port())
	copy(b[at:], ap.Addr().AsSlice())
	return b
}

func TestParseEndpoints(t *testing.T) {
	t.Parallel()
	var got []string
	for _, e := range parseEndpoints(wireguard(sockaddr("198.51.100.4:51820"), nil, sockaddr("[2001:db8::4]:51821"), sockaddr("0.0.0.0:1"), []byte{2})) {
		got = append(got, e.String())
	}
	if want := []string{"198.51.100.4:51820", "[2001:db8::4]:51821"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// FuzzMessages: no message of the kernel, broken or not, ends the agent.
func FuzzMessages(f *testing.F) {
	f.Add(wireguard(sockaddr("198.51.100.4:51820"), sockaddr("[2001:db8::4]:51821")))
	f.Add(append([]byte{unix.AF_BRIDGE, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0}, nfattr.Append(nil, unix.NDA_DST, []byte{192, 0, 2, 1})...))
	f.Fuzz(func(t *testing.T, msg []byte) {
		for _, e := range parseEndpoints(msg) {
			if !e.Addr().IsValid() || e.Addr().IsUnspecified() {
				t.Errorf("%v", e)
			}
		}
		if fdb, ok := parseForwarding(msg); ok && !fdb.to.IsValid() {
			t.Errorf("%+v", fdb)
		}
		if s, ok := parseSocket(msg); ok && !s.remote.IsValid() {
			t.Errorf("%+v", s)
		}
	})
}

// TestConcerns: events of neighbours and of bridge ports are no changes of tunnels.
func TestConcerns(t *testing.T) {
	t.Parallel()
	event := func(typ uint16, family byte, attrs []byte) syscall.NetlinkMessage {
		return syscall.NetlinkMessage{Header: syscall.NlMsghdr{Type: typ}, Data: append([]byte{family, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0}, attrs...)}
	}
	to := nfattr.Append(nil, unix.NDA_DST, []byte{192, 0, 2, 1})
	for name, c := range map[string]struct {
		event syscall.NetlinkMessage
		want  bool
	}{
		"a neighbour":                   {event(unix.RTM_NEWNEIGH, unix.AF_INET, to), false},
		"an address at a bridge port":   {event(unix.RTM_NEWNEIGH, unix.AF_BRIDGE, nil), false},
		"a peer":                        {event(unix.RTM_NEWNEIGH, unix.AF_BRIDGE, to), true},
		"the end of a peer":             {event(unix.RTM_DELNEIGH, unix.AF_BRIDGE, to), true},
		"a route":                       {event(unix.RTM_NEWROUTE, unix.AF_INET, nil), true},
		"the end of a tunnel interface": {event(unix.RTM_DELLINK, unix.AF_UNSPEC, nil), true},
	} {
		if got := concerns([]syscall.NetlinkMessage{c.event}); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

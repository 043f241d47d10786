package enforcer

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/namegate/namegate/kernel/link"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// at tells whether a packet of an address that comes from a place gets past the
// home check, without the nft tables' mark. The check is the same for admitted connections.
func (w *world) at(a, iface, port string) bool {
	got := map[string]bool{}
	for _, conn := range []uint32{0, w.cfg.Mark} {
		p := &packet{Src: addr(a), Dst: addr("192.0.2.1"), Protocol: uint8(policy.TCP), DstPort: 443, Iface: iface, Port: port, State: "ESTABLISHED", Conn: conn}
		got[w.machine(versionOf(p.Src), "mangle").Run("PREROUTING", p)] = true
	}
	if len(got) > 1 {
		w.t.Errorf("%s on %s%s: packets of admitted connections are checked in another way", a, iface, port)
	}
	return got["ACCEPT"] && len(got) == 1
}

func TestAHomeAppearsLater(t *testing.T) {
	t.Parallel()
	for _, home := range []link.Home{{Iface: "veth5"}, {Iface: "br0", Port: "port5"}} {
		w := newWorld(t)
		w.apply([]policy.Pod{pod("web", "10.1.0.5 2001:db8:1::5", "allow")}, pol("allow"))
		if got := w.e.Status().Homeless; len(got) != 2 {
			t.Errorf("homeless %v, want both addresses", got)
		}
		if !w.at("10.1.0.5", "anywhere", "") || w.dials("10.1.0.5", "192.0.2.9", 25) {
			t.Error("without a home the source is not checked, but the pod is denied all the same")
		}
		w.links.SetHome(addr("10.1.0.5"), home)
		w.reconcile()
		if !w.at("10.1.0.5", home.Iface, home.Port) || w.at("10.1.0.5", "anywhere", "") {
			t.Errorf("the home %v is not the only place", home)
		}
		// The pod's other address is on the same interface, whatever the network says of it.
		if !w.at("2001:db8:1::5", home.Iface, home.Port) || w.at("2001:db8:1::5", "anywhere", "") {
			t.Errorf("the home %v is not the only place of the other address", home)
		}
		if got := w.e.Status(); len(got.Homeless) != 0 || got.Repairs != 0 {
			t.Errorf("status %+v", got)
		}
	}
}

func TestSourcesAtAPodsInterface(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.links.SetHome(addr("10.1.0.5"), link.Home{Iface: "veth5"})
	w.links.SetHome(addr("2001:db8:1::5"), link.Home{Iface: "veth5"})
	w.links.SetHome(addr("10.1.0.6"), link.Home{Iface: "br0", Port: "port6"})
	w.apply([]policy.Pod{pod("web", "10.1.0.5 2001:db8:1::5", "allow"), pod("db", "10.1.0.6", "allow")}, pol("allow"))
	tests := []struct {
		src, iface, port string
		want             bool
	}{
		{"10.1.0.5", "veth5", "", true},
		{"10.1.0.9", "veth5", "", false},
		{"10.1.0.6", "veth5", "", false},
		{"127.0.0.1", "veth5", "", false},
		{"10.1.0.6", "br0", "port6", true},
		{"10.1.0.6", "br0", "port7", false},
		{"10.1.0.6", "br0", "", false},
		{"10.1.0.9", "br0", "port6", false},
		{"10.1.0.9", "br0", "port7", true},
		{"10.1.0.9", "eth0", "", true},
		{"2001:db8:1::5", "veth5", "", true},
		{"2001:db8:1::5", "eth0", "", false},
		{"fe80::1", "veth5", "", false},
		{"fe80::1", "eth0", "", true},
	}
	for _, test := range tests {
		diff.Equal(t, test.want, w.at(test.src, test.iface, test.port), test.src, "on", test.iface, test.port)
	}
	discovery := packet{Src: addr("fe80::1"), Dst: addr("ff02::1"), Protocol: 58, ICMP: 135, Iface: "veth5"}
	for src, want := range map[string]string{"fe80::1": "ACCEPT", "::": "ACCEPT", "2001:db8:9::1": "DROP"} {
		p := discovery
		p.Src = addr(src)
		diff.Equal(t, want, w.machine(6, "mangle").Run("PREROUTING", &p), "neighbour discovery from", src)
	}
}

// The nft tables check the homes of interfaces, and mark what they found at home: it is not
// checked again, and has no mark behind the check. Bridge ports they do not see.
func TestMarkedPacketsAreNotCheckedAgain(t *testing.T) {
	t.Parallel()
	for _, bridged := range []bool{false, true} {
		w := newWorld(t)
		home, want := link.Home{Iface: "veth6"}, "ACCEPT"
		if bridged {
			home, want = link.Home{Iface: "br0", Port: "port6"}, "DROP"
		}
		w.links.SetHome(addr("10.1.0.5"), link.Home{Iface: "veth5"})
		w.links.SetHome(addr("10.1.0.6"), home)
		w.apply([]policy.Pod{pod("web", "10.1.0.5", "allow"), pod("db", "10.1.0.6", "allow")}, pol("allow", "tcp/443 www.example.org"))
		for place, want := range map[[2]string]bool{{"10.1.0.5", "veth5"}: true, {"10.1.0.5", "veth9"}: false, {"10.1.0.5", "eth0"}: false,
			{"192.0.2.7", "veth5"}: false, {"192.0.2.7", "veth9"}: true, {"192.0.2.7", "eth0"}: true} {
			diff.Equal(t, want, w.at(place[0], place[1], ""), "bridged", bridged, place, "without a mark")
		}
		for _, conn := range []uint32{0, w.cfg.Mark} {
			for _, state := range []string{"NEW", "ESTABLISHED"} {
				p := &packet{Src: addr("10.1.0.5"), Dst: addr("192.0.2.1"), Protocol: uint8(policy.TCP), DstPort: 443, Iface: "veth9", State: state, Mark: w.cfg.Mark, Conn: conn}
				if got := w.machine(4, "mangle").Run("PREROUTING", p); got != want || want == "ACCEPT" && p.Mark&w.cfg.Mark != 0 {
					t.Errorf("bridged %t, connection mark %#x, %s: %s with the mark %#x, want %s", bridged, conn, state, got, p.Mark, want)
				}
			}
		}
	}
}

// TestLinkLocalAddressesOfTheNode: bridged pods may not claim them.
func TestLinkLocalAddressesOfTheNode(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		home link.Home
		want bool
	}{{link.Home{Iface: "br0", Port: "port5"}, true}, {link.Home{Iface: "veth5"}, false}} {
		w := newWorld(t)
		w.links.SetHome(addr("2001:db8:1::5"), test.home)
		for _, a := range addrs("fe80::1 2001:db8:77::1 169.254.7.7") {
			fatal.If(t, w.links.AddAddr(a))
		}
		w.apply([]policy.Pod{pod("web", "2001:db8:1::5", "allow")}, pol("allow"))
		dump := w.bridge.Dump()
		diff.Equal(t, test.want, strings.Contains(dump, "gateways6 { fe80::1 }"), "home", test.home, "the node's link-local address is guarded", dump)
		diff.Equal(t, test.want, strings.Contains(dump, `claims6 { "port5" . 0x20010db8000100000000000000000005 }`), "home", test.home, "the pod may claim its own address", dump)
		if strings.Contains(dump, "gateways6 { 2001") || strings.Contains(dump, "gateways6 { 169") {
			t.Errorf("home %v: others are guarded too\n%s", test.home, dump)
		}
		fatal.If(t, w.links.AddAddr(addr("fe80::2")))
		fatal.If(t, w.e.resettle(context.Background())) // an event tells of it
		diff.Equal(t, test.want, strings.Contains(w.bridge.Dump(), "gateways6 { fe80::2 }"), "home", test.home, "a new link-local address is guarded")
	}
}

// port is a home on the bridge br0.
func port(name string) link.Home { return link.Home{Iface: "br0", Port: name} }

// finds lets the kernel show, or a bridge hear, an address behind a bridge port.
func (w *world) finds(by link.Evidence, a, at string) {
	w.links.SetFound(addr(a), link.Found{Home: port(at), Evidence: by})
}

// onlyAt asserts where packets of an address are accepted: from one bridge port, or from
// none with "".
func (w *world) onlyAt(when, a, want string) {
	w.t.Helper()
	for _, p := range []string{"port5", "port6", "port9", ""} {
		if got := w.at(a, "br0", p); got != (want != "" && p == want) {
			w.t.Errorf("%s: a packet from %s on port %q is accepted: %v, want its home to be %q", when, a, p, got, want)
		}
	}
	inet, bridge := w.inet.Dump(), w.bridge.Dump()
	for _, d := range []string{inet, bridge} {
		diff.Has(w.t, "homed4 { "+a+" }", d, when, "nft checks where", a, "comes from")
	}
	for _, p := range []string{"port5", "port6", "port9"} {
		diff.Equal(w.t, p == want, strings.Contains(bridge, `home4 { "`+p+`" . `+a+" }"), when, "nft accepts", a, "on", p)
	}
}

// TestBridgePortHasOneOwner has the bridge hear a selected pod's address from the port of a
// pod that no policy selects: nothing is accepted from the address until the kernel
// shows it, or the bridge hears it elsewhere.
func TestBridgePortHasOneOwner(t *testing.T) {
	t.Parallel()
	web, free := pod("web", "10.1.0.5", "allow"), pod("free", "10.1.0.6")
	for name, by := range map[string]link.Evidence{"seen": link.Seen, "heard": link.Heard} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.links.SetHome(addr("10.1.0.99"), port("port5")) // the ports stand whatever is heard
			w.links.SetHome(addr("10.1.0.98"), port("port6"))
			w.links.SetHome(addr("10.1.0.97"), port("port9"))
			w.finds(by, "10.1.0.6", "port6")
			w.apply([]policy.Pod{free}, pol("allow"))
			w.finds(link.Heard, "10.1.0.5", "port6")
			w.apply([]policy.Pod{web, free}, pol("allow"))
			w.onlyAt("heard from the neighbour", "10.1.0.5", "")
			if !w.at("10.1.0.6", "br0", "port6") {
				t.Error("the neighbour lost its port")
			}
			if got := w.e.Status(); !w.e.astray() || len(got.HomeRefused) != 1 || len(got.Homeless) != 0 {
				t.Errorf("the address is not looked for: %+v", got)
			}
			w.reconcile()
			w.onlyAt("still heard from the neighbour", "10.1.0.5", "")
			w.finds(by, "10.1.0.5", "port9")
			w.reconcile()
			w.onlyAt("when it is there", "10.1.0.5", "port9")
			if got := w.e.Status(); w.e.astray() || len(got.HomeRefused)+len(got.Homeless) != 0 {
				t.Errorf("the address has a home and is looked for: %+v", got)
			}
		})
	}
}

func TestASwitchIsSaid(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.links.SetShared(addr("10.1.0.5"), "br-int")
	w.links.SetHome(addr("10.1.0.7"), link.Home{Iface: "veth7"})
	w.links.SetShared(addr("10.1.0.7"), "br-int") // before its route was there
	pods := []policy.Pod{pod("web", "10.1.0.5", "allow"), pod("new", "10.1.0.6", "allow"), pod("db", "10.1.0.7", "allow")}
	w.apply(pods, pol("allow", "tcp/443 www.example.org"))
	s := w.e.Status()
	if !maps.Equal(s.Switched, map[netip.Addr]string{addr("10.1.0.5"): "br-int"}) || !slices.Equal(s.Homeless, []netip.Addr{addr("10.1.0.6")}) {
		t.Errorf("behind a switch %v, without a home %v", s.Switched, s.Homeless)
	}
	w.links.SetHome(addr("10.1.0.5"), link.Home{Iface: "veth5"})
	w.reconcile()
	if s := w.e.Status(); len(s.Switched) > 0 {
		t.Errorf("with a home: behind a switch %v", s.Switched)
	}
}

func TestABlindBridgeIsSaid(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.links.SetHome(addr("10.1.0.5"), link.Home{Iface: "br0", Port: "port5"})
	w.links.SetBlind(true)
	web := pod("web", "10.1.0.5", "allow")
	w.apply([]policy.Pod{web}, pol("allow", "tcp/443 www.example.org"))
	w.clock.Pass(2 * deviationGrace)
	if s := w.e.Status(); len(s.Unseen) != 1 || s.Unseen[0] != addr("10.1.0.5") || len(s.Deviations) != 0 {
		t.Errorf("unseen %v, deviations %v", s.Unseen, s.Deviations)
	}
	// What leaves the bridge has no port that iptables could see.
	w.answer(web, "www.example.org", 60, "192.0.2.1")
	for _, test := range []struct {
		iface string
		port  uint16
		want  bool
	}{{"br0", 443, true}, {"br0", 80, false}, {"eth0", 443, false}} {
		diff.Equal(t, test.want, w.passes(&packet{Src: addr("10.1.0.5"), Dst: addr("192.0.2.1"), Protocol: uint8(policy.TCP), DstPort: test.port, Iface: test.iface}), "a packet to port", test.port, "on", test.iface, "passes")
	}
	w.links.SetBlind(false)
	w.reconcile()
	if got := w.e.Status().Unseen; len(got) != 0 || w.at("10.1.0.5", "br0", "port6") {
		t.Errorf("after netfilter sees again: unseen %v", got)
	}
}

// TestBlindnessToIngressIsSaid: what is said of pods whose connections are judged holds for those to which they are.
func TestBlindnessToIngressIsSaid(t *testing.T) {
	t.Parallel()
	w := newNode(t)
	w.cfg.EnforceNetworkPolicies = true
	w.restart()
	w.links.SetShared(addr("10.1.0.5"), "br-int")
	w.links.SetHome(addr("10.1.0.6"), link.Home{Iface: "br0", Port: "port6"})
	w.links.SetBlind(true)
	in := netpol("in")
	in.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
	fatal.If(t, w.rollOut(w.compiler.Compile(compile.Input{
		Pods: []policy.Pod{pod("a", "10.1.0.5", "in"), pod("b", "10.1.0.6", "in"), pod("c", "10.1.0.7", "in"), pod("d", "10.1.0.8")}, NetworkPolicies: []*networkingv1.NetworkPolicy{in}, EnforceNetworkPolicies: true,
	})))
	s := w.e.Status()
	diff.Equal(t, 1, len(s.Switched), "behind a switch")
	diff.Equal(t, "[10.1.0.6]", fmt.Sprint(s.Unseen), "on a blind bridge")
	diff.Equal(t, "[10.1.0.7]", fmt.Sprint(s.Homeless), "without a home")
	diff.Equal(t, 0, s.Selected, "isolated")
	w.clock.Pass(2 * deviationGrace)
	all := w.e.Deviations()
	if len(all) != 1 || all[0].Object != "networkPolicy.enforce All" || !strings.Contains(all[0].Error, "load br_netfilter and set net.bridge.bridge-nf-call-iptables=1") {
		t.Errorf("it is not as wanted: %+v", all)
	}
	w.links.SetBlind(false)
	w.reconcile()
	diff.Equal(t, 0, len(w.e.Deviations()), "where netfilter sees again")
}

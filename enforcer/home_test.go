package enforcer

import (
	"fmt"
	"strings"
	"testing"

	"github.com/namegate/namegate/enforcer/link"
	"github.com/namegate/namegate/policy"
)

// at tells whether a packet of an address that comes from a place gets past the
// home check.
func (w *world) at(a, iface, port string) bool {
	p := &packet{src: addr(a), dst: addr("192.0.2.1"), proto: policy.TCP, dport: 443, iface: iface, port: port}
	return w.machine(versionOf(p.src), "raw").run("PREROUTING", p) == "ACCEPT"
}

func TestAHomeAppearsLater(t *testing.T) {
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

func TestAHomeThatStandsDoesNotMove(t *testing.T) {
	first, second := link.Home{Iface: "br0", Port: "port5"}, link.Home{Iface: "br0", Port: "port6"}
	w := newWorld(t)
	w.links.SetHome(addr("10.1.0.5"), first)
	w.links.SetHome(addr("10.1.0.99"), first) // the port stands whatever is heard
	pods := []policy.Pod{pod("web", "10.1.0.5", "allow"), pod("bad", "10.1.0.6", "allow")}
	w.apply(pods, pol("allow"))
	w.links.SetHome(addr("10.1.0.5"), second) // the neighbour claims the pod's MAC
	w.reconcile()
	if !w.at("10.1.0.5", "br0", "port5") || w.at("10.1.0.5", "br0", "port6") {
		t.Error("a claimed MAC moved the home at a link change")
	}
	w.apply(pods, pol("allow", "any www.example.org"))
	if !w.at("10.1.0.5", "br0", "port5") || w.at("10.1.0.5", "br0", "port6") {
		t.Error("a claimed MAC moved the home at a policy change")
	}
	w.links.SetHome(addr("10.1.0.99"), link.Home{}) // the port is gone
	w.reconcile()
	if w.at("10.1.0.5", "br0", "port5") || !w.at("10.1.0.5", "br0", "port6") {
		t.Error("the home must follow when its port is gone")
	}
}

func TestAHomeDoesNotOutliveItsPod(t *testing.T) {
	w := newWorld(t)
	w.links.SetHome(addr("10.1.0.5"), link.Home{Iface: "veth5"})
	w.links.SetHome(addr("10.1.0.99"), link.Home{Iface: "veth5"})
	old := pod("web", "10.1.0.5", "allow")
	w.apply([]policy.Pod{old}, pol("allow"))
	heir := old
	heir.UID = "next"
	w.links.SetHome(addr("10.1.0.5"), link.Home{Iface: "veth6"})
	w.apply([]policy.Pod{heir}, pol("allow"))
	if w.at("10.1.0.5", "veth5", "") || !w.at("10.1.0.5", "veth6", "") {
		t.Error("the next pod of the address must have its own home")
	}
	w.apply(nil)
	if !w.at("10.1.0.5", "anywhere", "") || strings.Contains(w.inet.Dump(), "veth") {
		t.Error("a home is left of a pod that is gone")
	}
}

func TestWhatComesFromAPodsInterface(t *testing.T) {
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
		if got := w.at(test.src, test.iface, test.port); got != test.want {
			t.Errorf("%s on %s%s: %v", test.src, test.iface, test.port, got)
		}
	}
	discovery := packet{src: addr("fe80::1"), dst: addr("ff02::1"), proto: 58, icmp: 135, iface: "veth5"}
	for src, want := range map[string]string{"fe80::1": "ACCEPT", "::": "ACCEPT", "2001:db8:9::1": "DROP"} {
		p := discovery
		p.src = addr(src)
		if got := w.machine(6, "raw").run("PREROUTING", &p); got != want {
			t.Errorf("neighbour discovery from %s: %s", src, got)
		}
	}
}

func TestRoutedAndBridgedPodsOnOneNode(t *testing.T) {
	w := newWorld(t)
	var pods []policy.Pod
	for i := range 20 {
		a := fmt.Sprintf("10.1.0.%d", i+1)
		pods = append(pods, pod(fmt.Sprint("p", i), a, "allow"))
		h := link.Home{Iface: fmt.Sprintf("veth%02d", i)}
		if i%2 == 0 {
			h = link.Home{Iface: "br0", Port: fmt.Sprintf("port%02d", i)}
		}
		w.links.SetHome(addr(a), h)
	}
	w.apply(pods, pol("allow"))
	for i := range 20 {
		p := packet{src: addr("10.9.9.9"), iface: "br0", port: fmt.Sprintf("port%02d", i)}
		if i%2 == 1 {
			p.iface, p.port = fmt.Sprintf("veth%02d", i), ""
		}
		if w.at("10.9.9.9", p.iface, p.port) {
			t.Errorf("a forged source passes on %s %s", p.iface, p.port)
		}
	}
}

// TestTheNodesLinkLocalAddressesAreItsOwn: bridged pods may not claim them.
func TestTheNodesLinkLocalAddressesAreItsOwn(t *testing.T) {
	for _, test := range []struct {
		home link.Home
		want bool
	}{{link.Home{Iface: "br0", Port: "port5"}, true}, {link.Home{Iface: "veth5"}, false}} {
		w := newWorld(t)
		w.links.SetHome(addr("2001:db8:1::5"), test.home)
		for _, a := range addrs("fe80::1 2001:db8:77::1 169.254.7.7") {
			if err := w.links.AddAddr(a); err != nil {
				t.Fatal(err)
			}
		}
		w.apply([]policy.Pod{pod("web", "2001:db8:1::5", "allow")}, pol("allow"))
		dump := w.bridge.Dump()
		if got := strings.Contains(dump, "gateways6 { fe80::1 }"); got != test.want {
			t.Errorf("home %v: the node's link-local address is guarded: %v\n%s", test.home, got, dump)
		}
		if got := strings.Contains(dump, `claims6 { "port5" . 0x20010db8000100000000000000000005 }`); got != test.want {
			t.Errorf("home %v: the pod may claim its own address: %v\n%s", test.home, got, dump)
		}
		if strings.Contains(dump, "gateways6 { 2001") || strings.Contains(dump, "gateways6 { 169") {
			t.Errorf("home %v: others are guarded too\n%s", test.home, dump)
		}
	}
}

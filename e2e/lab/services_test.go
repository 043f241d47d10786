package lab

import (
	"net/netip"
	"os"
	"testing"

	"github.com/namegate/namegate/testkit/fatal"
)

// TestServices: a node leads Services to pods of either node, a pod to itself too, and
// those alone that it was given last.
func TestServices(t *testing.T) {
	if os.Getuid() != 0 {
		t.Fatal("the lab makes network namespaces: run it as root")
	}
	for _, network := range []Network{Routed, Bridged} {
		t.Run(string(network), func(t *testing.T) {
			l, err := New(network)
			fatal.If(t, err)
			t.Cleanup(func() {
				if err := l.Remove(); err != nil {
					t.Error(err)
				}
			})
			web, errWeb := l.AddPod("web", 5)
			far, errFar := l.AddRemotePod("far-web", 5)
			if errWeb != nil || errFar != nil {
				t.Fatal(errWeb, errFar)
			}
			fatal.If(t, l.Ready())
			for _, p := range []*Pod{web, far} {
				o, err := p.Serve(8080)
				fatal.If(t, err)
				t.Cleanup(o.Close)
			}
			at := func(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 96, 0, byte(n)}) }
			service := func(n int, to ...netip.Addr) Service {
				s := Service{Addr: at(n), Protocol: "tcp", Port: 80}
				for _, a := range to {
					s.To = append(s.To, netip.AddrPortFrom(a, 8080))
				}
				return s
			}
			six := Service{Addr: netip.MustParseAddr("fd00:96::1"), Protocol: "udp", Port: 80, To: []netip.AddrPort{netip.AddrPortFrom(far.Addr6, 8080)}}
			fatal.If(t, l.SetServices(service(1, web.Addr4), service(2, far.Addr4, web.Addr4), six))
			dial := func(network string, to netip.Addr, want Outcome) {
				t.Helper()
				if got := web.ProbeFor(network, netip.AddrPortFrom(to, 80), PatienceFor(want)); got != want {
					t.Errorf("%s to %s: %s, want %s", network, to, got, want)
				}
			}
			dial("tcp", at(1), Answered)
			for range 8 {
				dial("tcp", at(2), Answered)
			}
			dial("tcp", at(3), Silent)
			dial("udp", six.Addr, Answered)
			fatal.If(t, l.SetServices(service(1, far.Addr4)))
			dial("tcp", at(1), Answered)
			if got := web.Probe("udp", netip.AddrPortFrom(six.Addr, 80)); got == Answered {
				t.Error("a Service that was taken away answers")
			}
		})
	}
}

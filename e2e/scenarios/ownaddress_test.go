package scenarios

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestOwnAddressLedElsewhere: a Service claims a pod's own address by spec.externalIPs and leads it
// elsewhere. A pod that NetworkPolicies isolate, or a rule of a tier denies everything, reaches by its own
// address itself alone.
func TestOwnAddressLedElsewhere(t *testing.T) {
	staged(t, onRouted, newForgeStage, func(t *testing.T, f *forgeStage) {
		a, b := f.Pod("a"), f.Pod("b")
		own := f.sniff(a.Host, "eth0")
		families := []struct{ own, outside, neighbour netip.Addr }{
			{a.Addr4, netip.MustParseAddr("198.51.100.66"), b.Addr4},
			{a.Addr6, netip.MustParseAddr("2001:db8:1::66"), b.Addr6},
		}
		var services []lab.Service
		for _, of := range families {
			services = append(services,
				lab.Service{Addr: of.own, Protocol: "tcp", Port: forgedTo, To: []netip.AddrPort{netip.AddrPortFrom(of.outside, 443)}},
				lab.Service{Addr: of.own, Protocol: "udp", Port: forgedTo, To: []netip.AddrPort{netip.AddrPortFrom(of.neighbour, 443)}})
		}
		fatal.If(t, f.SetServices(services...))
		for _, under := range []string{"an FQDNNetworkPolicy", "an Admin rule that denies everything"} {
			if under != "an FQDNNetworkPolicy" {
				f.apply(map[string]string{"deny.yaml": "apiVersion: namegate.io/v1alpha1\nkind: ClusterFQDNNetworkPolicy\nmetadata: {name: deny}\nspec: {tier: Admin, priority: 1, subject: {pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: client}}}}, egress: [{action: Deny}]}\n"})
				f.eventually("a", "198.51.100.3:80", lab.Refused)
			}
			var all []sent
			for _, of := range families {
				w := f.way(of.own, of.own)
				f.send("a", w, w.packet(6, w.tcp(lab.SYN)))
				all = append(all, sent{fmt.Sprintf("a SYN to %s under %s", of.own, under), w, false})
				w = f.way(of.own, of.own)
				f.send("a", w, w.packet(17, w.udp()))
				all = append(all, sent{fmt.Sprintf("UDP to %s under %s", of.own, under), w, false})
				w = f.way(of.own, of.own)
				for until := time.Now().Add(lab.Limit); own.SawToken(w.token()) == 0; time.Sleep(2 * time.Millisecond) {
					if time.Now().After(until) {
						t.Errorf("the pod does not reach itself by %s under %s", of.own, under)
						break
					}
					f.send("a", w, w.packet(17, lab.UDP(w.from(w.own()), w.to(forgedTo+1), w.token())))
				}
			}
			f.judge(all)
		}
	})
}

package scenarios

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

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

// TestClaimedRegistry: a tenant's Service claims the address of a registry that a neighbour uses, by
// spec.externalIPs. The neighbour's answers have the address, and its connections go on; status names the Service.
func TestClaimedRegistry(t *testing.T) {
	t.Parallel()
	eachDataplane(t, lab.Routed, func(t *testing.T, kind nodeKind) {
		s := newStageOf(t, kind)
		const at = "203.0.113.10:6443"
		api := serveAPI(t, s.World, at)
		api.set(t, "fqdnnetworkpolicies", policy("registry", "podSelector: {matchLabels: {app: a}}\negress:\n- matches: [{pattern: '*.registry.test'}]"))
		s.zone.add("a.registry.test. 60 IN A 198.51.100.1\nb.registry.test. 60 IN A 198.51.100.1\nb.registry.test. 60 IN AAAA 2001:db8:1::1")
		s.startOnAPI(kind, api, at, corefile, "a")
		s.resolve("a", "a.registry.test", dns.TypeA)
		before := s.line("a", "tcp", netip.MustParseAddr("198.51.100.1"))

		api.set(t, "services", "metadata: {namespace: evil, name: thief}\nspec: {type: ClusterIP, clusterIP: 10.96.0.9, externalIPs: [198.51.100.1, '2001:db8:1::1'], ports: [{port: 443, protocol: TCP}]}\n")
		fatal.If(t, s.agent.WaitFor("the finding", func(got lab.Status) bool {
			for _, p := range got.Problems {
				if p.Reason == "ExternalIPs" && p.Object == "namespace evil" && strings.Contains(p.Message, "thief 198.51.100.1, thief 2001:db8:1::1") {
					return true
				}
			}
			return false
		}))
		s.goesOn("after the claim", before)
		for qtype, to := range map[uint16]string{dns.TypeA: "198.51.100.1:443", dns.TypeAAAA: "[2001:db8:1::1]:443"} {
			if got := s.resolve("a", "b.registry.test", qtype); len(got) != 1 {
				t.Errorf("b.registry.test has %v", got)
			}
			s.expect("a", "tcp", to, lab.Answered)
		}
	})
}

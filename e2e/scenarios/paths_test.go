package scenarios

import (
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestPointedAtTheEndpoint is a pod whose resolv.conf names the endpoint itself,
// selected or not, with an agent and without one.
func TestPointedAtTheEndpoint(t *testing.T) {
	staged(t, onEach, newStageOf, func(t *testing.T, s *stage) {
		s.zone.add(`
			www.example.org. 60 IN A 198.51.100.1
			other.example.org. 60 IN A 198.51.100.2`)
		s.start(map[string]string{
			"a.yaml": s.Pod("a").Manifest("shop", "a", map[string]string{"app": "client"}),
			"b.yaml": s.Pod("b").Manifest("shop", "b", nil),
			"p.yaml": policy("www", refuseOthers),
		})
		var selected, free []*client
		for _, endpoint := range []string{"169.254.20.53", "fd5c:7a1e:93b4::53"} {
			a := netip.MustParseAddr(endpoint)
			selected, free = append(selected, s.client("a", a)), append(free, s.client("b", a))
		}
		for i := range selected {
			selected[i].becomes("a selected pod asks the endpoint", dns.RcodeRefused)
			free[i].becomes("an unselected pod asks the endpoint", dns.RcodeSuccess)
		}
		c, err := s.Pod("a").Dial("tcp", "169.254.20.53:53", lab.Limit)
		fatal.If(t, err)
		defer c.Close()
		if r, err := lab.Exchange(c, "www.example.org", dns.TypeA, lab.Limit); err != nil || len(lab.Addresses(r)) != 1 {
			t.Errorf("the endpoint over TCP: %v, %v", r, err)
		}
		fatal.If(t, s.agent.Stop(syscall.SIGKILL))
		for i := range selected {
			selected[i].becomes("a selected pod asks the endpoint of a dead agent", dns.RcodeSuccess)
			free[i].becomes("an unselected pod asks the endpoint of a dead agent", dns.RcodeSuccess)
		}
		fatal.If(t, s.agent.Start())
		for i := range selected {
			selected[i].becomes("with the next agent", dns.RcodeRefused)
			free[i].becomes("with the next agent", dns.RcodeSuccess)
		}
	})
}

// TestFailClosed turns the fallback off: without an agent a selected pod has no DNS.
func TestFailClosed(t *testing.T) {
	staged(t, onRouted, newStageOf, func(t *testing.T, s *stage) {
		s.zone.add(`other.example.org. 60 IN A 198.51.100.2`)
		s.agentWith(strings.Replace(corefile, "audit AUDIT", "audit AUDIT\n    failclosed", 1))
		s.start(map[string]string{
			"a.yaml": s.Pod("a").Manifest("shop", "a", map[string]string{"app": "client"}),
			"b.yaml": s.Pod("b").Manifest("shop", "b", nil),
			"p.yaml": policy("www", refuseOthers),
		})
		a, b := s.client("a", lab.Resolver4), s.client("b", lab.Resolver4)
		a.becomes("with an agent", dns.RcodeRefused)
		fatal.If(t, s.agent.Stop(syscall.SIGKILL))
		for until := time.Now().Add(switchTime); time.Now().Before(until); {
			if got := a.rcode(300 * time.Millisecond); got == dns.RcodeSuccess {
				t.Fatal("the resolver answered a selected pod though the agent is dead and failclosed is set")
			}
			time.Sleep(100 * time.Millisecond)
		}
		b.becomes("an unselected pod without an agent", dns.RcodeSuccess)
	})
}

// TestManyPods has enough pods that dispatch branches, and asserts that each pod reaches
// its own destinations and not the next pod's.
func TestManyPods(t *testing.T) {
	t.Parallel()
	eachDataplane(t, lab.Routed, func(t *testing.T, kind nodeKind) {
		const pods = 40
		s := newStageOf(t, kind)
		files := map[string]string{}
		for i := range pods {
			name := fmt.Sprintf("p%d", i)
			p := s.addPod(name, 100+i)
			s.zone.add(fmt.Sprintf("only.%s.test. 60 IN A 198.51.100.%d\nonly.%s.test. 60 IN AAAA 2001:db8:5::%x", name, 100+i, name, 100+i))
			files[name+".yaml"] = p.Manifest("shop", name, map[string]string{"app": name}) + "---\n" + policy(name, `
podSelector: {matchLabels: {app: `+name+`}}
egress:
- matches: [{pattern: "only.`+name+`.test"}]
  ports: [{protocol: TCP, port: 80}]`)
		}
		s.start(files)
		for i := range pods {
			name := fmt.Sprintf("p%d", i)
			s.resolve(name, "only."+name+".test", dns.TypeA)
			s.resolve(name, "only."+name+".test", dns.TypeAAAA)
		}
		for i := range pods {
			name := fmt.Sprintf("p%d", i)
			s.expect(name, "tcp", fmt.Sprintf("198.51.100.%d:80", 100+i), lab.Answered)
			s.expect(name, "tcp", fmt.Sprintf("[2001:db8:5::%x]:80", 100+i), lab.Answered)
			next := 100 + (i+1)%pods
			s.expect(name, "tcp", fmt.Sprintf("198.51.100.%d:80", next), lab.Refused)
			s.expect(name, "tcp", fmt.Sprintf("[2001:db8:5::%x]:80", next), lab.Refused)
		}
	})
}

// secondNetHolds takes the first net away and asserts that an address stays denied,
// in silence, as the second denies: the agent may be faster than the probe, and the
// first net refuse it again.
func (s *stage) secondNetHolds(to string) {
	s.t.Helper()
	for range 20 {
		run(s.t, s.Node, "nft", "delete", "table", "inet", "namegate")
		switch got := s.Pod("a").Probe("tcp", netip.MustParseAddrPort(to)); got {
		case lab.Silent:
			return
		case lab.Answered:
			s.t.Fatalf("%s answers though the second net is there", to)
		}
		s.eventually("a", to, lab.Refused)
	}
	s.t.Error("the first net was always back before the probe: the second was not tried")
}

// TestUnseenBridge turns off what hands bridged packets to netfilter: the agent
// cannot enforce between a bridge's pods then, and says so; what leaves the
// bridge is judged all the same.
func TestUnseenBridge(t *testing.T) {
	staged(t, onBridged, newStageOf, func(t *testing.T, s *stage) {
		s.zone.add(`www.example.org. 60 IN A 198.51.100.1`)
		fatal.If(t, s.Node.Sysctl("net.bridge.bridge-nf-call-iptables=0"))
		s.start(map[string]string{
			"a.yaml": s.Pod("a").Manifest("shop", "a", nil),
			"p.yaml": policy("www", strings.Replace(allowWWW, "{matchLabels: {app: client}}", "{}", 1)),
		})
		fatal.If(t, s.agent.WaitFor("the blind spot", func(st lab.Status) bool { return len(st.Enforcer.Unseen) == 2 }))
		diff.Has(t, "load br_netfilter", s.agent.Log(), "the log does not say so")
		judged := func() {
			t.Helper()
			s.resolve("a", "www.example.org", dns.TypeA)
			s.expect("a", "tcp", "198.51.100.1:80", lab.Answered)
			s.expect("a", "tcp", "198.51.100.2:80", lab.Refused)
		}
		judged()
		fatal.If(t, s.Node.Sysctl("net.bridge.bridge-nf-call-iptables=1"))
		fatal.If(t, s.agent.WaitFor("sight", func(st lab.Status) bool { return len(st.Enforcer.Unseen) == 0 }))
		judged()
	})
}

// TestNodeWithoutIPv6 serves and enforces IPv4 where IPv6 is switched off.
func TestNodeWithoutIPv6(t *testing.T) {
	staged(t, onRouted, newStageOf, func(t *testing.T, s *stage) {
		s.zone.add(`www.example.org. 60 IN A 198.51.100.1`)
		fatal.If(t, s.Ready())
		fatal.If(t, s.Node.Sysctl("net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.lo.disable_ipv6=1"))
		s.startNow(map[string]string{
			"a.yaml": s.Pod("a").Manifest("shop", "a", map[string]string{"app": "client"}),
			"p.yaml": policy("www", allowWWW),
		})
		s.resolve("a", "www.example.org", dns.TypeA)
		s.expect("a", "tcp", "198.51.100.1:80", lab.Answered)
		s.expect("a", "tcp", "198.51.100.2:80", lab.Refused)
	})
}

// TestOpenVSwitch: pods are ports of a switch of Open vSwitch, and netfilter sees only packets
// that leave it. Policies are enforced on these, connections between pods are not judged, and
// the agent says that in its log, its status, explain and the metrics.
func TestOpenVSwitch(t *testing.T) {
	t.Parallel()
	eachDataplane(t, lab.Switched, func(t *testing.T, kind nodeKind) {
		s := newStageOf(t, kind)
		s.zone.add(`www.example.org. 600 IN A 198.51.100.1`)
		s.zone.add(`www.example.org. 600 IN AAAA 2001:db8:51::1`)
		s.serve(s.Pod("b").Host, 80)
		s.startClient(policy("www", allowWWW))

		// Outside the switch: names open their addresses, and nothing else is reached.
		for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA} {
			if got := s.resolve("a", "www.example.org", qtype); len(got) != 1 {
				t.Fatalf("answer %v", got)
			}
		}
		s.both("a", "tcp", "198.51.100.1", "2001:db8:51::1", 80, lab.Answered)
		s.both("a", "tcp", "198.51.100.1", "2001:db8:51::1", 81, lab.Refused)
		s.both("a", "tcp", "198.51.100.2", "2001:db8:51::2", 80, lab.Refused)
		s.both("a", "udp", "198.51.100.2", "2001:db8:51::2", 80, lab.Refused)
		// Inside it: no rule allows the pod b, and it is reached.
		s.both("a", "tcp", s.Pod("b").Addr4.String(), s.Pod("b").Addr6.String(), 80, lab.Answered)

		says := "a switch that netfilter does not see"
		for _, a := range []string{s.Pod("a").Addr4.String(), s.Pod("a").Addr6.String()} {
			s.says(0, "half enforced|"+a+": "+says+" connects it; only what leaves the switch by br0 is judged", "status")
		}
		s.says(0, says+"|Open vSwitch|by the interface br0", "explain", "shop/a", "www.example.org:80")
	})
}

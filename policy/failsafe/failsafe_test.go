package failsafe_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/failsafe"
)

func TestText(t *testing.T) {
	of := func(host string, ports policy.PortRange) failsafe.Entry {
		target := failsafe.Target{Ports: ports, Reason: "API server", Source: "kubelet's kubeconfig /etc/kubernetes/kubelet.conf"}
		if p, err := netip.ParsePrefix(host); err == nil {
			e := target.At(p.Addr())
			e.Prefix = p
			return e
		}
		return target.At(netip.MustParseAddr(host))
	}
	const rest = ": API server (kubelet's kubeconfig /etc/kubernetes/kubelet.conf)"
	gone, yields := of("10.0.0.1", failsafe.Port(policy.TCP, 6443)), of("10.244.0.0/16", failsafe.AllPorts(policy.AnyProtocol))
	gone.Gone, yields.Yields = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), true
	for _, c := range []struct {
		e    failsafe.Entry
		want string
	}{
		{of("10.0.0.1", failsafe.Port(policy.TCP, 6443)), "failsafe TCP 10.0.0.1:6443" + rest},
		{of("::ffff:10.0.0.1", failsafe.Port(policy.TCP, 6443)), "failsafe TCP 10.0.0.1:6443" + rest},
		{of("2001:db8::1", failsafe.Port(policy.UDP, 8472)), "failsafe UDP [2001:db8::1]:8472" + rest},
		{of("2001:db8::1", failsafe.AllPorts(failsafe.GRE)), "failsafe GRE 2001:db8::1" + rest},
		{of("192.0.2.0/24", policy.PortRange{Protocol: policy.UDP, First: 3784, Last: 3785}), "failsafe UDP 192.0.2.0/24:3784-3785" + rest},
		{of("192.0.2.1", failsafe.AllPorts(99)), "failsafe protocol 99 192.0.2.1" + rest},
		{gone, "failsafe TCP 10.0.0.1:6443" + rest + " [not listed since 2026-01-02T03:04:05Z]"},
		{yields, "failsafe every protocol 10.244.0.0/16" + rest + " [unless a policy names it]"},
	} {
		if got := c.e.String(); got != c.want {
			t.Errorf("%s\nwant %s", got, c.want)
		}
	}
}

// TestFixed: each entry without a destination has an expression, the text of every entry is
// its own, and no entry opens ports to every address without a condition.
func TestFixed(t *testing.T) {
	seen := map[string]bool{}
	for _, e := range failsafe.Fixed() {
		text := e.String()
		if seen[text] || strings.Contains(text, "  ") {
			t.Errorf("%q", text)
		}
		seen[text] = true
		if (!e.Prefix.IsValid() || e.Prefix.Bits() == 0) && e.Match == "" {
			t.Errorf("%s opens everything", text)
		}
		if e.Prefix.IsValid() && e.Prefix != e.Prefix.Masked() {
			t.Errorf("%s is not masked", text)
		}
	}
	for _, want := range []string{
		"failsafe every protocol oifname lo: loopback (every node)",
		"failsafe ICMPv6 icmpv6 type 133-137: neighbour discovery (every node)",
		"failsafe IGMP 224.0.0.0/4: multicast group membership (every node)",
		"failsafe UDP 0.0.0.0/0 udp sport 68 udp dport 67: DHCP (every node)",
	} {
		if !seen[want] {
			t.Errorf("no %q", want)
		}
	}
}

func TestComplete(t *testing.T) {
	var l failsafe.List
	if !l.Complete() {
		t.Error("a list without findings is not complete")
	}
	l.Findings = []failsafe.Finding{{Failed: true, Stale: true}}
	if !l.Complete() {
		t.Error("an outage makes the list incomplete")
	}
	l.Findings = append(l.Findings, failsafe.Finding{Failed: true})
	if l.Complete() {
		t.Error("a source that was never read does not count")
	}
}

func TestCompareIsAnOrderOfAllFields(t *testing.T) {
	a := failsafe.Target{Ports: failsafe.Port(policy.TCP, 1), Reason: "a", Source: "a"}
	base := a.At(netip.MustParseAddr("192.0.2.1"))
	for name, change := range map[string]func(*failsafe.Entry){
		"reason": func(e *failsafe.Entry) { e.Reason = "b" },
		"source": func(e *failsafe.Entry) { e.Source = "b" },
		"prefix": func(e *failsafe.Entry) { e.Prefix = netip.MustParsePrefix("192.0.2.1/31") },
		"port":   func(e *failsafe.Entry) { e.Ports.Last = 2 },
		"match":  func(e *failsafe.Entry) { e.Match = "x" },
		"gone":   func(e *failsafe.Entry) { e.Gone = time.Unix(1, 0) },
	} {
		other := base
		change(&other)
		if x, y := failsafe.Compare(base, other), failsafe.Compare(other, base); x == 0 || x != -y {
			t.Errorf("%s: %d and %d", name, x, y)
		}
	}
	if !slices.IsSortedFunc([]failsafe.Entry{base, base}, failsafe.Compare) {
		t.Error("an entry differs from itself")
	}
}

package scenarios

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/diff"
)

// The addresses of the names in the test of cuts, as the last part of 198.51.100.N and
// 2001:db8:1::N. Both names of shared have one address.
var cutNames = map[string]int{"gone": 10, "kept": 11, "one-shared": 12, "two-shared": 12, "short": 13, "steady": 1}

// cutRules are rules of other programs on the node, by their name: source NAT, and as Felix has
// it, established packets that leave mangle at its top.
var cutRules = map[string]string{
	"as it is": "", "masqueraded": "-t nat -A POSTROUTING -o out0 -j MASQUERADE",
	"beside Felix": "-t mangle -I PREROUTING -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
}

// cutStage is a stage with the names of cutNames, and perhaps a rule of another program.
func cutStage(t *testing.T, kind nodeKind, rule string) *stage {
	t.Helper()
	s := newStageOf(t, kind)
	for name, n := range cutNames {
		s.zone.add(fmt.Sprintf("%s.example.org. 60 IN A 198.51.100.%d\n%s.example.org. 60 IN AAAA 2001:db8:1::%x", name, n, name, n))
	}
	if rule != "" {
		s.xtables(rule)
	}
	return s
}

// asksFor has a pod resolve names in both families.
func (s *stage) asksFor(pod string, names ...string) {
	s.t.Helper()
	for _, name := range names {
		for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA} {
			diff.MustEqual(s.t, 1, len(s.resolve(pod, name+".example.org", qtype)), "addresses of", name)
		}
	}
}

// everyWay opens lines from a pod to the address of a name, TCP and UDP, over both
// families.
func (s *stage) everyWay(pod, name string) []*line {
	s.t.Helper()
	var out []*line
	for _, network := range []string{"tcp", "udp"} {
		for _, form := range []string{"198.51.100.%d", "2001:db8:1::%x"} {
			out = append(out, s.line(pod, network, netip.MustParseAddr(fmt.Sprintf(form, cutNames[name]))))
		}
	}
	return out
}

var (
	steadyAllowed = []string{"198.51.100.1:80", "[2001:db8:1::1]:80"}
	steadyDenied  = []string{"198.51.100.2:80", "[2001:db8:1::2]:80"}
)

func onEachCut(t *testing.T, f func(t *testing.T, s *stage)) {
	eachDataplane(t, lab.Routed, func(t *testing.T, kind nodeKind) {
		for name, rule := range cutRules {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				f(t, cutStage(t, kind, rule))
			})
		}
	})
}

// TestCutOnRevocation removes a policy: connections that only it allowed end, whichever
// side sends next, and no others.
func TestCutOnRevocation(t *testing.T) {
	t.Parallel()
	onEachCut(t, func(t *testing.T, s *stage) {
		s.start(map[string]string{
			"a.yaml":     s.Pod("a").Manifest("shop", "a", map[string]string{"app": "client"}),
			"b.yaml":     s.Pod("b").Manifest("shop", "b", map[string]string{"app": "other"}),
			"gone.yaml":  allowNames("gone", "client", "gone", "one-shared"),
			"kept.yaml":  allowNames("kept", "client", "kept", "two-shared", "steady"),
			"b-too.yaml": allowNames("other", "other", "gone"),
			"short.yaml": policy("short", `
podSelector: {matchLabels: {app: client}}
ttl: {minSeconds: 1, maxSeconds: 1, graceSeconds: 1, inUse: Expire}
egress:
- matches: [{pattern: "sh*t.example.org"}]`),
		})
		s.asksFor("a", "gone", "kept", "one-shared", "two-shared", "short", "steady")
		s.asksFor("b", "gone")
		ended := s.everyWay("a", "short")
		serverFirst, podFirst := s.everyWay("a", "gone"), s.everyWay("a", "gone")
		others := append(s.everyWay("a", "kept"), s.everyWay("a", "two-shared")...)
		others = append(others, s.everyWay("b", "gone")...)
		s.eventually("a", "198.51.100.13:80", lab.Refused)
		s.eventually("a", "[2001:db8:1::d]:80", lab.Refused)
		others = append(others, ended...)
		defer s.vigil("a", steadyAllowed, steadyDenied)("revocation")
		s.goesOn("after the end of a grant", others...)

		s.apply(map[string]string{"gone.yaml": ""})
		s.serverNext("after the policy was taken back", serverFirst, others)
		s.podNext("after the policy was taken back", podFirst, others)
		s.expect("a", "tcp", "198.51.100.10:80", lab.Refused)
		s.expect("b", "tcp", "198.51.100.10:80", lab.Answered)
	})
}

// TestCutOnSelection has a pod become selected that has connections open.
func TestCutOnSelection(t *testing.T) {
	t.Parallel()
	onEachCut(t, func(t *testing.T, s *stage) {
		s.addPod("free", 7)
		s.start(map[string]string{
			"a.yaml":     s.Pod("a").Manifest("shop", "a", map[string]string{"app": "client"}),
			"free.yaml":  s.Pod("free").Manifest("shop", "free", nil),
			"b.yaml":     s.Pod("b").Manifest("shop", "b", map[string]string{"app": "other"}),
			"b-too.yaml": allowNames("other", "other", "gone", "steady"),
		})
		s.asksFor("b", "gone", "steady")
		serverFirst, podFirst := s.everyWay("a", "gone"), s.everyWay("a", "gone")
		others := append(s.everyWay("a", "kept"), s.everyWay("b", "gone")...)
		others = append(others, s.everyWay("free", "gone")...)
		defer s.vigil("b", steadyAllowed, steadyDenied)("another pod's selection")
		defer s.vigil("a", steadyAllowed, nil)("selection")

		s.apply(map[string]string{"p.yaml": allowNames("kept", "client", "kept", "steady")})
		defer s.vigil("a", nil, steadyDenied)("after selection")
		s.serverNext("after the pod was selected", serverFirst, others)
		s.podNext("after the pod was selected", podFirst, others)
		s.expect("a", "tcp", "198.51.100.10:80", lab.Refused)
	})
}

// allowNames is a policy that lets the pods of an app reach names, on every port.
func allowNames(name, app string, names ...string) string {
	spec := "podSelector: {matchLabels: {app: " + app + "}}\negress:"
	for _, n := range names {
		spec += "\n- matches: [{name: " + n + ".example.org}]"
	}
	return policy(name, spec)
}

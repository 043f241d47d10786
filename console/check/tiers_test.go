package check

import (
	"slices"
	"testing"

	"github.com/namegate/namegate/e2e/fatal"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/policy/fqdn"
)

// TestAskInOrder: beside rules of cluster policies an answer has all that may match, in
// the order in which they are asked, with the one that decides.
func TestAskInOrder(t *testing.T) {
	pattern, err := fqdn.ParsePattern("*.cdn.test")
	fatal.If(t, err)
	smtp := &policy.Rule{Tier: policy.Admin, Action: policy.Deny, Peer: policy.Peer{Kind: policy.PeerNames}, Ports: "tcp/25", Policy: "no-smtp", Path: "spec.egress[0]"}
	smtp.Matches = []*policy.Match{policy.NewMatch(policy.Match{Policy: "no-smtp", Path: "spec.egress[0].matches[0]", Pattern: pattern, Ports: "tcp/25", Rule: smtp}, 0)}
	pattern, err = fqdn.ParsePattern("evil.test")
	fatal.If(t, err)
	evil := &policy.Rule{Tier: policy.Admin, Action: policy.Deny, Peer: policy.Peer{Kind: policy.PeerNames}, Ports: policy.AnyPort, Policy: "no-evil", Path: "spec.egress[1]", DNSDenied: policy.Refuse}
	evil.Matches = []*policy.Match{policy.NewMatch(policy.Match{Policy: "no-evil", Path: "spec.egress[1].matches[0]", Pattern: pattern, Ports: policy.AnyPort, Rule: evil}, 0)}
	ntp := &policy.Rule{Tier: policy.Admin, Ports: "udp/123", Policy: "ntp", Path: "spec.egress[2]"}
	nets := &policy.Rule{Tier: policy.Admin, Action: policy.Deny, Peer: policy.Peer{Kind: policy.PeerNetworks, Key: "192.0.2.0/24"}, Ports: policy.AnyPort, Policy: "no-nets", Path: "spec.egress[3]"}

	m := shop(t)
	pod := m.PodsNamed("shop", "cart")[0]
	in := m.input()
	in.Pods = []policy.Pod{pod.Pod}
	snap := compile.New().Compile(in)
	view := *snap.ViewOf(pod.PodRef)
	view.Rules = slices.Concat([]*policy.Rule{smtp, evil, ntp, nets}, view.Rules)
	view.Index = policy.NewIndex(view.Rules, 10)
	const smtpStep, maybe = "Admin Deny by no-smtp (spec.egress[0]) to names, on tcp/25", "Admin Deny by no-nets (spec.egress[3]) to 192.0.2.0/24, on any"
	const off, ntpOff = ", not on this port", "Admin Accept by ntp (spec.egress[2]) to everywhere, on udp/123, not on this port"
	const cdn = "Namespace Accept by shop/allow-out (spec.egress[0]) to names, on tcp/443"
	for to, want := range map[string]string{
		"a.cdn.test:25":      "x to a.cdn.test:25/tcp: denied: Admin policy no-smtp spec.egress[0] denies it; 1. " + smtpStep + ": decides; 2. " + ntpOff + "; 3. " + maybe + "; 4. " + cdn + off,
		"a.cdn.test:443":     "x to a.cdn.test:443/tcp: allowed: shop/allow-out spec.egress[0].matches[1] (*.cdn.test) at testdata/shop.yaml:9; 1. " + smtpStep + off + "; 2. " + ntpOff + "; 3. " + maybe + "; 4. " + cdn + ": decides",
		"evil.test:443":      "x to evil.test:443/tcp: denied: Admin policy no-evil spec.egress[1] denies it; 1. Admin Deny by no-evil (spec.egress[1]) to names, on any: decides; 2. " + ntpOff + "; 3. " + maybe,
		"other.test:123/udp": "x to other.test:123/udp: allowed: Admin policy ntp spec.egress[2]; 1. Admin Accept by ntp (spec.egress[2]) to everywhere, on udp/123: decides; 2. " + maybe,
	} {
		q, err := ParseQuestion(to)
		fatal.If(t, err)
		a := Answer{Pod: "x", To: q.String(), Verdict: allowed}
		if m.answer(&a, snap, &view, q); a.String() != want {
			t.Errorf("%s:\n says %s\nnot %s", to, a, want)
		}
	}
}

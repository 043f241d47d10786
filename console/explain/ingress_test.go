package explain

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/cnp"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/policytest"
	"github.com/namegate/namegate/testkit/short"
)

// from is one rule for ingress.
func from(kind policy.PeerKind, key string, ports policy.PortSet, tier policy.Tier, action policy.Action) *policy.Rule {
	r := &policy.Rule{Tier: tier, Action: action, Ingress: true, Peer: policy.Peer{Kind: kind, Key: key}, Ports: ports, Policy: "shop/closed", Path: "spec.ingress[0]"}
	if tier != policy.Namespace {
		r.Standard, r.Policy = true, "clusternetworkpolicy:lab"
	}
	return r
}

// reached gives the pod of facts rules for ingress, and a NetworkPolicy that isolates it unless there is none in isolated.
func reached(f *Facts, isolated bool, rules ...*policy.Rule) {
	beside(f)
	view := *f.View
	view.Ingress = &policy.Ingress{}
	if isolated {
		view.Ingress.NetworkPolicies = []string{"shop/closed"}
	}
	for _, r := range rules {
		of := map[policy.Tier]*[]*policy.Rule{policy.Admin: &view.Ingress.Admin, policy.Namespace: &view.Ingress.Namespace, policy.Baseline: &view.Ingress.Baseline}[r.Tier]
		*of = append(*of, r)
	}
	f.View = &view
	closed := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "closed"}}
	closed.Spec.PodSelector.MatchLabels, closed.Spec.PolicyTypes = map[string]string{"app": "cart"}, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
	f.NetworkPolicies = []*networkingv1.NetworkPolicy{closed}
}

func TestFromSource(t *testing.T) {
	dbs, nets := from(policy.PeerPods, "shop: app=db", "tcp/8080", policy.Namespace, policy.Accept), from(policy.PeerNetworks, "198.51.100.0/24", policy.AnyPort, policy.Namespace, policy.Accept)
	deny, pass := from(policy.PeerNetworks, "198.51.100.0/24", "tcp/22", policy.Admin, policy.Deny), from(policy.PeerPods, "shop: half", policy.AnyPort, policy.Admin, policy.Pass)
	broken, rest := from(policy.PeerAnywhere, "", policy.AnyPort, policy.Baseline, policy.Deny), from(policy.PeerAnywhere, "", policy.AnyPort, policy.Baseline, policy.Deny)
	broken.Broken, broken.Tier = true, policy.Admin
	standard := func(f *Facts) { f.SeesCluster = cnp.IsID }
	const closed = "NetworkPolicies isolate the pod for ingress, and "
	for _, c := range []struct {
		what, from, port string
		pod              *policy.Pod
		inside           string
		none             bool // no NetworkPolicy isolates
		rules            []*policy.Rule
		facts            func(*Facts)
		verdict          Verdict
		reason           string
		evidence         string // of rules, peers and notes
		manifest         string
	}{
		{what: "a pod", from: "10.2.0.5", port: "8080", pod: &db1, rules: []*policy.Rule{dbs}, verdict: Allowed, reason: "NetworkPolicy shop/closed (spec.ingress[0]) allows 10.2.0.5", evidence: "10.2.0.5 shop/db-1 tcp/8080 true"},
		{what: "any port", from: "10.2.0.5", pod: &db1, rules: []*policy.Rule{dbs}, verdict: Allowed, reason: "NetworkPolicy shop/closed (spec.ingress[0]) allows 10.2.0.5"},
		{what: "any port of UDP", from: "10.2.0.5", port: "udp", pod: &db1, rules: []*policy.Rule{dbs}, verdict: Denied, reason: closed + "they allow 10.2.0.5 on tcp/8080, and not by udp", manifest: "app: db"},
		{what: "any port behind those that are denied", from: "198.51.100.7", port: "tcp", rules: []*policy.Rule{from(policy.PeerAnywhere, "", "tcp/0-8079", policy.Admin, policy.Deny), from(policy.PeerAnywhere, "", "tcp/0-8080", policy.Namespace, policy.Accept)},
			verdict: Allowed, reason: "NetworkPolicy shop/closed (spec.ingress[0]) allows 198.51.100.7"},
		{what: "another port", from: "10.2.0.5", port: "8081", pod: &db1, rules: []*policy.Rule{dbs}, verdict: Denied, reason: closed + "they allow 10.2.0.5 on tcp/8080, and not on tcp/8081",
			evidence: "10.2.0.5 shop/db-1 tcp/8080 false", manifest: "name: allow-from-db"},
		{what: "a network", from: "198.51.100.7", port: "22/udp", rules: []*policy.Rule{dbs, nets}, verdict: Allowed, reason: "NetworkPolicy shop/closed (spec.ingress[0]) allows 198.51.100.7"},
		{what: "beside it", from: "198.51.101.7", port: "443", rules: []*policy.Rule{dbs, nets}, verdict: Denied, reason: closed + "none of their rules allows 198.51.101.7", manifest: "cidr: 198.51.101.7/32"},
		{what: "a pod that may not be seen", from: "10.2.0.9", port: "443", pod: &hidden, rules: []*policy.Rule{dbs}, verdict: Denied, reason: closed + "none of their rules allows 10.2.0.9",
			facts: func(f *Facts) { f.Sees = func(namespace string) bool { return namespace == "shop" } }},
		{what: "pods that are not known", from: "10.2.0.77", port: "8080", rules: []*policy.Rule{dbs}, facts: func(f *Facts) { f.OtherPods = "they are being read" }, verdict: Unknown, reason: "whether 10.2.0.77 is a pod that NetworkPolicies allow is unknown: they are being read"},
		{what: "the pod itself", from: "10.1.0.10", port: "443", verdict: Allowed, reason: "10.1.0.10 is the pod itself, which it may always reach"},
		{what: "another node", from: "192.0.2.9", port: "443", inside: "node", verdict: Denied, reason: closed + "none of their rules allows 192.0.2.9", evidence: "externalTrafficPolicy: Cluster", manifest: "cidr: 192.0.2.9/32"},
		{what: "the other family", from: "2001:db8::7", port: "443", verdict: Unknown, reason: "2001:db8::7 has no address of a family of the pod's"},
		{what: "an Admin rule", from: "198.51.100.7", port: "22", rules: []*policy.Rule{deny, nets}, facts: standard, verdict: Denied, reason: "Admin policy clusternetworkpolicy:lab (spec.ingress[0]) denies 198.51.100.7",
			evidence: "1. Admin Deny by clusternetworkpolicy:lab (spec.ingress[0]) from 198.51.100.0/24, on tcp/22: decides\n2. Namespace Accept by shop/closed (spec.ingress[0]) from 198.51.100.0/24, on any"},
		{what: "an Admin rule that may not be read", from: "198.51.100.7", port: "22", rules: []*policy.Rule{deny}, verdict: Denied, reason: "a cluster policy (Admin) denies 198.51.100.7", evidence: "1. Admin Deny, on tcp/22: decides"},
		{what: "an Admin rule on another port", from: "198.51.100.7", port: "23", rules: []*policy.Rule{deny, nets}, verdict: Allowed, reason: "NetworkPolicy shop/closed (spec.ingress[0]) allows 198.51.100.7"},
		{what: "passed on", from: "10.2.0.5", port: "8080", pod: &db1, rules: []*policy.Rule{pass, dbs}, verdict: Allowed, reason: "NetworkPolicy shop/closed (spec.ingress[0]) allows 10.2.0.5"},
		{what: "a broken rule", from: "10.2.0.5", port: "8080", rules: []*policy.Rule{broken}, facts: standard, verdict: Denied, reason: "Admin policy clusternetworkpolicy:lab (spec.ingress[0]) denies 10.2.0.5: a part of it cannot be read"},
		{what: "the Baseline tier", from: "10.2.0.5", port: "8080", none: true, rules: []*policy.Rule{deny, rest}, facts: standard, verdict: Denied, reason: "Baseline policy clusternetworkpolicy:lab (spec.ingress[0]) denies 10.2.0.5"},
		{what: "a NetworkPolicy in its place", from: "10.2.0.5", port: "8080", pod: &db1, rules: []*policy.Rule{rest, dbs}, verdict: Allowed, reason: "NetworkPolicy shop/closed (spec.ingress[0]) allows 10.2.0.5"},
		{what: "no rule", from: "10.2.0.5", port: "8080", none: true, rules: []*policy.Rule{deny}, verdict: Allowed, reason: "no rule of a cluster policy denies 10.2.0.5, and no NetworkPolicy isolates the pod for ingress"},
		{what: "a claimed address", from: "10.2.0.5", port: "8080", facts: func(f *Facts) { f.Contested = f.Pod.IPs }, verdict: Unknown, reason: "other pods claim 10.1.0.10 too, and connections to them cannot be distinguished"},
		{what: "a pod elsewhere", from: "10.2.0.5", facts: func(f *Facts) { f.Pod.NodeName = "node-2" }, verdict: Elsewhere, reason: "the pod runs on the node node-2, whose agent knows; ask that one"},
		{what: "the host network", from: "10.2.0.5", facts: func(f *Facts) { f.Pod.HostNetwork = true }, verdict: Allowed, reason: "the pod uses the host network: no policy for pods holds for it"},
		{what: "not enforced", from: "10.2.0.5", port: "8080", facts: func(f *Facts) { v := *f.View; v.Ingress = nil; f.View = &v }, verdict: Allowed, reason: "no policy in force has rules for connections to the pod",
			evidence: "the NetworkPolicy shop/closed isolates the pod for ingress, and Namegate does not enforce that"},
	} {
		f := about(t, cart(), manifests(t, base))
		reached(&f, !c.none, c.rules...)
		if c.facts != nil {
			c.facts(&f)
		}
		to, err := ParsePort(c.port)
		fatal.If(t, err)
		e := Explain(Question{Node: "node-1", To: to, From: &Source{Text: c.from, Addrs: policytest.Addrs(c.from), Pod: c.pod, Inside: c.inside}}, f)
		evidence := numbered(e.Rules)
		for _, p := range e.Peers {
			evidence = append(evidence, strings.Join([]string{p.Address, p.Pod, p.Ports, map[bool]string{true: "true", false: "false"}[p.OnPort]}, " "))
		}
		evidence = append(evidence, e.Notes...)
		if e.Verdict != c.verdict || e.Reason != c.reason || e.From != c.from || !strings.Contains(strings.Join(evidence, "\n"), c.evidence) {
			t.Errorf("%s: %s: %s\n%s", c.what, e.Verdict, e.Reason, strings.Join(evidence, "\n"))
		}
		manifest := ""
		if e.Advice != nil {
			manifest = e.Advice.NetworkPolicy
		}
		if (manifest == "") != (c.manifest == "") || !strings.Contains(manifest, c.manifest) {
			t.Errorf("%s: the NetworkPolicy is\n%s", c.what, manifest)
		}
	}
}

func numbered(rules []Rule) (out []string) {
	for i, r := range rules {
		out = append(out, string(rune('1'+i))+". "+r.String())
	}
	return out
}

// TestFromTheNode: the pod's node always reaches it.
func TestFromTheNode(t *testing.T) {
	f := about(t, cart(), nil)
	e := Explain(Question{From: &Source{Text: "node/node-1", OfNode: true}}, f)
	diff.Equal(t, "processes of the pod's node always reach it, as the kubelet's probes have to", e.Reason)
	diff.Equal(t, Allowed, e.Verdict)
}

// TestFromBothFamilies: one address of the source that is denied is an answer, of those that the pod has a family for.
func TestFromBothFamilies(t *testing.T) {
	f := about(t, cart(), manifests(t, base))
	reached(&f, true, from(policy.PeerNetworks, "198.51.100.0/24", policy.AnyPort, policy.Namespace, policy.Accept))
	f.Pod.IPs = append(f.Pod.IPs, netip.MustParseAddr("2001:db8::10"))
	s := Source{Text: "shop/x", Addrs: policytest.Addrs("198.51.100.7 2001:db8::7")}
	e := Explain(Question{To: Target{Port: 80, Protocol: policy.TCP}, From: &s}, f)
	if e.Verdict != Denied || !strings.Contains(e.Reason, "none of their rules allows shop/x (2001:db8::7)") {
		t.Errorf("%s: %s", e.Verdict, e.Reason)
	}
}

// TestDeniedFromSource: what was denied lately is of the direction that is asked for.
func TestDeniedFromSource(t *testing.T) {
	f := about(t, cart(), manifests(t, base))
	reached(&f, true)
	flow := func(from, to string) audit.Flow {
		fl := audit.Flow{Time: noon, Last: noon.Add(time.Second), Protocol: policy.TCP, Dialled: netip.MustParseAddrPort(to), Reason: audit.ReasonIsolated, Count: 1}
		if from != "" {
			fl.Source = netip.MustParseAddr(from)
		}
		return fl
	}
	f.Flows = []audit.Flow{flow("198.51.101.7", "10.1.0.10:8080"), flow("198.51.101.8", "10.1.0.10:8080"), flow("", "198.51.101.7:443"), flow("10.1.0.10", "10.1.0.10:1")}
	ports := func(flows []Flow) (out []uint16) {
		for _, fl := range flows {
			out = append(out, fl.Port)
		}
		return out
	}
	e := Explain(Question{From: &Source{Text: "198.51.101.7", Addrs: policytest.Addrs("198.51.101.7")}}, f)
	diff.Error(t, []uint16{8080}, ports(e.Flows))
	if e.Advice == nil || !strings.Contains(e.Advice.NetworkPolicy, "port: 8080") {
		t.Errorf("the advice is not for the port that was denied: %+v", e.Advice)
	}
	diff.Error(t, []uint16{443}, ports(Explain(Question{To: target(t, "198.51.101.7")}, f).Flows))
}

// TestIngressAlone: rules for ingress say nothing of what the pod may reach.
func TestIngressAlone(t *testing.T) {
	f := about(t, cart(), manifests(t, base))
	reached(&f, true)
	f.View = &policy.View{Pod: f.Pod, Ingress: f.View.Ingress}
	for _, to := range []string{"bank.test:443", "198.51.101.7"} {
		e := Explain(Question{To: target(t, to)}, f)
		if e.Verdict != Allowed || e.Reason != "no policy for egress selects the pod: everything is allowed" {
			t.Errorf("%s: %s: %s", to, e.Verdict, e.Reason)
		}
	}
}

func TestParsePort(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "8080": "8080/tcp", "8080/udp": "8080/udp", "53/SCTP": "53/sctp", "udp": "udp", "icmp": "icmp", "ICMPv6": "icmp",
		"0": "!", "65536": "!", "-1": "!", "http": "!", "80/": "!", "80/http": "!", "80/icmp": "!", "/udp": "!", "tcp/80": "!",
	} {
		got, err := ParsePort(text)
		if (err != nil) != (want == "!") || err == nil && got.portText() != want {
			t.Errorf("%q: %q, %v", text, got.portText(), err)
		}
	}
}

// TestParseFrom: what a source may be, and what to write in place of others.
func TestParseFrom(t *testing.T) {
	for text, want := range map[string]string{
		"till": "  till", "pay/till": " pay till", "node/n1": "n1  ", "192.0.2.1": "192.0.2.1", "::ffff:192.0.2.1": "192.0.2.1", "2001:db8::1": "2001:db8::1",
		"":                `"" is no source; write an address, NAMESPACE/NAME or NAME of a pod, or node/NODE`,
		"/till":           "is no source",
		"pay/":            "is no source",
		"node/":           "is no source",
		"pay/till/x":      "is no source",
		"198.51.100.0/24": `"198.51.100.0/24" is a network; write one address of it, such as 198.51.100.0`,
	} {
		f, err := ParseFrom(text)
		got := fmt.Sprint(f.Node, " ", f.Namespace, " ", f.Name)
		if f.Addr.IsValid() {
			got = f.Addr.String()
		}
		if err != nil {
			got = err.Error()
		}
		if got != want && (err == nil || !strings.Contains(got, want)) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// TestFromSourceLikeEvaluate: of random rules the verdict is that of the evaluation: without a port, of any port.
func TestFromSourceLikeEvaluate(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 5))
	keys := []string{"shop: app=db", "shop: half"}
	random := func(tier policy.Tier) *policy.Rule {
		var ports []policy.PortRange
		for range r.IntN(3) {
			first := uint16(r.IntN(6))
			ports = append(ports, policy.PortRange{Protocol: []policy.Protocol{policy.TCP, policy.UDP}[r.IntN(2)], First: first, Last: first + uint16(r.IntN(3))})
		}
		set := policy.NewPortSet(ports...)
		if len(ports) == 0 {
			set = policy.AnyPort
		}
		rule := from(policy.PeerPods, keys[r.IntN(2)], set, tier, policy.Accept)
		if tier != policy.Namespace {
			rule.Action = policy.Action(r.IntN(3))
		}
		if r.IntN(4) == 0 {
			rule.Peer = policy.Peer{}
		}
		return rule
	}
	for range short.Rounds(300, 3_000, 30_000) {
		f := about(t, cart(), nil)
		f.View = &policy.View{Pod: f.Pod}
		var rules []*policy.Rule
		for range r.IntN(6) {
			rules = append(rules, random(policy.Tier(r.IntN(3)-1)))
		}
		reached(&f, r.IntN(2) == 0, rules...)
		source := policytest.Addrs([]string{"10.2.0.5", "10.2.0.6", "198.51.100.7"}[r.IntN(3)])
		to := Target{Port: uint16(r.IntN(9)), Protocol: policy.TCP}
		if to.Port == 0 {
			to.Protocol = []policy.Protocol{policy.AnyProtocol, policy.TCP, policy.UDP}[r.IntN(3)]
		}
		var flows []policy.Flow
		for _, protocol := range []policy.Protocol{policy.TCP, policy.UDP, policy.SCTP} {
			for port := range uint16(12) {
				if (to.Protocol == policy.AnyProtocol || protocol == to.Protocol) && (to.Port == 0 || port == to.Port) {
					at := netip.AddrPortFrom(f.Pod.IPs[0], port)
					flows = append(flows, policy.Flow{Protocol: protocol, Dialled: at, Reached: at, Source: source[0]})
				}
			}
		}
		want := Denied
		if slices.ContainsFunc(flows, func(flow policy.Flow) bool {
			allowed, _ := policy.EvaluateIngress(f.View, f.Snapshot, &flow)
			return allowed
		}) {
			want = Allowed
		}
		if e := Explain(Question{To: to, From: &Source{Text: "it", Addrs: source}}, f); e.Verdict != want {
			t.Fatalf("%v to %q: want %s, got %s: %s\n%s", source, to.portText(), want, e.Verdict, e.Reason, strings.Join(numbered(e.Rules), "\n"))
		}
	}
}

// TestFromSourceThatBaselineDenies: only a NetworkPolicy takes the place of the Baseline tier for ingress.
func TestFromSourceThatBaselineDenies(t *testing.T) {
	f := about(t, cart(), manifests(t, base))
	reached(&f, false, from(policy.PeerAnywhere, "", policy.AnyPort, policy.Baseline, policy.Deny))
	e := Explain(Question{To: Target{Port: 80, Protocol: policy.TCP}, From: &Source{Text: "10.2.0.5", Addrs: policytest.Addrs("10.2.0.5")}}, f)
	diff.Error(t, []string{"a NetworkPolicy for ingress that selects the pod takes the place of the Baseline tier; write one that allows what has to reach the pod"}, e.Advice.Do)
}

// TestFromAddressThatMayBeAPods: where the pods of some namespaces alone are known, an address may be that of another pod.
func TestFromAddressThatMayBeAPods(t *testing.T) {
	f := about(t, cart(), manifests(t, base))
	reached(&f, true)
	f.OtherNamespaces = []string{"shop"}
	e := Explain(Question{To: Target{Port: 80, Protocol: policy.TCP}, From: &Source{Text: "10.9.0.5", Addrs: policytest.Addrs("10.9.0.5")}}, f)
	if e.Verdict != Denied || e.Advice == nil || !slices.Contains(e.Advice.Do, "if 10.9.0.5 is a pod's, allow that by its labels: pods of other nodes are not all known here") {
		t.Errorf("%s: %s: %+v", e.Verdict, e.Reason, e.Advice)
	}
}

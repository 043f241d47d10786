package denial

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/kernel/nflog"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/policytest"
	"github.com/namegate/namegate/testkit/short"
)

// TestCoverOfTiers: a match that denies opens nothing, on its port or before one that accepts.
func TestCoverOfTiers(t *testing.T) {
	pattern, err := fqdn.ParsePattern("a.test")
	fatal.If(t, err)
	deny := &policy.Rule{Tier: policy.Admin, Action: policy.Deny, Peer: policy.Peer{Kind: policy.PeerNames}, Ports: "tcp/25", Policy: "no-smtp"}
	accept := &policy.Rule{Peer: policy.Peer{Kind: policy.PeerNames}, Ports: policy.AnyPort, Policy: "shop/p"}
	v := &policy.View{Enforced: true, Policies: []string{"shop/p"}}
	for _, r := range []*policy.Rule{deny, accept} {
		r.Matches = []*policy.Match{policy.NewMatch(r, "", pattern, 0)}
	}
	v.Rules, v.Index = policytest.Rules(deny, accept), policy.NewIndex([]*policy.Rule{deny, accept}, 2)
	n, _ := pattern.Exact()
	for to, want := range map[string]bool{"192.0.2.1:25": false, "192.0.2.1:443": true} {
		at := key{dialled: netip.MustParseAddrPort(to), protocol: policy.TCP, verdict: audit.Denied}
		if m, opens := cover(v, at, nil, n); m == nil || opens != want || opens && m.Rule != accept {
			t.Errorf("%s: %+v, opens %v", to, m, opens)
		}
	}
}

// clusterPolicy reads a policy from the part of its spec without the subject, which are the
// pods of a mode.
func clusterPolicy(t *testing.T, called, mode, spec string) *v1alpha1.ClusterFQDNNetworkPolicy {
	t.Helper()
	p := policytest.ClusterPolicy(t, called, spec)
	pods := &metav1.LabelSelector{MatchLabels: map[string]string{"mode": mode}}
	p.Spec.Subject.Pods = &v1alpha1.PodSubject{NamespaceSelector: &metav1.LabelSelector{}, PodSelector: pods}
	return p
}

// underTiers is the world with cluster policies: those of pods a and c enforce, and audit.
func underTiers(t *testing.T) *world {
	w := newWorld(t)
	in := compile.Input{Policies: []*v1alpha1.FQDNNetworkPolicy{fqdnPolicy("allow", "enforce", v1alpha1.EnforcementEnforce, "web.example.org:443 *.paste.test:443")}}
	for _, mode := range []string{"enforce", "cluster"} {
		in.ClusterPolicies = append(in.ClusterPolicies,
			clusterPolicy(t, "pastes-"+mode, mode, `{tier: Admin, priority: 10, egress: [
				{name: pastes, action: Deny, matches: [{pattern: "**.paste.test"}]}, {action: Deny, networks: [203.0.113.0/24]}]}`),
			clusterPolicy(t, "closed-"+mode, mode, `{tier: Baseline, priority: 1, egress: [{action: Accept, ports: [{protocol: TCP, port: 22}]}, {name: rest, action: Deny}]}`),
			clusterPolicy(t, "soon-"+mode, mode, `{tier: Admin, priority: 5, enforcement: Audit, egress: [
				{name: ssh, action: Deny, ports: [{protocol: TCP, port: 22}]}, {name: lab, action: Accept, networks: [203.0.113.128/25]}]}`))
	}
	in.ClusterPolicies = append(in.ClusterPolicies, clusterPolicy(t, "later", "audit", `{tier: Admin, priority: 1, enforcement: Audit, egress: [{action: Deny, matches: [{name: x.paste.test}]}]}`))
	for name, mode := range map[string]string{"a": "enforce", "b": "audit", "c": "cluster"} {
		in.Pods = append(in.Pods, policy.Pod{PodRef: policytest.Ref(name), IPs: []netip.Addr{at[name]}, Labels: map[string]string{"mode": mode}})
	}
	w.snap = compile.New().Compile(in)
	if len(w.snap.Problems) > 0 {
		t.Fatal(w.snap.Problems)
	}
	return w
}

// TestRulesOfTiers: what a rule of a cluster policy denies, or would deny or allow, names the
// rule. Other denials have the reasons that they have without cluster policies.
func TestRulesOfTiers(t *testing.T) {
	for _, c := range []struct {
		what        string
		denied      bool // the kernel denies the packet
		pod, to     string
		names, open string // of the address: they opened nothing, or the port set any until now
		want        string // joined by "; "
	}{
		{what: "by name", denied: true, pod: "a", to: "198.51.100.1:443", names: "x.paste.test",
			want: "denied a tcp 198.51.100.1:443 rule Admin pastes-enforce pastes x1 [x.paste.test by pastes-enforce **.paste.test]"},
		{what: "by network, which an Audit policy would accept", denied: true, pod: "a", to: "203.0.113.200:443",
			want: "denied a tcp 203.0.113.200:443 rule Admin pastes-enforce spec.egress[1] x1 []; would-allow a tcp 203.0.113.200:443 rule Admin soon-enforce lab x1 []"},
		{what: "by network alone", denied: true, pod: "a", to: "203.0.113.1:443", names: "far.test",
			want: "denied a tcp 203.0.113.1:443 rule Admin pastes-enforce spec.egress[1] x1 [far.test]"},
		{what: "by the namespace's default", denied: true, pod: "a", to: "198.51.100.1:80", names: "web.example.org",
			want: "denied a tcp 198.51.100.1:80 ports x1 [web.example.org by shop/allow web.example.org]"},
		{what: "of a pod without other policies", denied: true, pod: "c", to: "198.51.100.1:80", names: "far.test",
			want: "denied c tcp 198.51.100.1:80 rule Baseline closed-cluster rest x1 [far.test]"},
		{what: "what the kernel allows by now", denied: true, pod: "c", to: "198.51.100.1:22", want: "denied c tcp 198.51.100.1:22 address x1 []"},
		{what: "would be denied", pod: "c", to: "198.51.100.1:22", want: "would-deny c tcp 198.51.100.1:22 rule Admin soon-cluster ssh x1 []"},
		{what: "beside a grant", pod: "a", to: "198.51.100.1:22", open: "web.example.org", want: ""},
		{what: "denied already", pod: "c", to: "198.51.100.1:80", want: ""},
		{what: "of Audit policies alone", pod: "b", to: "198.51.100.1:443", names: "x.paste.test",
			want: "would-deny b tcp 198.51.100.1:443 rule Admin later spec.egress[0] x1 [x.paste.test by later x.paste.test]"},
		{what: "allowed by default", pod: "b", to: "198.51.100.1:443", names: "y.paste.test", want: ""},
	} {
		w := underTiers(t)
		for n := range strings.FieldsSeq(c.names) {
			w.told(c.pod, n, netip.MustParseAddrPort(c.to).Addr().String(), 60, "")
		}
		prefix := nflog.PrefixAudited
		if c.denied {
			prefix = nflog.PrefixDenied
		}
		w.denials.take(w.packet(prefix, c.pod, "tcp", c.to))
		w.pass(settle)
		var want []string
		if c.want != "" {
			want = strings.Split(c.want, "; ")
		}
		t.Log(c.what)
		w.expect(want...)
	}
}

// TestDeniedWhereItIsReached: rules for networks are about the destination behind a Service.
func TestDeniedWhereItIsReached(t *testing.T) {
	w := underTiers(t)
	w.denials.take(w.packet(nflog.PrefixReached, "a", "tcp", "203.0.113.1:8443"))
	w.denied("a", "tcp", "10.96.0.9:443")
	w.denied("a", "tcp", "10.96.0.10:443") // not translated
	w.expect("denied a tcp 10.96.0.9:443 rule Admin pastes-enforce spec.egress[1] x1 []", "denied a tcp 10.96.0.10:443 address x1 []")
	for _, total := range w.denials.Totals() {
		if want := total.Direction == audit.Egress && total.Verdict == audit.Denied && total.Reason == audit.ReasonRule && total.Tier == policy.Admin; (total.Count == 1) != want && total.Reason != audit.ReasonAddress {
			t.Errorf("%+v", total)
		}
	}
}

// TestVerdictsLikeEvaluate: for random policies of every kind, some of them Audit, and random
// answers, a line names the rule that Evaluate finds with the entries that the answers make,
// and verdicts that differ are logged both ways.
func TestVerdictsLikeEvaluate(t *testing.T) {
	r := rand.New(rand.NewPCG(31, 16))
	pick := func(all ...string) string { return all[r.IntN(len(all))] }
	tried := map[string]int{}
	rounds := short.Rounds(100, 400, 4_000)
	for range rounds {
		w := newWorld(t)
		var in compile.Input
		for i := range r.IntN(2) {
			in.Policies = append(in.Policies, fqdnPolicy(fmt.Sprint("p", i), "audit", v1alpha1.Enforcement(pick("Enforce", "Audit")), pick("a.test:443", "*.test:0")))
		}
		for i := range 1 + r.IntN(4) {
			var rules []string
			for range 1 + r.IntN(3) {
				rules = append(rules, fmt.Sprintf(`{action: %s, %s%s}`, pick("Accept", "Deny", "Pass"),
					pick(`matches: [{name: a.test}]`, `matches: [{pattern: "*.test"}]`, `networks: [198.51.100.0/31]`, `networks: [0.0.0.0/0]`), pick("", `, ports: [{port: 443}]`)))
			}
			in.ClusterPolicies = append(in.ClusterPolicies, clusterPolicy(t, fmt.Sprint("c", i), "audit", fmt.Sprintf(`{tier: %s, priority: %d, enforcement: %s, dns: {denied: Resolve}, egress: [%s]}`,
				pick("Admin", "Baseline"), r.IntN(3), pick("Enforce", "Audit"), strings.Join(rules, ", "))))
		}
		in.Pods = []policy.Pod{{PodRef: policytest.Ref("b"), IPs: []netip.Addr{at["b"]}, Labels: map[string]string{"mode": "audit"}}}
		w.snap = compile.New().Compile(in)
		v := w.snap.View(at["b"])
		entries := [2]map[string][]*policy.Match{{}, {}} // of both evaluations, by address
		for range 12 {
			addr := fmt.Sprintf("198.51.100.%d", r.IntN(4))
			if r.IntN(2) == 0 {
				n := policytest.Name(pick("a.test", "b.test", "far.example"))
				w.answer(v, n, addr)
				for i := range entries {
					entries[i][addr] = append(entries[i][addr], policy.Decide(v, policy.Query{Name: n, Would: i == 1}).Matches...)
				}
			}
			to := fmt.Sprintf("%s:%s", addr, pick("443", "80"))
			dialled := netip.MustParseAddrPort(to)
			var verdicts [2]bool
			var by [2]*policy.Rule
			for i := range 2 {
				f := policy.Flow{Protocol: policy.TCP, Dialled: dialled, Reached: dialled, Would: i == 1}
				f.Enter(entries[i][addr]...)
				verdicts[i], by[i] = policy.Evaluate(v, w.snap, &f)
			}
			var want []string
			add := func(verdict audit.FlowVerdict, r *policy.Rule) {
				text := verdict.String()
				if r != nil && r.Tier != policy.Namespace {
					text += fmt.Sprintf(" %v %s %s", r.Tier, r.Policy, r.Path)
				}
				want = append(want, text)
			}
			prefix := nflog.PrefixAudited
			switch {
			case !verdicts[0]:
				prefix = nflog.PrefixDenied
				add(audit.Denied, by[0])
				if verdicts[1] {
					add(audit.WouldAllow, by[1])
				}
			case !verdicts[1]:
				add(audit.WouldDeny, by[1])
			}
			w.lines = nil
			w.denials.take(w.packet(prefix, "b", "tcp", to))
			w.pass(settle)
			var got []string
			for _, f := range w.lines {
				add := f.Verdict.String()
				if f.Rule != nil {
					add += fmt.Sprintf(" %v %s %s", f.Rule.Tier, f.Rule.Policy, f.Rule.Path)
				}
				got = append(got, add)
				tried[f.Verdict.String()+" "+string(f.Reason)]++
			}
			diff.Fatal(t, want, got, to)
			w.pass(2 * period) // each connection is a flow of its own
		}
	}
	for _, kind := range []string{"denied rule", "would-deny rule", "would-allow rule"} {
		if tried[kind] < rounds/8 {
			t.Errorf("%v", tried)
		}
	}
}

// answer is an answer that a pod gets: what opens is granted, for long.
func (w *world) answer(v *policy.View, n fqdn.Name, addr string) {
	granted := len(w.granted)
	for _, m := range policy.Decide(v, policy.Query{Name: n}).Matches {
		if !m.Audit {
			w.granted = append(w.granted, policy.GrantInfo{Pod: v.Pod.PodRef, Name: n, Addr: netip.MustParseAddr(addr), Ports: m.Ports, Rule: m.Rule.ID, Until: w.now.Add(time.Hour), By: m.By()})
		}
	}
	if len(w.granted) == granted {
		w.told(v.Pod.Name, n.String(), addr, 3600, "")
	}
}

// TestDeniedWhereNamesDoNotLead: the reason is the translation where names do not count for what is reached.
func TestDeniedWhereNamesDoNotLead(t *testing.T) {
	for reason, counts := range map[string]bool{"translated": false, "expired": true} {
		w := underTiers(t)
		w.denials.o.CountsByName = func(dialled, reached netip.AddrPort) bool {
			return counts && dialled.String() == "198.51.100.1:443" && reached.String() == "192.0.2.77:8443"
		}
		w.told("a", "web.example.org", "198.51.100.1", 60, "")
		w.denials.take(w.packet(nflog.PrefixReached, "a", "tcp", "192.0.2.77:8443"))
		w.denied("a", "tcp", "198.51.100.1:443")
		w.expect("denied a tcp 198.51.100.1:443 " + reason + " x1 [web.example.org by shop/allow web.example.org]")
	}
}

// TestPoliciesOfADenial: where no policy of Namegate's own is enforced for a pod, NetworkPolicies deny its connections.
func TestPoliciesOfADenial(t *testing.T) {
	for mode, want := range map[string][]string{"": {"shop/closed"}, "audit": {"shop/closed"}, "enforce": {"shop/allow"}} {
		w := newWorld(t)
		a := policy.Pod{PodRef: policytest.Ref("a"), IPs: []netip.Addr{at["a"]}, Labels: map[string]string{"closed": "yes", "mode": mode}}
		w.snap = compile.New().Compile(compile.Input{
			Pods: []policy.Pod{a}, NetworkPolicies: []*networkingv1.NetworkPolicy{policytest.NetworkPolicy("closed")}, EnforceNetworkPolicies: true,
			Policies: []*v1alpha1.FQDNNetworkPolicy{fqdnPolicy("allow", "enforce", v1alpha1.EnforcementEnforce, "web.example.org:443"), fqdnPolicy("watch", "audit", v1alpha1.EnforcementAudit, "web.example.org:443")},
		})
		w.denied("a", "tcp", "198.51.100.1:80")
		diff.Error(t, want, w.lines[0].Policies, "policies of a denial of a pod with the label mode="+mode)
	}
}

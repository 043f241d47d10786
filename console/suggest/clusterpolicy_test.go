package suggest

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/cfqdnnp"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/golden"
)

// in is a pod of a namespace.
func in(namespace string) string {
	return `{"namespace":"` + namespace + `","name":"a-1","workload":"app=a","ip":"10.244.1.17"}`
}

// allowedFor is an allowed question with its grants.
func allowedFor(namespace, name, by, ports string) string {
	return asked(in(namespace), "allowed", name, `,"matches":[{"policy":"`+by+`","path":"spec.egress[0].matches[0]","match":"`+name+`"}],"answers":[{"address":"192.0.2.10","granted":true,"grants":[{"ports":"`+ports+`","until":"2026-05-01T12:01:00Z"}]}],"rcode":"NOERROR"`)
}

// TestCommon: which names become the policy, for which namespaces, and what is said of the
// others.
func TestCommon(t *testing.T) {
	var registry []string
	for _, ns := range []string{"shop", "pay", "front"} {
		registry = append(registry, flowText(in(ns), "denied", "tcp", "192.0.2.10 443", "unmatched", named("registry.test", "")))
	}
	admin := strings.Replace(flowText(in("shop"), "denied", "tcp", "192.0.2.10 443", "rule", named("registry.test", "")), `"reason"`, `"tier":"Admin","policy":"common-egress","rule":"spec.egress[0]","reason"`, 1)
	renewed := func(namespace string) string {
		return strings.Replace(allowedFor(namespace, "registry.test", namespace+"/out", "tcp/443"), `"allowed"`, `"renewed"`, 1)
	}
	three := ClusterOptions{Tier: v1alpha1.TierBaseline, Namespaces: 3}
	for _, c := range []struct {
		name  string
		lines []string
		o     ClusterOptions
	}{
		{"cluster: nothing", nil, three},
		{"cluster: three namespaces", registry, three},
		{"cluster: two namespaces", registry[:2], three},
		{"cluster: in use in some", append(registry[:1:1], renewed("pay"), renewed("front")), three},
		{"cluster: everywhere", registry, ClusterOptions{v1alpha1.TierAdmin, 3, true}},
		{"cluster: open already in some", append(registry[:1:1], allowedFor("pay", "registry.test", "pay/out", "tcp/443,tcp/8443"), allowedFor("front", "registry.test", "front/out", "tcp/443")), three},
		{"cluster: asked for without a port", []string{
			asked(in("shop"), "unmatched", "a.test", withAnswer), asked(in("pay"), "refused", "a.test", ""), asked(in("front"), "unmatched", "a.front.svc.cluster.local", `,"via":"a.test","chain":["a.test"]`+withAnswer),
			asked(in("shop"), "unmatched", "gone.test", `,"rcode":"NXDOMAIN"`), asked(in("pay"), "unmatched", "gone.test", `,"rcode":"NXDOMAIN"`), asked(in("front"), "unmatched", "gone.test", `,"rcode":"NXDOMAIN"`),
		}, three},
		{"cluster: an administrator denies it", append(registry[:3:3], admin), three},
		{"cluster: several names and ports", append(registry[:3:3],
			flowText(in("shop"), "denied", "udp", "192.0.2.11 123", "unmatched", named("ntp.test", "")), flowText(in("a"), "denied", "udp", "192.0.2.11 123", "unmatched", named("ntp.test", "")),
			flowText(in("b"), "would-deny", "udp", "192.0.2.11 123", "unmatched", named("ntp.test", "")), flowText(in("b"), "denied", "tcp", "192.0.2.11 80", "unmatched", named("own.test", "")),
			flowText(in("b"), "denied", "icmp", "192.0.2.11", "unmatched", named("ntp.test", "")), flowText(in("b"), "denied", "tcp", "192.0.2.11 80", "another", named("ntp.test", byOther)),
			flowText(in("shop"), "denied", "tcp", "192.0.2.11 80", "blocked", named("registry.test", "")),
		), three},
		{"cluster: names of one label", []string{
			flowText(in("shop"), "denied", "tcp", "192.0.2.10 443", "unmatched", named("db", "")), flowText(in("pay"), "denied", "tcp", "192.0.2.10 443", "unmatched", named("db", "")),
			flowText(in("front"), "denied", "tcp", "192.0.2.10 443", "unmatched", named("db", "")),
		}, three},
		{"cluster: policies of that name are there", append(registry[:3:3], allowedFor("shop", "registry.test", "common-egress", "any")), three},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := logOf(t, c.lines...).SuggestCluster(c.o)
			var b strings.Builder
			fatal.If(t, s.Write(&b))
			golden.Compare(t, strings.NewReplacer(" ", "-", ":", "").Replace(c.name), b.String())
			if len(s.Warnings()) != len(s.Parts[0].Left) {
				t.Errorf("%q", s.Warnings())
			}
			if made := s.Parts[0].ClusterPolicy; made != nil {
				if p := cfqdnnp.Read(made); len(p.Problems) > 0 {
					t.Error(p.Problems)
				}
			}
		})
	}
}

// TestCommonTwin: the policy accepts exactly the names that enough namespaces dialled, on the
// ports on which they were dialled, and selects exactly their namespaces.
func TestCommonTwin(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 6))
	made := 0
	for range 300 {
		dialled, by := map[string]map[string]bool{}, map[string]map[string]bool{}
		var lines []string
		for range r.IntN(40) {
			name, ns, at := fmt.Sprintf("n%d.test", r.IntN(6)), fmt.Sprintf("ns%d", r.IntN(5)), 1+r.IntN(3)
			lines = append(lines, flowText(in(ns), "denied", "tcp", fmt.Sprintf("192.0.2.10 %d", at), "unmatched", named(name, "")))
			if dialled[name] == nil {
				dialled[name], by[name] = map[string]bool{}, map[string]bool{}
			}
			dialled[name][fmt.Sprint(at)], by[name][ns] = true, true
		}
		o := ClusterOptions{Tier: v1alpha1.TierAdmin, Namespaces: 1 + r.IntN(4)}
		common := logOf(t, lines...).SuggestCluster(o).Parts[0].ClusterPolicy
		want, subjects := map[string]map[string]bool{}, map[string]bool{}
		for name, ports := range dialled {
			if len(by[name]) >= o.Namespaces {
				want[name] = ports
				for ns := range by[name] {
					subjects[ns] = true
				}
			}
		}
		got := map[string]map[string]bool{}
		if common != nil {
			made++
			for _, rule := range cfqdnnp.Read(common).Rules {
				for _, m := range rule.Matches {
					if rule.Action != policy.Accept || got[m.Pattern.String()] != nil {
						t.Fatalf("%+v", rule)
					}
					got[m.Pattern.String()] = map[string]bool{}
					for at := range uint16(10) {
						if rule.Ports.Contains(policy.TCP, at) {
							got[m.Pattern.String()][fmt.Sprint(at)] = true
						}
					}
				}
			}
			selected := map[string]bool{}
			for _, ns := range common.Spec.Subject.Namespaces.MatchExpressions[0].Values {
				selected[ns] = true
			}
			diff.Fatal(t, subjects, selected)
		}
		diff.Fatal(t, want, got, lines)
	}
	if made < 100 {
		t.Errorf("%d policies", made)
	}
}

// TestCommonBounds: what one policy has no room for is left out, and said.
func TestCommonBounds(t *testing.T) {
	var lines []string
	for i := range 70 {
		lines = append(lines, flowText(in("shop"), "denied", "tcp", fmt.Sprintf("192.0.2.10 %d", i+1), "unmatched", named(fmt.Sprintf("n%d.test", i), "")))
	}
	s := logOf(t, lines...).SuggestCluster(ClusterOptions{v1alpha1.TierAdmin, 1, false}).Parts[0]
	if len(s.ClusterPolicy.Spec.Egress) != cfqdnnp.MaxRules || len(s.Left) != 70-cfqdnnp.MaxRules || !strings.Contains(s.Left[0].String(), "the policy has 64 rules, the most that one may have") {
		t.Errorf("%d rules, left %q", len(s.ClusterPolicy.Spec.Egress), s.Left)
	}
}

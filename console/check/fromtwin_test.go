package check

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/namegate/namegate/console/explain"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/short"
)

// TestAskFromLikeEvaluate: of random policies the answer about two pods is that of the evaluation. Of pods without
// addresses it is that of every address that they may have, or unknown.
func TestAskFromLikeEvaluate(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 11))
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	ports := func() string {
		return pick("", ", ports: [{port: 80}]", ", ports: [{port: 81}]", ", ports: [{port: web}]")
	}
	peer := func() string {
		return pick("{podSelector: {}}", "{podSelector: {matchLabels: {app: a}}}", "{namespaceSelector: {matchLabels: {team: x}}}", "{namespaceSelector: {}, podSelector: {matchLabels: {app: b}}}",
			"{ipBlock: {cidr: 10.0.0.0/8}}", "{ipBlock: {cidr: 0.0.0.0/0}}", "{ipBlock: {cidr: 0.0.0.0/0, except: [10.1.0.0/16]}}", "{ipBlock: {cidr: 198.51.100.0/24}}")
	}
	ordered := func() string {
		return pick("Accept", "Deny", "Pass") + pick("", ", protocols: [{tcp: {destinationPort: {number: 80}}}]")
	}
	unknown, denied, rounds := 0, 0, short.Rounds(50, 300, 15_000)
	for range rounds {
		var text strings.Builder
		add := func(format string, args ...any) { fmt.Fprintf(&text, "---\n"+format+"\n", args...) }
		add("{apiVersion: v1, kind: Namespace, metadata: {name: of-a, labels: {team: %s}}}", pick("x", "y"))
		add("{apiVersion: v1, kind: Namespace, metadata: {name: of-b, labels: {team: x}}}")
		for i := range r.IntN(4) {
			add("{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: p%d, namespace: %s}, spec: {podSelector: %s, policyTypes: [%s], ingress: [{from: [%s]%s}], egress: [{to: [%s]%s}]}}",
				i, pick("of-a", "of-b"), pick("{}", "{matchLabels: {app: a}}"), pick("Ingress", "Egress", "Ingress, Egress"), peer(), ports(), peer(), ports())
		}
		for i := range r.IntN(3) {
			add("{apiVersion: policy.networking.k8s.io/v1beta1, kind: ClusterNetworkPolicy, metadata: {name: c%d}, spec: {tier: %s, priority: %d, subject: {namespaces: {}}, ingress: [{action: %s, from: [{namespaces: %s}]}], egress: [{action: %s, to: [{networks: [%s]}]}, {action: %s, to: [{namespaces: {}}]}]}}",
				i, pick("Admin", "Baseline"), i, ordered(), pick("{}", "{matchLabels: {team: x}}"), ordered(), pick("10.0.0.0/8", "0.0.0.0/0", "198.51.100.0/24"), ordered())
		}
		for _, name := range []string{"a", "b"} {
			add("{apiVersion: v1, kind: Pod, metadata: {name: %[1]s, namespace: of-%[1]s, labels: {app: %[1]s}}, spec: {containers: [{name: c, ports: [{name: web, containerPort: 80}]}]}}", name)
		}
		m := manifests(t, text.String())
		o := Options{ClusterDomain: "cluster.local", EnforceNetworkPolicies: r.IntN(3) > 0}
		port := explain.Target{Protocol: policy.TCP, Port: 80}
		ask := func() explain.Verdict {
			answers, err := m.AskFrom(m.Pods[1], explain.From{Namespace: "of-a", Name: "a"}, port, o)
			fatal.If(t, err)
			return answers[0].Verdict
		}
		without := ask()
		for _, addrs := range [][2]string{{"10.1.0.1", "10.2.0.1"}, {"198.51.100.1", "10.1.0.1"}, {"203.0.113.1", "198.51.100.1"}, {"10.2.0.1", "203.0.113.1"}} {
			in := m.input(o)
			for i := range in.Pods {
				in.Pods[i].IPs = []netip.Addr{netip.MustParseAddr(addrs[i])}
				m.Pods[i].addrs = in.Pods[i].IPs
			}
			snap := compile.New().Compile(in)
			to := netip.AddrPortFrom(in.Pods[1].IPs[0], 80)
			f := policy.Flow{Protocol: policy.TCP, Dialled: to, Reached: to, Source: in.Pods[0].IPs[0]}
			out, _ := policy.Evaluate(snap.ViewOf(in.Pods[0].PodRef), snap, &f)
			arrives, _ := policy.EvaluateIngress(snap.ViewOf(in.Pods[1].PodRef), snap, &f)
			want := explain.Denied
			if out && arrives {
				want = explain.Allowed
			} else {
				denied++
			}
			if got := ask(); got != want || without != want && without != explain.Unknown {
				t.Fatalf("%v: want %s, got %s, without addresses %s\n%s", addrs, want, got, without, text.String())
			}
		}
		if without == explain.Unknown {
			unknown++
		}
	}
	if unknown == 0 || unknown > rounds/2 || denied == 0 {
		t.Errorf("of %d, %d are unknown and %d denied", rounds, unknown, denied)
	}
}

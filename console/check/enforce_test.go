package check

import (
	"os"
	"strings"
	"testing"

	"github.com/namegate/namegate/console/explain"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

var inCluster = Options{ClusterDomain: "cluster.local"}

// TestEnforce: the connections that change, of the pods that the policy selects.
func TestEnforce(t *testing.T) {
	const sample = `apiVersion: namegate.io/v1alpha1
kind: ClusterFQDNNetworkPolicy
metadata: {name: rest}
spec:
  tier: Baseline
  priority: 1
  enforcement: Audit
  subject: {namespaces: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: In, values: [pay, shop]}]}}
  egress: [{action: Accept, matches: [{pattern: "*.example.org"}], ports: [{protocol: TCP, port: 443}]}, {action: Deny}]
`
	const watch = "shop/watch enforced: "
	for _, c := range []struct {
		name, text, id string
		to             []string
		want           []string // the lines, and "" for the note of cluster policies
	}{
		{"of a namespace", "shop.yaml", "shop/watch", nil, []string{
			watch + `deployment shop/cart to api.example.org:8000/tcp: allowed, today denied: "api.example.org" of shop/watch (spec.egress[0].matches[0]) at shop.yaml:24 covers the name on tcp/8000-8100; its addresses are opened when the pod asks for it`,
			watch + `cronjob shop/batch to api.example.org:443/tcp: denied, today allowed: "api.example.org" of shop/watch (spec.egress[0].matches[0]) at shop.yaml:24 covers api.example.org on tcp/8000-8100, and not on tcp/443`,
			watch + "cronjob shop/batch to other.invalid:443/tcp: denied, today allowed: no match of the pod's policies covers the name",
			watch + "2 pods, 10 connections compared: 2 denied that pass today, 1 allowed that are denied today",
		}},
		{"of a namespace, one connection", "shop.yaml", "shop/watch", []string{"www.example.org:443"}, []string{
			watch + "cronjob shop/batch to www.example.org:443/tcp: denied, today allowed: no match of the pod's policies covers the name",
			watch + "2 pods, 2 connections compared: 1 denied that pass today, 0 allowed that are denied today",
		}},
		// A Pass rule of an earlier policy keeps it from the pods of shop.
		{"of the cluster", "tiers.yaml", "trial", []string{"www.example.org:443", "a.test"}, []string{
			"trial enforced: pod pay/other to www.example.org:443/tcp: denied, today allowed: Admin policy trial (spec.egress[0]) at tiers.yaml:42 denies www.example.org; its question gets NXDOMAIN (dns.denied: NXDomain)",
			"trial enforced: 3 pods, 6 connections compared: 1 denied that pass today, 0 allowed that are denied today",
		}},
		{"of a made-up pod", sample, "rest", nil, []string{
			"rest enforced: a pod of pay to other.invalid: denied, today allowed: Baseline policy rest (spec.egress[1]) at stdin:9 denies other.invalid",
			"rest enforced: a pod of pay to other.invalid:443/tcp: denied, today allowed: Baseline policy rest (spec.egress[1]) at stdin:9 denies other.invalid",
			"rest enforced: 1 pod, 4 connections compared: 2 denied that pass today, 0 allowed that are denied today",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := New()
			text := []byte(c.text)
			name := "stdin"
			if strings.HasSuffix(c.text, ".yaml") {
				var err error
				text, err = os.ReadFile("testdata/" + c.text)
				fatal.If(t, err)
				name = c.text
			}
			fatal.If(t, m.Add(name, text))
			var questions []explain.Target
			for _, to := range c.to {
				q, err := explain.ParseTarget(to)
				fatal.If(t, err)
				questions = append(questions, q)
			}
			trial, err := m.Enforce(c.id, nil, questions, inCluster)
			fatal.If(t, err)
			diff.Error(t, c.want, trial.lines())
		})
	}
}

// TestEnforceTwin: a trial says what the answers say to the manifests with the one word changed.
func TestEnforceTwin(t *testing.T) {
	for file, id := range map[string]string{"shop.yaml": "shop/watch", "tiers.yaml": "trial"} {
		text, err := os.ReadFile("testdata/" + file)
		fatal.If(t, err)
		diff.MustEqual(t, 1, strings.Count(string(text), "enforcement: Audit"), file, "Audit policies")
		today, then := manifests(t, string(text)), manifests(t, strings.Replace(string(text), "enforcement: Audit", "enforcement: Enforce", 1))
		trial, err := today.Enforce(id, nil, nil, inCluster)
		fatal.If(t, err)
		changes := map[string]bool{}
		for _, c := range trial.Changes {
			changes[c.Pod+" "+c.To] = c.Verdict != explain.Denied
		}
		changed := 0
		for i, pod := range today.Pods {
			before, after := today.snapshot(inCluster, today.Pods[i]), then.snapshot(inCluster, today.Pods[i])
			for _, q := range questionsOf(before, after, pod.PodRef) {
				a, b := today.Ask(pod, q, inCluster), then.Ask(pod, q, inCluster)
				passes, isChange := changes[b.Pod+" "+b.To]
				if isChange != (a.passes() != b.passes()) || isChange && passes != b.passes() {
					t.Errorf("%s to %s: %s, then %s; the trial says %v %v", b.Pod, b.To, a.Verdict, b.Verdict, isChange, passes)
				}
				if isChange {
					changed++
				}
			}
		}
		if changed != len(trial.Changes) || changed == 0 {
			t.Errorf("%s: %d of %d changes", file, changed, len(trial.Changes))
		}
	}
}

// TestEnforceRefuses: the policies that cannot be tried, and what to write instead.
func TestEnforceRefuses(t *testing.T) {
	for id, want := range map[string]string{
		"admin": "the cluster policy admin is not an Audit policy; write one of trial", "gone": "there is no cluster policy gone in these manifests; write one of trial",
		"shop/out": "the policy shop/out is not an Audit policy; write one of trial", "shop/x": "there is no policy shop/x in these manifests; write one of trial",
		"clusternetworkpolicy:standard": "the cluster policy clusternetworkpolicy:standard is not an Audit policy; write one of trial",
	} {
		_, err := tiers(t).Enforce(id, nil, nil, inCluster)
		if err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", id, err, want)
		}
	}
	if _, err := manifests(t, besidePolicy).Enforce("shop/p", nil, nil, inCluster); err == nil || err.Error() != "the policy shop/p is not an Audit policy; no policy of the manifests is" {
		t.Error(err)
	}
}

package explain

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/policytest"
)

// noon is the moment of all facts.
var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// manifests reads policies, of the namespace shop unless they say another.
func manifests(t *testing.T, text string) (out []*v1alpha1.FQDNNetworkPolicy) {
	t.Helper()
	for doc := range strings.SplitSeq(text, "---\n") {
		if strings.TrimSpace(doc) == "" {
			continue
		}
		var p v1alpha1.FQDNNetworkPolicy
		fatal.If(t, yaml.UnmarshalStrict([]byte(doc), &p), "in", doc)
		if p.Namespace == "" {
			p.Namespace = "shop"
		}
		out = append(out, &p)
	}
	return out
}

// cart is the pod that is asked about.
func cart() policy.Pod {
	return policy.Pod{
		PodRef: policy.PodRef{Namespace: "shop", Name: "cart-1"},
		Labels: map[string]string{"app": "cart", "pod-template-hash": "7d9f"}, IPs: []netip.Addr{netip.MustParseAddr("10.1.0.10")},
	}
}

// about returns the facts of a pod under policies.
func about(t *testing.T, pod policy.Pod, policies []*v1alpha1.FQDNNetworkPolicy) Facts {
	t.Helper()
	snap := compile.New().Compile(compile.Input{Policies: policies, Pods: []policy.Pod{pod}})
	return Facts{
		Now: noon, Pod: pod, View: snap.ViewOf(pod.PodRef), Policies: policies, Problems: snap.Problems, Domain: policytest.Name("cluster.local"),
		Resolvers: []netip.Addr{netip.MustParseAddr("10.96.0.10")},
		Blocked: func(_ fqdn.Name, a netip.Addr) string {
			switch {
			case a == netip.MustParseAddr("169.254.169.254"):
				return "metadata"
			case a.Is4() && a.As4()[0] == 127:
				return "loopback"
			case a.Is4() && a.As4()[0] == 10:
				return "pod"
			}
			return ""
		},
	}
}

func target(t *testing.T, s string) Target {
	t.Helper()
	to, err := ParseTarget(s)
	fatal.If(t, err)
	return to
}

const base = `
metadata: {name: base}
spec:
  podSelector: {matchLabels: {app: cart}}
  egress:
  - matches: [{name: www.example.org}, {pattern: "*.cdn.test"}]
    ports: [{protocol: TCP, port: 443}]
`

const watch = `
metadata: {name: watch}
spec:
  podSelector: {matchLabels: {app: cart}}
  enforcement: Audit
  egress:
  - matches: [{name: bank.test}]
`

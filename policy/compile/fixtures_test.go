package compile

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/policytest"
)

func ptr[T any](v T) *T { return &v }

// aPolicy selects the pods of shop that have the label app of that value; "" selects all.
func aPolicy(name, app string, rules ...v1alpha1.EgressRule) *v1alpha1.FQDNNetworkPolicy {
	p := &v1alpha1.FQDNNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
	if app != "" {
		p.Spec.PodSelector.MatchLabels = map[string]string{"app": app}
	}
	p.Spec.Egress = rules
	return p
}

// aRule has a name for each text without a wildcard and a pattern for the others.
func aRule(texts ...string) v1alpha1.EgressRule {
	return v1alpha1.EgressRule{Matches: policytest.Matches(texts...)}
}

func on(r v1alpha1.EgressRule, ports ...v1alpha1.Port) v1alpha1.EgressRule {
	r.Ports = ports
	return r
}

func tcp(port int32) v1alpha1.Port {
	return v1alpha1.Port{Protocol: ptr(v1alpha1.ProtocolTCP), Port: ptr(port)}
}

// aPod is a pod of shop with the label app.
func aPod(name, app string, ips ...string) policy.Pod {
	p := policytest.Pod(name, strings.Join(ips, " "))
	p.Labels["app"] = app
	return p
}

func compile(pods []policy.Pod, policies ...*v1alpha1.FQDNNetworkPolicy) *policy.Snapshot {
	return New().Compile(Input{Policies: policies, Pods: pods})
}

// matchPaths returns "policy path" of each match of the name.
func matchPaths(d policy.Decision) []string {
	var paths []string
	for _, m := range d.Matches {
		paths = append(paths, m.Policy+" "+m.Path)
	}
	return paths
}

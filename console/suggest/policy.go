package suggest

import (
	"maps"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/namegate/namegate/crds/v1alpha1"
)

// Rule is names that are to be allowed on the same ports.
type Rule struct {
	// Names are exact names, or patterns where they hold a "*".
	Names []string
	// Ports are as in a policy; none is every protocol and port.
	Ports      []v1alpha1.Port
	ServerName v1alpha1.ServerName
}

// Policy returns an enforcing policy that allows the pods of a selector the rules, in
// their order. It does not check bounds: Validate reports rules beyond the bounds of the
// kind (fqdnnp.MaxRules and so on). An empty selector is every pod of the namespace.
func Policy(namespace, name string, selector map[string]string, rules []Rule) v1alpha1.FQDNNetworkPolicy {
	p := v1alpha1.FQDNNetworkPolicy{
		TypeMeta: typeMeta(v1alpha1.Kind), ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
	}
	if len(selector) > 0 {
		p.Spec.PodSelector.MatchLabels = maps.Clone(selector)
	}
	for _, r := range rules {
		rule := v1alpha1.EgressRule{Ports: r.Ports, ServerName: r.ServerName}
		for _, name := range r.Names {
			rule.Matches = append(rule.Matches, match(name))
		}
		p.Spec.Egress = append(p.Spec.Egress, rule)
	}
	return p
}

func typeMeta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion().String(), Kind: kind}
}

// match returns the match of a name or a pattern.
func match(name string) v1alpha1.Match {
	if strings.Contains(name, "*") {
		return v1alpha1.Match{Pattern: &name}
	}
	return v1alpha1.Match{Name: &name}
}

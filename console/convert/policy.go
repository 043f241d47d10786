package convert

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy/api/cfqdnnp"
	"github.com/namegate/namegate/policy/api/fqdnnp"
)

// rule is a rule of either kind.
type rule struct {
	name     string // of cluster policies
	action   v1alpha1.Action
	matches  []v1alpha1.Match
	networks []v1alpha1.Network
	nodes    []*metav1.LabelSelector // of policies for nodes
	pods     []*v1alpha1.PodSubject  // the same
	ports    []v1alpha1.Port
}

// everywhere tells whether a rule has no peers. It keeps a rule whose peers were all left out from becoming a
// rule for every peer.
func (r *rule) everywhere() bool {
	return len(r.matches) == 0 && len(r.networks) == 0 && len(r.nodes) == 0 && len(r.pods) == 0
}

// decided tells whether one of the rules is for every connection, with one of the actions.
func decided(rules []rule, actions ...v1alpha1.Action) bool {
	return slices.ContainsFunc(rules, func(r rule) bool {
		return r.everywhere() && len(r.ports) == 0 && slices.Contains(actions, r.action)
	})
}

// namespaced returns a policy of a namespace, which allows its rules and denies the rest.
func (o *object) namespaced(name string, pods metav1.LabelSelector, rules []rule) *v1alpha1.FQDNNetworkPolicy {
	p := &v1alpha1.FQDNNetworkPolicy{TypeMeta: typeMeta(v1alpha1.Kind), ObjectMeta: o.meta(name, o.namespace)}
	p.Spec.PodSelector = pods
	for _, r := range rules {
		for matches := range slices.Chunk(r.matches, fqdnnp.MaxMatches) {
			for _, ports := range chunks(r.ports, fqdnnp.MaxPorts) {
				p.Spec.Egress = append(p.Spec.Egress, v1alpha1.EgressRule{Matches: matches, Ports: ports})
			}
		}
	}
	return p
}

// place is where a cluster policy is in the order of evaluation.
type place struct {
	tier     v1alpha1.Tier
	priority int32
}

// ofCluster returns a cluster policy.
func (o *object) ofCluster(name string, at place, namespaces, pods *metav1.LabelSelector, rules []rule) *v1alpha1.ClusterFQDNNetworkPolicy {
	p := &v1alpha1.ClusterFQDNNetworkPolicy{TypeMeta: typeMeta(v1alpha1.ClusterKind), ObjectMeta: o.meta(name, "")}
	p.Spec.Tier, p.Spec.Priority = at.tier, &at.priority
	p.Spec.Subject.Pods = &v1alpha1.PodSubject{NamespaceSelector: namespaces, PodSelector: pods}
	for _, r := range rules {
		if r.action == v1alpha1.ActionDeny && len(r.matches) > 0 {
			p.Spec.DNS.Denied = v1alpha1.UnmatchedResolve // no other system denies the query
		}
		for _, c := range r.cut() {
			p.Spec.Egress = append(p.Spec.Egress, v1alpha1.ClusterEgressRule{Name: c.name, Action: c.action, Matches: c.matches, Networks: c.networks, Ports: c.ports})
		}
	}
	return p
}

// cut returns the rule as several, as many as its lists need.
func (r *rule) cut() (rules []rule) {
	matches, networks := chunks(r.matches, cfqdnnp.MaxMatches), chunks(r.networks, cfqdnnp.MaxNetworks)
	nodes, pods := chunks(r.nodes, 1), chunks(r.pods, 1)
	for i := range max(len(matches), len(networks), len(nodes), len(pods)) {
		one := rule{name: r.name, action: r.action, matches: item(matches, i), networks: item(networks, i), nodes: item(nodes, i), pods: item(pods, i)}
		for _, one.ports = range chunks(r.ports, cfqdnnp.MaxPorts) {
			rules = append(rules, one)
		}
	}
	return rules
}

// item returns an item of a list, nil behind its end.
func item[T any](list [][]T, i int) []T {
	if i < len(list) {
		return list[i]
	}
	return nil
}

// chunks returns parts of a list, the empty one too, of at most n items.
func chunks[T any](list []T, n int) [][]T {
	if len(list) <= n {
		return [][]T{list}
	}
	return slices.Collect(slices.Chunk(list, n))
}

// denyRest is the policy that denies the subject all that no other policy allows.
func (o *object) denyRest(name string, namespaces, pods *metav1.LabelSelector) *v1alpha1.ClusterFQDNNetworkPolicy {
	return o.ofCluster(name+"-default", place{v1alpha1.TierBaseline, cfqdnnp.MaxPriority}, namespaces, pods, []rule{{name: "default", action: v1alpha1.ActionDeny}})
}

// numberedName is the name of the part i of what becomes several policies.
func numberedName(name string, i int) string {
	if i == 0 {
		return name
	}
	return name + "-" + strconv.Itoa(i)
}

func typeMeta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion().String(), Kind: kind}
}

// meta returns the metadata of a policy: labels and annotations of the object.
func (o *object) meta(name, namespace string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: o.metadata.Labels, Annotations: o.metadata.Annotations}
}

// namespaceNamed selects one namespace.
func namespaceNamed(name string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: name}}
}

// rulesOf converts the rules of a list, and returns those of which anything is left.
func rulesOf[T any](list []T, path string, convert func(from *T, path string) (rule, bool)) (rules []rule) {
	for i := range list {
		if r, ok := convert(&list[i], fmt.Sprintf("%s[%d]", path, i)); ok {
			rules = append(rules, r)
		}
	}
	return rules
}

// addPorts adds the ports of a list to a rule, and notes why one is left out.
func addPorts[T any](o *object, r *rule, list []T, path string, convert func(from T) (v1alpha1.Port, error)) {
	for i, from := range list {
		port, err := convert(from)
		if err != nil {
			o.without(r.action, fmt.Sprintf("%s[%d]", path, i), "is left out: %v", err)
			continue
		}
		r.ports = append(r.ports, port)
	}
}

// actionOf reads the action of a rule, and tells whether it is one.
func (o *object) actionOf(word, path string, actions map[string]v1alpha1.Action) (r rule, ok bool) {
	if r.action, ok = actions[word]; !ok {
		o.note(Failed, path+".action", "%q is no action", word)
	}
	return r, ok
}

// others returns the written fields of a part of a source beside the named ones: null and a list without
// items are not written.
func others(part any, known ...string) (fields []string) {
	v := reflect.Indirect(reflect.ValueOf(part))
	for i := range v.NumField() {
		f, name := v.Field(i), v.Type().Field(i).Tag.Get("json")
		raw, _ := f.Interface().(json.RawMessage)
		empty := f.IsZero() || f.Kind() == reflect.Slice && f.Len() == 0 || string(raw) == "null" || string(raw) == "[]"
		if !empty && !slices.Contains(known, name) {
			fields = append(fields, name)
		}
	}
	return fields
}

// open tells whether a rule with that many ports in its source has any left.
func (r *rule) open(written int) bool { return len(r.ports) > 0 || written == 0 }

// policyPort is a port as NetworkPolicies have it.
type policyPort struct {
	Protocol string              `json:"protocol"`
	Port     *intstr.IntOrString `json:"port"`
	EndPort  int32               `json:"endPort"`
}

// text returns the port as it is written.
func (p policyPort) text() string {
	if p.Port == nil || p.EndPort > 0 {
		return ""
	}
	return p.Port.String()
}

// dnsAlone tells whether all ports, of which there is one at least, are those of DNS by number or name.
func dnsAlone[T any](ports []T, text func(T) string) bool {
	return len(ports) > 0 && !slices.ContainsFunc(ports, func(p T) bool { return text(p) != "53" && !strings.HasPrefix(text(p), "dns") })
}

// numbered returns a port as NetworkPolicies have it: TCP without a protocol.
func numbered(from policyPort) (v1alpha1.Port, error) {
	if from.Protocol == "" {
		from.Protocol = "TCP"
	}
	p, err := protocolNamed(from.Protocol)
	switch {
	case err != nil:
		return v1alpha1.Port{}, err
	case from.Port == nil:
		return portOf(p, 0, 0), nil
	case from.Port.Type == intstr.String:
		return v1alpha1.Port{}, fmt.Errorf("port %q is no number, and ports of other hosts have no names here", from.Port.StrVal)
	}
	return portOf(p, from.Port.IntVal, from.EndPort), nil
}

// ownNamespace returns an error if a policy of a namespace selects another one.
func (o *object) ownNamespace(selected *metav1.LabelSelector) error {
	if o.cluster || empty(selected) || o.namespace != "" && reflect.DeepEqual(selected, namespaceNamed(o.namespace)) {
		return nil
	}
	return fmt.Errorf("it selects by namespace, and is a policy of one; leave the namespace out of the selector, or if it is the policy's own, write metadata.namespace or run namegate convert -n NAMESPACE")
}

// empty tells whether a selector selects everything.
func empty(s *metav1.LabelSelector) bool {
	return len(s.MatchExpressions) == 0 && len(s.MatchLabels) == 0
}

// portOf returns a port; 0 is every port of the protocol.
func portOf(protocol v1alpha1.Protocol, first, last int32) v1alpha1.Port {
	p := v1alpha1.Port{Protocol: &protocol}
	if first > 0 {
		p.Port = &first
	}
	if last > first && first > 0 {
		p.EndPort = &last
	}
	return p
}

// protocolNamed returns a protocol that has ports, in any case of letters.
func protocolNamed(text string) (v1alpha1.Protocol, error) {
	switch p := v1alpha1.Protocol(strings.ToUpper(text)); p {
	case v1alpha1.ProtocolTCP, v1alpha1.ProtocolUDP, v1alpha1.ProtocolSCTP, v1alpha1.ProtocolALL:
		return p, nil
	}
	return "", fmt.Errorf("protocol %q has no equal; write TCP, UDP or SCTP", text)
}

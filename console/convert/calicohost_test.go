package convert

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestHostEndpoints: which nodes, interfaces and pods a GlobalNetworkPolicy of Calico is for, with the HostEndpoints
// of a later file.
func TestHostEndpoints(t *testing.T) {
	policy := `{apiVersion: projectcalico.org/v3, kind: GlobalNetworkPolicy, metadata: {name: p}, spec: {order: 1, SPEC}}`
	host := func(name, spec, labels string) string {
		return `{apiVersion: projectcalico.org/v3, kind: HostEndpoint, metadata: {name: ` + name + `, labels: {` + labels + `}}, spec: {` + spec + `}}`
	}
	a0 := host("a0", "node: a, interfaceName: eth0, profiles: [projectcalico-default-allow]", "role: edge")
	a1 := host("a1", "node: a, interfaceName: eth1, profiles: [projectcalico-default-allow]", "role: edge")
	b0 := host("b0", "node: b, interfaceName: eth0, profiles: [projectcalico-default-allow]", "role: edge")
	closed := host("c0", "node: c, interfaceName: eth0", "role: lab")
	auto := host("auto", `node: auto, interfaceName: "*", profiles: [projectcalico-default-allow]`, `role: edge, projectcalico.org/created-by: calico-kube-controllers`)
	star := host("star", `node: s, interfaceName: "*", profiles: [projectcalico-default-allow]`, "role: edge")
	names := `egress: [{action: Allow, destination: {domains: [x.test]}}, {action: Deny}]`
	for _, c := range []struct {
		spec  string
		hosts []string
		want  string // kind, name, traffic, nodes and interfaces of each policy
	}{
		{`selector: all(), ` + names, nil, "ClusterFQDNNetworkPolicy p"},
		{`selector: all(), ` + names, []string{auto}, "NodeNetworkPolicy p Local {} [*]; ClusterFQDNNetworkPolicy p"},
		{`selector: all(), namespaceSelector: global(), ` + names, []string{auto}, "NodeNetworkPolicy p Local {} [*]"},
		{`selector: all(), namespaceSelector: all(), ` + names, []string{auto}, "ClusterFQDNNetworkPolicy p"},
		{`selector: "!has(host-endpoint)", ` + names, nil, "ClusterFQDNNetworkPolicy p"},
		{`selector: has(host-endpoint), ` + names, nil, "NodeNetworkPolicy p Local host-endpoint []"},
		{`selector: "has(projectcalico.org/created-by)", ` + names, []string{auto}, "NodeNetworkPolicy p Local {} [*]"},
		{`selector: role == 'edge', ingress: [{action: Deny}]`, []string{a1, b0, a0}, "NodeNetworkPolicy p Local b [eth0]; NodeNetworkPolicy p-1 Local a [eth0 eth1]"},
		{`selector: role == 'edge', ingress: [{action: Deny}]`, []string{auto, b0}, "NodeNetworkPolicy p Local auto [*]; NodeNetworkPolicy p-1 Local b [eth0]"},
		{`selector: role == 'edge', ingress: [{action: Deny}]`, []string{star}, "NodeNetworkPolicy p Local s [*]"},
		{`selector: kubernetes.io/hostname == 'h', ingress: [{action: Deny}]`, nil, "NodeNetworkPolicy p Local h []"},
		{`selector: role == 'edge', ingress: [{action: Deny}]`, nil, ""},
		{`selector: role == 'lab', ingress: [{action: Allow, source: {nets: [192.0.2.0/24]}}]`, []string{closed},
			"NodeNetworkPolicy p Local c [eth0]; NodeNetworkPolicy p-default Local c [eth0]; NodeNetworkPolicy c0-default Local c [eth0]"},
		{`applyOnForward: true, selector: role == 'edge', ingress: [{action: Allow, source: {nets: [192.0.2.0/24]}}]`, []string{a0},
			"NodeNetworkPolicy p Local a [eth0]; NodeNetworkPolicy p-default Local a [eth0]; NodeNetworkPolicy p-forwarded Forwarded a [eth0]; NodeNetworkPolicy p-forwarded-default Forwarded a [eth0]"},
		{`applyOnForward: true, preDNAT: true, selector: role == 'edge', ingress: [{action: Allow, source: {nets: [192.0.2.0/24]}}]`, []string{a0}, "NodeNetworkPolicy p BeforeNAT a [eth0]"},
		{`applyOnForward: true, doNotTrack: true, selector: role == 'edge', egress: [{action: Deny, protocol: UDP}]`, []string{a0}, "NodeNetworkPolicy p Untracked a [eth0]"},
	} {
		var r Result
		fatal.If(t, r.Add("p.yaml", []byte(strings.Replace(policy, "SPEC", c.spec, 1))))
		fatal.If(t, r.Add("q.yaml", []byte(strings.Join(c.hosts, "\n---\n"))))
		r.Convert()
		var got []string
		for text := range strings.SplitSeq(string(r.YAML), "---\n") {
			var p v1alpha1.NodeNetworkPolicy
			if fatal.If(t, yaml.Unmarshal([]byte(text), &p)); p.Kind != v1alpha1.NodeKind {
				got = append(got, strings.TrimSpace(p.Kind+" "+p.Name))
				continue
			}
			nodes := "{}"
			for _, value := range p.Spec.NodeSelector.MatchLabels {
				nodes = value
			}
			for _, e := range p.Spec.NodeSelector.MatchExpressions {
				if nodes = strings.Join(e.Values, " "); e.Operator == metav1.LabelSelectorOpExists {
					nodes = e.Key
				}
			}
			got = append(got, fmt.Sprint(p.Kind, " ", p.Name, " ", p.Spec.Traffic, " ", nodes, " ", p.Spec.Interfaces))
		}
		if text := strings.Join(got, "; "); text != c.want {
			t.Errorf("%s with %d hosts: %s, want %s\n%v", c.spec, len(c.hosts), text, c.want, r.Notes)
		}
	}
}

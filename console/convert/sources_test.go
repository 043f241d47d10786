package convert

import (
	"strings"
	"testing"

	"github.com/namegate/namegate/console/check"
	"github.com/namegate/namegate/console/explain"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestSources: policies of each system allow and deny by check as they did there, and every part
// without an equal is noted. Notes are compared by grade and path, connections by their verdict.
func TestSources(t *testing.T) {
	for name, c := range map[string]struct {
		text, notes, allowed, denied string
		certain                      bool
	}{
		"cilium": {`{apiVersion: cilium.io/v2, kind: CiliumNetworkPolicy, metadata: {name: p, namespace: shop}, spec: {endpointSelector: {matchLabels: {"k8s:app": cart}}, egress: [
			{toEndpoints: [{}], toPorts: [{ports: [{port: "53", protocol: ANY}], rules: {dns: [{matchPattern: "*"}]}}]},
			{toCIDR: [192.0.2.0/24]},
			{toFQDNs: [{matchName: a.test}, {matchPattern: "*.b.test"}], toPorts: [{ports: [{port: "443", protocol: TCP}]}]}]}}`,
			"dropped spec.egress[0], narrower spec.egress[1]", "a.test:443 x.b.test:443", "a.test:80 x.y.b.test:443 c.test:443", true},
		"cilium wider": {`{apiVersion: cilium.io/v2, kind: CiliumNetworkPolicy, metadata: {name: p, namespace: shop}, spec: {endpointSelector: {}, ingress: [{}], egressDeny: [{}], egress: [
			{toFQDNs: [{matchName: a.test}], toPorts: [{ports: [{port: "443"}, {port: https}], serverNames: [a.test]}]}]}}`,
			"wider spec.ingress, wider spec.egressDeny, wider spec.egress[0].toPorts[0].serverNames, narrower spec.egress[0].toPorts[0].ports[1]", "a.test:443/udp", "a.test:80", false},
		"cilium cluster": {`{apiVersion: cilium.io/v2, kind: CiliumClusterwideNetworkPolicy, metadata: {name: p}, spec: {endpointSelector: {matchLabels: {io.kubernetes.pod.namespace: shop, app: cart}}, egress: [{toFQDNs: [{matchName: a.test}]}]}}`,
			"", "a.test:443", "b.test:443", true},
		"cilium unknown field": {`{apiVersion: cilium.io/v2, kind: CiliumNetworkPolicy, metadata: {name: p}, spec: {endpointSelector: {}, egress: [{toNames: []}]}}`, "failed ", "", "", false},
		"calico": {`{apiVersion: projectcalico.org/v3, kind: NetworkPolicy, metadata: {name: p, namespace: shop}, spec: {order: 10, selector: "app == 'cart' && !has(old)", types: [Egress], egress: [
			{action: Allow, protocol: TCP, destination: {domains: [a.test, "*.b.test"], ports: [443, "8000:8080"]}}, {action: Deny}]}}`,
			"dropped spec.order, dropped spec.egress[1]", "a.test:443 x.y.b.test:8001", "b.test:443 a.test:80", true},
		"calico deny first": {`{apiVersion: projectcalico.org/v3, kind: NetworkPolicy, metadata: {name: p, namespace: shop}, spec: {egress: [
			{action: Deny, destination: {nets: [192.0.2.0/24]}}, {action: Allow, destination: {domains: [a.test]}}]}}`, "wider spec.egress[0]", "a.test:443", "b.test:443", false},
		"calico global": {`{apiVersion: projectcalico.org/v3, kind: GlobalNetworkPolicy, metadata: {name: p}, spec: {order: 10, selector: "app in {'cart', 'web'}", namespaceSelector: "projectcalico.org/name == 'shop'", egress: [
			{action: Allow, protocol: TCP, destination: {domains: [a.test], ports: [443]}}]}}`, "", "a.test:443", "b.test:443 a.test:80", true},
		"calico or": {`{apiVersion: projectcalico.org/v3, kind: GlobalNetworkPolicy, metadata: {name: p}, spec: {selector: "a == 'b' || has(c)", egress: [{action: Allow, destination: {domains: [a.test]}}]}}`, "failed spec", "", "", false},
		"antrea": {`{apiVersion: crd.antrea.io/v1beta1, kind: ClusterNetworkPolicy, metadata: {name: p}, spec: {priority: 5, tier: securityops, appliedTo: [{podSelector: {matchLabels: {app: cart}}}], egress: [
			{action: Allow, to: [{fqdn: "*.a.test"}], ports: [{port: 443}]}, {action: Drop, to: [{fqdn: "*a.test"}], name: rest, enableLogging: false}]}}`,
			"", "x.y.a.test:443 b.test:443", "x.y.a.test:80 a.test:443 x.aa.test:80", true},
		"antrea deny narrower": {`{apiVersion: crd.antrea.io/v1beta1, kind: NetworkPolicy, metadata: {name: p, namespace: shop}, spec: {priority: 5, appliedTo: [{podSelector: {}}], egress: [{action: Drop, to: [{fqdn: "a*.test"}, {podSelector: {}}]}]}}`,
			"wider spec.egress[0].to[0].fqdn, wider spec.egress[0].to[1]", "b.test:443", "ax.test:443", false},
		"aws": {`{apiVersion: networking.k8s.aws/v1alpha1, kind: ApplicationNetworkPolicy, metadata: {name: p, namespace: shop}, spec: {podSelector: {}, policyTypes: [Egress], egress: [
			{to: [{domainNames: [a.test, "*.b.test"]}, {ipBlock: {cidr: 192.0.2.0/24}}], ports: [{port: 443, protocol: TCP}]}]}}`, "narrower spec.egress[0].to[1]", "a.test:443 x.y.b.test:443", "b.test:443 a.test:80", true},
		"aws cluster": {`{apiVersion: networking.k8s.aws/v1alpha1, kind: ClusterNetworkPolicy, metadata: {name: p}, spec: {tier: Admin, priority: 7, subject: {namespaces: {}}, egress: [
			{name: ok, action: Accept, to: [{domainNames: ["*.a.test"]}], ports: [{portRange: {protocol: TCP, start: 443, end: 444}}]}, {action: Deny, to: [{networks: [0.0.0.0/0]}]}, {action: Deny, to: [{namespaces: {}}]}]}}`,
			"wider spec.egress[2].to[0]", "x.a.test:444", "", false},
		"ovn": {`{apiVersion: k8s.ovn.org/v1, kind: EgressFirewall, metadata: {name: default, namespace: shop}, spec: {egress: [
			{type: Deny, to: {dnsName: x.a.test}}, {type: Allow, to: {dnsName: "*.a.test"}, ports: [{protocol: TCP, port: 443}]}, {type: Deny, to: {cidrSelector: 0.0.0.0/0}}]}}`, "narrower spec.egress[2]", "y.a.test:443", "x.a.test:443", true},
		"istio": {`{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {name: p, namespace: shop}, spec: {hosts: [a.test, "*.b.test"], exportTo: ["."], location: MESH_EXTERNAL, resolution: DNS, ports: [{number: 443, name: https, protocol: TLS}]}}`,
			"narrower ", "a.test:443 x.y.b.test:443", "c.test:443 a.test:80", true},
		"istio of all": {`{apiVersion: networking.istio.io/v1beta1, kind: ServiceEntry, metadata: {name: p, namespace: shop}, spec: {hosts: [a.test]}}`, "wider ", "a.test:443 b.test:443", "", false},
		"list":         {`{apiVersion: cilium.io/v2, kind: CiliumNetworkPolicyList, items: [{apiVersion: cilium.io/v2, kind: CiliumNetworkPolicy, metadata: {name: p}, spec: {endpointSelector: {}, egress: [{}]}}]}`, "failed ", "", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			var r Result
			fatal.If(t, r.Add("p.yaml", []byte(strings.ReplaceAll(c.text, "\t", " "))))
			var notes []string
			for _, n := range r.Notes {
				notes = append(notes, string(n.Grade)+" "+n.Path)
			}
			if got := strings.Join(notes, ", "); got != c.notes || r.Certain() != c.certain {
				t.Errorf("certain %v, notes %s\n%v", r.Certain(), got, r.Notes)
			}
			m := check.New()
			fatal.If(t, m.Add("out.yaml", r.YAML))
			o := check.Options{ClusterDomain: "cluster.local"}
			for _, f := range m.Lint(o) {
				if f.Severity == check.Error {
					t.Error(f)
				}
			}
			pod, err := check.PodWith("shop", "app=cart")
			fatal.If(t, err)
			for verdict, questions := range map[bool]string{true: c.allowed, false: c.denied} {
				for _, text := range strings.Fields(questions) {
					q, err := explain.ParseTarget(text)
					fatal.If(t, err)
					if a := m.Ask(pod, q, o); a.Allowed() != verdict {
						t.Errorf("%s\n%s", a, r.YAML)
					}
				}
			}
		})
	}
}

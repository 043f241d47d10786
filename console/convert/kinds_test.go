package convert

import (
	"strings"
	"testing"

	"github.com/namegate/namegate/e2e/fatal"
)

// converted returns the result of one manifest, and its notes by grade and path.
func converted(t *testing.T, text string) (out, notes string) { return convertedIn(t, "", text) }

// convertedIn does so with a namespace for objects that name none.
func convertedIn(t *testing.T, namespace, text string) (out, notes string) {
	t.Helper()
	r := Result{Namespace: namespace}
	fatal.If(t, r.Add("p.yaml", []byte(strings.ReplaceAll(text, "\t", " "))))
	var lines []string
	for _, n := range r.Notes {
		lines = append(lines, string(n.Grade)+" "+n.Path)
	}
	return string(r.YAML), strings.Join(lines, ", ")
}

// TestCiliumDefaultDeny: enableDefaultDeny is read; without a default-deny for egress less is allowed here.
func TestCiliumDefaultDeny(t *testing.T) {
	for deny, want := range map[string]string{
		"{egress: true, ingress: false}": "",
		"{egress: true}":                 "",
		"{egress: false}":                "narrower spec.enableDefaultDeny",
		"{Egress: true}":                 "failed ",
	} {
		out, notes := converted(t, `{apiVersion: cilium.io/v2, kind: CiliumNetworkPolicy, metadata: {name: p, namespace: shop}, spec: {endpointSelector: {},
			enableDefaultDeny: `+deny+`, egress: [{toFQDNs: [{matchName: a.test}], toPorts: [{ports: [{port: "443", protocol: TCP}]}]}]}}`)
		if notes != want || strings.Contains(out, "name: a.test") == strings.HasPrefix(want, "failed") {
			t.Errorf("%s: %q, want %q\n%s", deny, notes, want, out)
		}
	}
}

// TestAntreaVersions: both versions of Antrea's kinds are read, and objects of the cluster have no namespace.
func TestAntreaVersions(t *testing.T) {
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		for kind, name := range map[string]string{"ClusterNetworkPolicy": "name: drop-name", "NetworkPolicy": "name: shop-drop-name"} {
			metadata := "{name: drop-name}"
			if kind == "NetworkPolicy" {
				metadata = "{name: drop-name, namespace: shop}"
			}
			out, notes := converted(t, `{apiVersion: crd.antrea.io/`+version+`, kind: `+kind+`, metadata: `+metadata+`, spec: {priority: 1,
				appliedTo: [{podSelector: {matchLabels: {app: client}}}], egress: [{action: Drop, to: [{fqdn: example.org}]}]}}`)
			for _, part := range []string{"kind: ClusterFQDNNetworkPolicy", name, "action: Deny", "name: example.org", "denied: Drop", "app: client"} {
				if notes != "" || !strings.Contains(out, part) {
					t.Errorf("%s %s: %q, want %s in\n%s", version, kind, notes, part, out)
				}
			}
		}
	}
	var r Result
	fatal.If(t, r.Add("p.yaml", []byte("{apiVersion: crd.antrea.io/v9, kind: ClusterNetworkPolicy, metadata: {name: p}}")))
	if len(r.Notes) != 1 || r.Notes[0].Object != "ClusterNetworkPolicy p" {
		t.Error(r.Notes)
	}
}

// TestControllerOfGKE: policies of the open-source controller have fqdns, and ports of TCP without a protocol.
func TestControllerOfGKE(t *testing.T) {
	out, notes := converted(t, `{apiVersion: networking.gke.io/v1alpha3, kind: FQDNNetworkPolicy, metadata: {name: p, namespace: shop}, spec: {podSelector: {matchLabels: {app: cart}},
		egress: [{to: [{fqdns: [a.test, b.test]}, {fqdns: [c.test]}], ports: [{port: 443}, {port: https}]}], ingress: [{from: [{fqdns: [d.test]}]}], policyTypes: [Egress, Ingress]}}`)
	want := "apiVersion: namegate.io/v1alpha1\nkind: FQDNNetworkPolicy\nmetadata:\n  name: p\n  namespace: shop\nspec:\n  egress:\n  - matches:\n    - name: a.test\n" +
		"    - name: b.test\n    - name: c.test\n    ports:\n    - port: 443\n      protocol: TCP\n  podSelector:\n    matchLabels:\n      app: cart\n"
	if out != want || notes != "wider spec.ingress, narrower spec.egress[0].ports[1]" {
		t.Errorf("%q\n%s", notes, out)
	}
	if out, notes := converted(t, `{apiVersion: networking.gke.io/v1alpha2, kind: FQDNNetworkPolicy, metadata: {name: p}, spec: {podSelector: {}, ingress: [{from: [{fqdns: [d.test]}]}]}}`); out != "" || notes != "failed " {
		t.Errorf("%q\n%s", notes, out)
	}
}

// withoutNamespace are policies of a namespace that do not name it, and whether it becomes a part of the
// result.
var withoutNamespace = map[string]struct {
	text  string
	needs bool
}{
	"gke":              {`{apiVersion: networking.gke.io/v1alpha1, kind: FQDNNetworkPolicy, metadata: {name: p}, spec: {podSelector: {}, egress: [{matches: [{name: a.test}]}]}}`, false},
	"controller":       {`{apiVersion: networking.gke.io/v1alpha3, kind: FQDNNetworkPolicy, metadata: {name: p}, spec: {podSelector: {}, egress: [{to: [{fqdns: [a.test]}]}]}}`, false},
	"cilium":           {`{apiVersion: cilium.io/v2, kind: CiliumNetworkPolicy, metadata: {name: p}, spec: {endpointSelector: {}, egress: [{toFQDNs: [{matchName: a.test}]}]}}`, false},
	"cilium selecting": {`{apiVersion: cilium.io/v2, kind: CiliumNetworkPolicy, metadata: {name: p}, spec: {endpointSelector: {matchLabels: {"k8s:io.kubernetes.pod.namespace": shop}}, egress: [{toFQDNs: [{matchName: a.test}]}]}}`, true},
	"calico":           {`{apiVersion: projectcalico.org/v3, kind: NetworkPolicy, metadata: {name: p}, spec: {egress: [{action: Allow, destination: {domains: [a.test]}}]}}`, false},
	"calico selecting": {`{apiVersion: projectcalico.org/v3, kind: NetworkPolicy, metadata: {name: p}, spec: {selector: "projectcalico.org/namespace == 'shop'", egress: [{action: Allow, destination: {domains: [a.test]}}]}}`, true},
	"antrea":           {`{apiVersion: crd.antrea.io/v1beta1, kind: NetworkPolicy, metadata: {name: p}, spec: {priority: 1, appliedTo: [{podSelector: {}}], egress: [{action: Allow, to: [{fqdn: a.test}]}]}}`, true},
	"aws":              {`{apiVersion: networking.k8s.aws/v1alpha1, kind: ApplicationNetworkPolicy, metadata: {name: p}, spec: {podSelector: {}, policyTypes: [Egress], egress: [{to: [{domainNames: [a.test]}]}]}}`, false},
	"ovn":              {`{apiVersion: k8s.ovn.org/v1, kind: EgressFirewall, metadata: {name: p}, spec: {egress: [{type: Allow, to: {dnsName: a.test}}]}}`, true},
	"istio":            {`{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {name: p}, spec: {hosts: [a.test], exportTo: ["."]}}`, false},
	"istio of all":     {`{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {name: p}, spec: {hosts: [a.test]}}`, true},
}

// TestNoNamespace: a policy without a namespace stays without one; where the result selects by it, the
// conversion fails, and -n has it.
func TestNoNamespace(t *testing.T) {
	for name, c := range withoutNamespace {
		out, notes := converted(t, c.text)
		failed := strings.HasPrefix(notes, "failed metadata.namespace") || strings.HasPrefix(notes, "failed spec.")
		if c.needs != failed || c.needs != (out == "") || strings.Contains(out, "namespace: ") || strings.Contains(out+notes, "default") {
			t.Errorf("%s: %q\n%s", name, notes, out)
		}
		if out, notes = convertedIn(t, "shop", c.text); strings.Contains(notes, "failed") || !strings.Contains(out, ": shop") {
			t.Errorf("%s of shop: %q\n%s", name, notes, out)
		}
	}
	var r Result
	fatal.If(t, r.Add("p.yaml", []byte(withoutNamespace["ovn"].text)))
	if note := r.Notes[0].String(); !strings.Contains(note, ": EgressFirewall p: ") || !strings.Contains(note, "-n NAMESPACE") {
		t.Error(note)
	}
}

// TestNamesOfTheCluster: where a name leads outside alone, or behind a Service, a match with names of the
// cluster is wider with an Accept, and narrower with a Deny.
func TestNamesOfTheCluster(t *testing.T) {
	gke := `{apiVersion: networking.gke.io/v1alpha1, kind: FQDNNetworkPolicy, metadata: {name: p}, spec: {podSelector: {}, egress: [{matches: [{pattern: "NAME"}]}]}}`
	cilium := `{apiVersion: cilium.io/v2, kind: CiliumNetworkPolicy, metadata: {name: p}, spec: {endpointSelector: {}, egress: [{toFQDNs: [{matchPattern: "NAME"}]}]}}`
	calico := `{apiVersion: projectcalico.org/v3, kind: NetworkPolicy, metadata: {name: p}, spec: {egress: [{action: Allow, destination: {domains: ["NAME"]}}]}}`
	antrea := `{apiVersion: crd.antrea.io/v1beta1, kind: ClusterNetworkPolicy, metadata: {name: p}, spec: {priority: 1, appliedTo: [{podSelector: {}}], egress: [{action: Drop, to: [{fqdn: "NAME"}]}]}}`
	ovn := `{apiVersion: k8s.ovn.org/v1, kind: EgressFirewall, metadata: {name: p, namespace: shop}, spec: {egress: [{type: Allow, to: {dnsName: "NAME"}}]}}`
	for _, c := range []struct{ text, name, want string }{
		{cilium, "*", "wider"}, {cilium, "**.local", "wider wider"}, {cilium, "*.*.svc.cluster.local", "wider"}, {cilium, "db.shop.svc.cluster.local.", "wider"},
		{cilium, "web-0.db.shop.svc.cluster.local", "wider"}, {cilium, "*.svc.cluster.local", ""}, {cilium, "*.*.*.*.*", "wider"}, {cilium, "*.example.org", ""},
		{gke, "*", "wider"}, {gke, "api-*.*.svc.cluster.local", "wider"}, {gke, "*.*", ""}, {calico, "*", "wider"}, {calico, "*.cluster.local", "wider"},
		{antrea, "*.local", "narrower"}, {antrea, "*example.org", ""}, {ovn, "db.shop.svc.cluster.local", ""},
	} {
		out, notes := converted(t, strings.ReplaceAll(c.text, "NAME", c.name))
		var grades []string
		for note := range strings.SplitSeq(notes, ", ") {
			grade, _, _ := strings.Cut(note, " ")
			grades = append(grades, grade)
		}
		if strings.Join(grades, " ") != c.want || out == "" {
			t.Errorf("%s in %.40s: %q, want %s", c.name, c.text, notes, c.want)
		}
	}
	r := Result{ClusterDomain: "k8s.test"}
	fatal.If(t, r.Add("p.yaml", []byte(strings.ReplaceAll(cilium, "NAME", "db.shop.svc.k8s.test"))))
	if r.Certain() {
		t.Error("a name of another cluster domain is converted without a note")
	}
}

package convert

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/namegate/namegate/testkit/fatal"
)

// converted returns the result of one manifest, and its notes by grade and path.
func converted(t *testing.T, text string) (out, notes string) { return convertedIn(t, "", text) }

// convertedIn does so with a namespace for objects that name none.
func convertedIn(t *testing.T, namespace, text string) (out, notes string) {
	t.Helper()
	r := Result{Namespace: namespace}
	fatal.If(t, r.Add("p.yaml", []byte(strings.ReplaceAll(text, "\t", " "))))
	r.Convert()
	var lines []string
	for _, n := range r.Notes {
		lines = append(lines, string(n.Grade)+" "+n.Path)
	}
	return string(r.YAML), strings.Join(lines, ", ")
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
	r.Convert()
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
		{strings.ReplaceAll(ovn, "Allow", "Deny"), "db.shop.svc.cluster.local", "narrower"},
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
	r.Convert()
	if r.Certain() {
		t.Error("a name of another cluster domain is converted without a note")
	}
}

// TestCalicoParentheses: parentheses around terms with && change nothing.
func TestCalicoParentheses(t *testing.T) {
	for selector, want := range map[string]string{
		"(app == 'cart') && (tier == 'front')":                      "matchLabels:\n      app: cart\n      tier: front\n",
		"((app == 'cart' && tier == 'front'))":                      "matchLabels:\n      app: cart\n      tier: front\n",
		"(app == 'cart' && (has(x) && !has(y))) && z in {'1', '2'}": "matchExpressions:\n    - key: x\n      operator: Exists\n    - key: \"y\"\n      operator: DoesNotExist\n    - key: z\n      operator: In\n      values:\n      - \"1\"\n      - \"2\"\n    matchLabels:\n      app: cart\n",
		"(all())":                              "{}\n",
		"(app == 'cart' || app == 'web') && x": "failed",
		"!(app == 'cart')":                     "failed",
		"(app == 'cart'":                       "failed",
		"app == 'cart')":                       "failed",
		"()":                                   "failed",
		"app == 'cart' && ":                    "failed",
		"(app == 'cart') (tier == 'front')":    "failed",
	} {
		out, notes := converted(t, `{apiVersion: projectcalico.org/v3, kind: NetworkPolicy, metadata: {name: p}, spec: {selector: "`+selector+`", egress: [{action: Allow, destination: {domains: [a.test]}}]}}`)
		if failed := strings.HasPrefix(notes, "failed spec"); failed != (want == "failed") || failed != (out == "") {
			t.Errorf("%s: %q\n%s", selector, notes, out)
		} else if _, pods, _ := strings.Cut(out, "podSelector:"); !failed && strings.TrimLeft(pods, " \n") != want {
			t.Errorf("%s:\n%s", selector, pods)
		}
	}
}

// TestSplit: rules and ports beyond the limits of a policy are in further rules and policies, in order.
func TestSplit(t *testing.T) {
	var ports, rules, global []string
	for i := range 70 {
		ports = append(ports, fmt.Sprintf(`{port: "%d", protocol: TCP}`, 1000+i))
	}
	for i := range 150 {
		rules = append(rules, fmt.Sprintf(`{toFQDNs: [{matchName: n%03d.test}]}`, i))
		global = append(global, fmt.Sprintf(`{action: Allow, protocol: TCP, destination: {domains: [n%03d.test], ports: [%d]}}`, i, 1000+i))
	}
	for name, c := range map[string]struct {
		text, notes string
		rules       []int
	}{
		"ports":                {`{apiVersion: cilium.io/v2, kind: CiliumNetworkPolicy, metadata: {name: p}, spec: {endpointSelector: {}, egress: [{toFQDNs: [{matchName: a.test}], toPorts: [{ports: [` + strings.Join(ports, ", ") + `]}]}]}}`, "", []int{2}},
		"ports of the cluster": {`{apiVersion: cilium.io/v2, kind: CiliumClusterwideNetworkPolicy, metadata: {name: p}, spec: {endpointSelector: {}, egress: [{toFQDNs: [{matchName: a.test}], toPorts: [{ports: [` + strings.Join(ports, ", ") + `]}]}]}}`, "", []int{3, 1}},
		"rules":                {`{apiVersion: cilium.io/v2, kind: CiliumNetworkPolicy, metadata: {name: p}, spec: {endpointSelector: {}, egress: [` + strings.Join(rules, ", ") + `]}}`, "changed spec.egress, changed spec.egress", []int{64, 64, 22}},
		"rules of the cluster": {`{apiVersion: projectcalico.org/v3, kind: GlobalNetworkPolicy, metadata: {name: p}, spec: {order: 1, egress: [` + strings.Join(global, ", ") + `]}}`, "changed spec.egress, changed spec.egress", []int{64, 64, 22, 1}},
	} {
		out, notes := converted(t, c.text)
		var got []int
		var names []string
		for policy := range strings.SplitSeq(out, "---\n") {
			got = append(got, strings.Count(policy, "\n  - action:")+strings.Count(policy, "\n  - matches:"))
			_, rest, _ := strings.Cut(policy, "\n  name: ")
			names = append(names, rest[:strings.Index(rest, "\n")])
		}
		if notes != c.notes || !slices.Equal(got, c.rules) || !slices.IsSorted(names[:len(c.rules)-strings.Count(out, "tier: Baseline")]) {
			t.Errorf("%s: %q, rules %v of %v", name, notes, got, names)
		}
		for i := range 150 {
			if strings.Contains(name, "rules") && !strings.Contains(out, fmt.Sprintf("n%03d.test", i)) {
				t.Errorf("%s: n%03d.test is lost", name, i)
			} else if i < 70 && !strings.Contains(name, "rules") && !strings.Contains(out, fmt.Sprintf("port: %d\n", 1000+i)) {
				t.Errorf("%s: port %d is lost", name, 1000+i)
			}
		}
	}
}

// TestDNSAlone: rules for DNS without names need no equal, whatever their peers.
func TestDNSAlone(t *testing.T) {
	cilium := `{apiVersion: cilium.io/v2, kind: CiliumNetworkPolicy, metadata: {name: p}, spec: {endpointSelector: {}, egress: [{toFQDNs: [{matchName: a.test}]}, RULE]}}`
	calico := `{apiVersion: projectcalico.org/v3, kind: NetworkPolicy, metadata: {name: p}, spec: {egress: [{action: Allow, destination: {domains: [a.test]}}, RULE]}}`
	global := `{apiVersion: projectcalico.org/v3, kind: GlobalNetworkPolicy, metadata: {name: p}, spec: {order: 1, egress: [{action: Allow, destination: {domains: [a.test]}}, RULE]}}`
	antrea := `{apiVersion: crd.antrea.io/v1beta1, kind: ClusterNetworkPolicy, metadata: {name: p}, spec: {priority: 1, appliedTo: [{podSelector: {}}], egress: [{action: Allow, to: [{fqdn: a.test}]}, RULE]}}`
	aws := `{apiVersion: networking.k8s.aws/v1alpha1, kind: ApplicationNetworkPolicy, metadata: {name: p}, spec: {podSelector: {}, policyTypes: [Egress], egress: [{to: [{domainNames: [a.test]}]}, RULE]}}`
	awsCluster := `{apiVersion: networking.k8s.aws/v1alpha1, kind: ClusterNetworkPolicy, metadata: {name: p}, spec: {tier: Admin, priority: 1, subject: {namespaces: {}}, egress: [{action: Accept, to: [{domainNames: [a.test]}]}, RULE]}}`
	ovn := `{apiVersion: k8s.ovn.org/v1, kind: EgressFirewall, metadata: {name: p, namespace: shop}, spec: {egress: [{type: Allow, to: {dnsName: a.test}}, RULE]}}`
	for _, c := range []struct{ policy, rule, want string }{
		{cilium, `{toPorts: [{ports: [{port: "53"}]}]}`, "dropped"}, {cilium, `{toCIDR: [192.0.2.53/32], toPorts: [{ports: [{port: "53", protocol: UDP}]}]}`, "dropped"},
		{cilium, `{toEntities: [cluster], toPorts: [{ports: [{port: dns, protocol: udp}, {port: dns-tcp, protocol: tcp}]}]}`, "dropped"},
		{cilium, `{toCIDR: [192.0.2.53/32], toPorts: [{ports: [{port: "53"}, {port: "443"}]}]}`, "narrower"}, {cilium, `{toCIDR: [192.0.2.53/32]}`, "narrower"},
		{cilium, `{toCIDR: [192.0.2.53/32], toPorts: [{ports: [{port: "53", endPort: 60}]}]}`, "narrower"},
		{calico, `{action: Allow, protocol: UDP, destination: {ports: [53]}}`, "dropped"}, {calico, `{action: Allow, protocol: UDP, destination: {selector: "k8s-app == 'kube-dns'", ports: [53, dns]}}`, "dropped"},
		{calico, `{action: Allow, protocol: UDP, destination: {ports: ["53:60"]}}`, "narrower"}, {calico, `{action: Allow, protocol: UDP}`, "narrower"},
		{global, `{action: Allow, protocol: UDP, destination: {selector: "k8s-app == 'kube-dns'", ports: [53]}}`, "dropped"}, {global, `{action: Allow, protocol: UDP, destination: {ports: [53]}}`, ""},
		{global, `{action: Deny, protocol: UDP, destination: {selector: "k8s-app == 'kube-dns'", ports: [53]}}`, "wider"},
		{antrea, `{action: Allow, to: [{podSelector: {}}], ports: [{protocol: UDP, port: 53}]}`, "dropped"}, {antrea, `{action: Drop, to: [{podSelector: {}}], ports: [{protocol: UDP, port: 53}]}`, "wider"},
		{aws, `{to: [{podSelector: {}}], ports: [{protocol: UDP, port: 53}]}`, "dropped"}, {aws, `{ports: [{protocol: UDP, port: 53}]}`, "dropped"}, {aws, `{to: [{podSelector: {}}]}`, "narrower"},
		{awsCluster, `{action: Accept, to: [{namespaces: {}}], ports: [{portNumber: {protocol: UDP, port: 53}}]}`, "dropped"},
		{ovn, `{type: Allow, to: {nodeSelector: {}}, ports: [{protocol: UDP, port: 53}]}`, "dropped"}, {ovn, `{type: Allow, to: {nodeSelector: {}}}`, "narrower"},
	} {
		out, notes := converted(t, strings.ReplaceAll(c.policy, "RULE", c.rule))
		if grade, _, _ := strings.Cut(notes, " "); grade != c.want || strings.Contains(notes, ",") || !strings.Contains(out, "a.test") {
			t.Errorf("%s: %q, want %s\n%s", c.rule, notes, c.want, out)
		}
	}
}

// TestSpellings: a named port is left out alone, and protocols are read in any case of letters.
func TestSpellings(t *testing.T) {
	for name, c := range map[string]struct{ text, notes, ports string }{
		"calico": {`{apiVersion: projectcalico.org/v3, kind: NetworkPolicy, metadata: {name: p}, spec: {egress: [{action: Allow, protocol: tcp, destination: {domains: [a.test], ports: [443, https]}}]}}`,
			"narrower spec.egress[0].destination.ports[1]", "443 TCP"},
		"calico named alone": {`{apiVersion: projectcalico.org/v3, kind: NetworkPolicy, metadata: {name: p}, spec: {egress: [{action: Allow, protocol: TCP, destination: {domains: [a.test], ports: [https]}}]}}`,
			"narrower spec.egress[0].destination.ports[0]", ""},
		"cilium": {`{apiVersion: cilium.io/v2, kind: CiliumNetworkPolicy, metadata: {name: p}, spec: {endpointSelector: {}, egress: [{toFQDNs: [{matchName: a.test}], toPorts: [{ports: [{port: "443", protocol: tcp}, {port: "8443", protocol: any}]}]}]}}`,
			"", "443 TCP 8443 ALL"},
		"istio": {`{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {name: p}, spec: {hosts: [a.test], exportTo: ["."], ports: [{number: 443, protocol: https}, {number: 80, protocol: Http}, {number: 27017, protocol: mongo}, {number: 9000, protocol: udp}]}}`,
			"narrower ", "443 TCP 80 TCP 27017 TCP 9000 UDP"},
	} {
		out, notes := converted(t, c.text)
		var ports []string
		for line := range strings.Lines(out) {
			if _, value, found := strings.Cut(line, "port: "); found {
				ports = append(ports, strings.TrimSpace(value))
			} else if _, value, found := strings.Cut(line, "protocol: "); found {
				ports = append(ports, strings.TrimSpace(value))
			}
		}
		if notes != c.notes || strings.Join(ports, " ") != c.ports || (c.ports == "") == strings.Contains(out, "matches:") {
			t.Errorf("%s: %q\n%s", name, notes, out)
		}
	}
}

// TestDocumentedKinds: the help and the document list each kind with its versions, and each grade.
func TestDocumentedKinds(t *testing.T) {
	for _, file := range []string{"../cli/convert.go", "../../docs/start/migrate.md"} {
		text, err := os.ReadFile(file)
		fatal.If(t, err)
		for key, s := range sources() {
			group, kind, _ := strings.Cut(key, " ")
			if !slices.ContainsFunc(strings.Split(string(text), "\n"), func(line string) bool {
				for _, version := range append(strings.Fields(s.versions), kind) {
					if !strings.Contains(line, group+"/") || !strings.Contains(line, version) {
						return false
					}
				}
				return true
			}) {
				t.Errorf("%s does not list %s with %s", file, key, s.versions)
			}
		}
		for _, grade := range []Grade{Noted, Changed, Dropped, Narrower, Wider, Failed} {
			if !strings.Contains(string(text), "  "+string(grade)+" ") && !strings.Contains(string(text), "| `"+string(grade)+"` |") {
				t.Errorf("%s does not explain %s", file, grade)
			}
		}
	}
}

// TestEmptyLists: a list without items, and null, are as if they were not written.
func TestEmptyLists(t *testing.T) {
	for text, want := range map[string]string{
		`{apiVersion: cilium.io/v2, kind: CiliumNetworkPolicy, metadata: {name: p, namespace: shop}, spec: {endpointSelector: {}, ingress: [], egressDeny: [], egress: [
			{toFQDNs: [{matchName: a.test}], toCIDR: [], toEndpoints: null, icmps: [], toPorts: [{ports: [{port: "443"}], serverNames: [], listener: null}]}]}}`: "",
		`{apiVersion: projectcalico.org/v3, kind: NetworkPolicy, metadata: {name: p, namespace: shop}, spec: {ingress: [], egress: [
			{action: Allow, notICMP: null, destination: {domains: [a.test], notNets: [], notPorts: [], services: null}}]}}`: "",
		`{apiVersion: crd.antrea.io/v1beta1, kind: NetworkPolicy, metadata: {name: p, namespace: shop}, spec: {priority: 1, ingress: [], appliedTo: [{podSelector: {}, serviceAccount: null}], egress: [
			{action: Allow, protocols: [], toServices: [], to: [{fqdn: a.test}]}]}}`: "",
		`{apiVersion: networking.k8s.aws/v1alpha1, kind: ApplicationNetworkPolicy, metadata: {name: p, namespace: shop}, spec: {podSelector: {}, policyTypes: [Egress], ingress: [], egress: [
			{to: [{domainNames: [a.test], ipBlock: null}]}]}}`: "",
		`{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {name: p, namespace: shop}, spec: {hosts: [a.test], exportTo: ["."], addresses: [], endpoints: []}}`: "narrower ",
	} {
		if out, notes := converted(t, text); notes != want || !strings.Contains(out, "name: a.test") {
			t.Errorf("%s: notes %q, want %q\n%s", text, notes, want, out)
		}
	}
}

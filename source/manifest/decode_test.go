package manifest

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

func decode(t *testing.T, nodeName, name, text string) ([]Object, error) {
	t.Helper()
	d, err := newDecoder(nodeName)
	fatal.If(t, err)
	return d.file(t.Context(), name, []byte(text))
}

func TestDecodeKinds(t *testing.T) {
	for _, c := range []struct {
		name, file, text string
		want             []string // place and key
	}{
		{"a policy", "p.yaml", allowOut, []string{"document 1 (line 1): policy shop/allow-out"}},
		{"several documents", "p.yml", "# a comment\n---\n" + allowOut + "---   # another\n" + podWeb + "---\n",
			[]string{"document 1 (line 3): policy shop/allow-out", "document 2 (line 12): pod shop/web"}},
		{"content on the line of the mark", "p.yaml", "--- {apiVersion: v1, kind: Namespace, metadata: {name: shop}}\n",
			[]string{"document 1 (line 1): namespace shop"}},
		{"carriage returns", "p.yaml", strings.ReplaceAll(allowOut+"---\n"+podWeb, "\n", "\r\n"),
			[]string{"document 1 (line 1): policy shop/allow-out", "document 2 (line 11): pod shop/web"}},
		{"a list", "p.yaml", "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Namespace, metadata: {name: a}}\n" +
			"- {apiVersion: v1, kind: Pod, metadata: {name: b}}\n",
			[]string{"document 1 (line 1) items[0]: namespace a", "document 1 (line 1) items[1]: pod default/b"}},
		{"a list of policies", "p.json", `{"apiVersion":"namegate.io/v1alpha1","kind":"FQDNNetworkPolicyList","metadata":{},"items":[
			{"apiVersion":"namegate.io/v1alpha1","kind":"FQDNNetworkPolicy","metadata":{"name":"p"},"spec":{"podSelector":{}}}]}`,
			[]string{"document 1 (line 1) items[0]: policy default/p"}},
		{"several JSON values", "p.json", "{\"apiVersion\":\"v1\",\"kind\":\"Namespace\",\"metadata\":{\"name\":\"a\"}}\n\n" +
			"{\"apiVersion\":\"v1\",\n\t\"kind\":\"Namespace\",\"metadata\":{\"name\":\"b\"}}",
			[]string{"document 1 (line 1): namespace a", "document 2 (line 3): namespace b"}},
		{"NetworkPolicies", "p.yaml", allowDB + "---\napiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: all}\n",
			[]string{"document 1 (line 1): networkpolicy shop/db", "document 2 (line 15): networkpolicy default/all"}},
		{"a list of NetworkPolicies", "p.json", `{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicyList","metadata":{},"items":[
			{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{"name":"p"},"spec":{"podSelector":{}}}]}`,
			[]string{"document 1 (line 1) items[0]: networkpolicy default/p"}},
		{"another kind of that name, and of that group", "p.yaml", "apiVersion: projectcalico.org/v3\nkind: NetworkPolicy\nmetadata: {name: x}\n---\n" +
			"apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: x}\n",
			[]string{"document 1 (line 1): NetworkPolicy", "document 2 (line 5): Ingress"}},
		{"another kind", "p.yaml", "apiVersion: v1\nkind: Service\nmetadata: {name: x}\nspec: {whatever: 1}\n",
			[]string{"document 1 (line 1): Service"}},
		{"nothing", "p.yaml", "# nothing\n---\n\n---\n", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			objects, err := decode(t, "", c.file, c.text)
			fatal.If(t, err)
			var got []string
			for _, o := range objects {
				got = append(got, o.at+": "+o.key)
			}
			diff.Error(t, c.want, got)
		})
	}
}

func TestDecodeRefuses(t *testing.T) {
	for _, c := range []struct {
		name, file, text string
		want             []string
	}{
		{"unknown field", "p.yaml", strings.Replace(allowOut, "egress", "egres", 1), []string{"document 1 (line 1)", `unknown field "spec.egres"`}},
		{"unknown nested field", "p.yaml", strings.Replace(allowOut, "{protocol", "{proto", 1), []string{`unknown field "spec.egress[0].ports[0].proto"`}},
		{"a field in other case", "p.yaml", strings.Replace(allowOut, "podSelector", "podselector", 1), []string{`unknown field "spec.podselector"`}},
		{"unknown field of a NetworkPolicy", "p.yaml", strings.Replace(allowDB, "except", "excepts", 1), []string{`unknown field "spec.egress[1].to[0].ipBlock.excepts"`}},
		{"NetworkPolicy of old", "p.yaml", strings.Replace(allowDB, "networking.k8s.io/v1", "extensions/v1beta1", 1),
			[]string{"document 1 (line 1)", "apiVersion extensions/v1beta1 is unknown for NetworkPolicy; write networking.k8s.io/v1"}},
		{"NetworkPolicy to come", "p.yaml", strings.Replace(allowDB, "networking.k8s.io/v1", "networking.k8s.io/v2", 1), []string{"write networking.k8s.io/v1"}},
		{"name of a NetworkPolicy", "p.yaml", strings.Replace(allowDB, "name: db", "name: D_B", 1), []string{"metadata.name"}},
		{"unknown field of a pod", "p.yaml", strings.Replace(podWeb, "labels", "lables", 1), []string{`unknown field "metadata.lables"`}},
		{"unknown field in a list", "p.yaml", "apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: Namespace, metadata: {nmae: a}}]", []string{"items[0]", "metadata.nmae"}},
		{"a key twice", "p.yaml", allowOut + "kind: FQDNNetworkPolicy\n", []string{"line 10", `"kind"`}},
		{"a key twice in JSON", "p.json", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a","name":"b"}}`, []string{`duplicate field "metadata.name"`}},
		{"YAML that is none", "p.yaml", podWeb + "---\n" + "kind: [\n", []string{"document 2 (line 7): yaml: line 7"}},
		{"JSON that is none", "p.json", "{\"apiVersion\":\n\n x}", []string{"document 1 (line 1)", "line 3"}},
		{"a wrong type", "p.yaml", strings.Replace(allowOut, "port: 443", "port: https", 1), []string{"document 1", "spec.egress.ports.port"}},
		{"no kind", "p.yaml", "metadata: {name: a}\n", []string{"write apiVersion and kind"}},
		{"a bare text", "p.yaml", "hello\n", []string{"not an object"}},
		{"GKE's version", "p.yaml", strings.Replace(allowOut, "namegate.io/", "networking.gke.io/", 1), []string{"write namegate.io/v1alpha1"}},
		{"another version", "p.yaml", strings.Replace(allowOut, "v1alpha1", "v1", 1), []string{"apiVersion namegate.io/v1 is unknown", "write namegate.io/v1alpha1"}},
		{"another kind of the group", "p.yaml", strings.Replace(allowOut, "FQDNNetworkPolicy", "FQDNPolicy", 1), []string{"no kind FQDNPolicy; write FQDNNetworkPolicy"}},
		{"no selector", "p.yaml", strings.Replace(allowOut, "podSelector: {matchLabels: {app: curl-client}}", "podSelector:", 1), []string{"spec.podSelector is missing; write one, or {} for every pod"}},
		{"no name", "p.yaml", strings.Replace(allowOut, "name: allow-out, ", "", 1), []string{"metadata.name is missing"}},
		{"a bad name", "p.yaml", other("a+b"), []string{`metadata.name "a+b"`}},
		{"a bad namespace", "p.yaml", strings.Replace(podWeb, "shop", "Shop", 1), []string{`metadata.namespace "Shop"`}},
		{"a loopback address", "p.yaml", strings.Replace(podWeb, "{ip: 10.0.0.1}", "{ip: 127.0.0.1}", 1), []string{"document 1", "status.podIPs[0]", "127.0.0.1 is a loopback address"}},
		{"an address with a zone", "p.yaml", strings.Replace(podWeb, "2001:db8::1", "fe80::1%eth0", 1), []string{"status.podIPs[1]", "has a zone"}},
		{"no host's address", "p.yaml", strings.Replace(podWeb, "{ip: 10.0.0.1}", "{ip: 0.0.0.0}", 1), []string{"write the pod's own unicast address"}},
		{"a bad address", "p.yaml", strings.Replace(podWeb, "{ip: 10.0.0.1}", "{ip: 10.0.0}", 1), []string{"status.podIPs[0]", "10.0.0"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			objects, err := decode(t, "", c.file, c.text)
			if err == nil {
				t.Fatalf("%d objects and no error", len(objects))
			}
			for _, want := range c.want {
				diff.Has(t, want, err.Error(), "the error")
			}
		})
	}
}

func TestDecodePod(t *testing.T) {
	want := policy.Pod{
		PodRef: policy.PodRef{Namespace: "shop", Name: "web", UID: "u1"},
		Labels: map[string]string{"app": "curl-client"},
		IPs:    []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("2001:db8::1")},
		Phase:  "Running",
	}
	elsewhere := want
	elsewhere.NodeName = "node-a"
	onHost := want
	onHost.HostNetwork = true
	oneIP := want
	oneIP.IPs = want.IPs[:1]
	withPorts := want
	withPorts.Ports = []policy.NamedPort{{Name: "web", Protocol: policy.TCP, Port: 8080}, {Name: "log", Protocol: policy.UDP, Port: 514}}
	for _, c := range []struct {
		name, node, text string
		want             policy.Pod
	}{
		{"every pod is local", "", podWeb, want},
		{"of this node", "node-a", podWeb, want},
		{"of another node", "node-b", podWeb, elsewhere},
		{"of no node", "node-b", strings.Replace(podWeb, "nodeName: node-a", "", 1), want},
		{"host network", "", strings.Replace(podWeb, "nodeName", "hostNetwork: true, nodeName", 1), onHost},
		{"named ports", "", strings.Replace(podWeb, "spec: {", "spec: {containers: [{name: a, ports: [{name: web, containerPort: 8080}, {containerPort: 1}]}], "+
			"initContainers: [{name: b, restartPolicy: Always, ports: [{name: log, protocol: UDP, containerPort: 514}]}], ", 1), withPorts},
		{"podIP alone", "", podWeb[:strings.Index(podWeb, ", podIPs")] + "}\n", oneIP},
		{"mapped", "", podWeb[:strings.Index(podWeb, ", podIP:")] + `, podIP: "::ffff:10.0.0.1"}` + "\n", oneIP},
	} {
		t.Run(c.name, func(t *testing.T) {
			objects, err := decode(t, c.node, "p.yaml", c.text)
			fatal.If(t, err)
			diff.Error(t, c.want, *objects[0].Pod)
		})
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(allowOut, true)
	f.Add(podWeb+"---\n"+allowOut, true)
	f.Add(allowDB, true)
	f.Add(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a"}}`, false)
	d, err := newDecoder("")
	fatal.If(f, err)
	f.Fuzz(func(t *testing.T, text string, isYAML bool) {
		name := "f.json"
		if isYAML {
			name = "f.yaml"
		}
		objects, err := d.file(t.Context(), name, []byte(text))
		if err != nil && objects != nil {
			t.Error("objects beside an error")
		}
		for _, o := range objects {
			set := 0
			for _, is := range []bool{o.Policy != nil, o.ClusterPolicy != nil, o.ClusterNetworkPolicy != nil, o.NetworkPolicy != nil, o.Pod != nil, o.node != nil, strings.HasPrefix(o.key, "namespace "), o.ignored != ""} {
				if is {
					set++
				}
			}
			if set != 1 || o.at == "" || o.key == "" {
				t.Errorf("an object of %d kinds: %+v", set, o)
			}
		}
	})
}

// merged is a policy whose second rule takes over the first, and has matches of its own.
const merged = `apiVersion: namegate.io/v1alpha1
kind: FQDNNetworkPolicy
metadata: {name: merged, namespace: shop}
spec:
  podSelector: {}
  egress:
  - &web
    matches: [{name: www.example.org}]
    ports: [{protocol: TCP, port: 443}]
  - <<: *web
    matches: [{name: api.example.org}]
`

// TestMergedKeys: a key may be set again over one that is merged, and over no other.
func TestMergedKeys(t *testing.T) {
	objects, err := decode(t, "", "p.yaml", merged)
	if err != nil || len(objects) != 1 {
		t.Fatalf("%d objects, error %v", len(objects), err)
	}
	rules := objects[0].Policy.Spec.Egress
	if len(rules) != 2 || *rules[0].Matches[0].Name != "www.example.org" || *rules[1].Matches[0].Name != "api.example.org" || *rules[1].Ports[0].Port != 443 {
		t.Errorf("rules %+v", rules)
	}
	for name, c := range map[string]struct{ text, want string }{
		"beside a merged key":  {merged + "    matches: []\n", `line 12: key "matches" already set in map`},
		"in the anchor":        {strings.Replace(merged, "  - <<", "    ports: []\n  - <<", 1), `line 10: key "ports" already set in map`},
		"in a list":            {strings.Replace(merged, "[{name: api", "[{name: a, name: api", 1), `key "name" already set in map`},
		"elsewhere":            {merged + "kind: List\n", `line 12: key "kind" already set in map`},
		"of one truth value":   {strings.Replace(merged, "podSelector: {}", "podSelector: {matchLabels: {yes: a, true: b}}", 1), "line 5: key true already set in map"},
		"a merge of no object": {strings.Replace(merged, "*web", "web", 1), "map merge requires map"},
	} {
		if _, err := decode(t, "", "p.yaml", c.text); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
}

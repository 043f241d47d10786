package lab

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/testkit/fatal"
)

// enginePods are a limited pod, two databases and a pod of another node and namespace.
var enginePods = []EnginePod{
	{Namespace: "shop", Labels: map[string]string{"app": "web"}, Addrs: []netip.Addr{netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("fd00:1::1")}, Local: true},
	{Namespace: "shop", Labels: map[string]string{"app": "db"}, Addrs: []netip.Addr{netip.MustParseAddr("10.1.0.2")}, Ports: []EnginePort{{"sql", "tcp", 5432}}, Local: true},
	{Namespace: "data", Labels: map[string]string{"app": "db"}, Addrs: []netip.Addr{netip.MustParseAddr("10.2.0.2"), netip.MustParseAddr("fd00:2::2")}, Ports: []EnginePort{{"sql", "tcp", 5433}, {"sql", "udp", 1}}},
}

// rulesOf renders the rules of the limited pod's chain under a NetworkPolicy, and of
// those that it leads to.
func rulesOf(t *testing.T, style EngineStyle, v6 bool, spec string) []string {
	t.Helper()
	np := &networkingv1.NetworkPolicy{}
	fatal.If(t, yaml.UnmarshalStrict([]byte("metadata: {namespace: shop}\nspec:\n  podSelector: {matchLabels: {app: web}}\n"+spec), np))
	e := &Engine{style: style, pods: enginePods, namespaces: map[string]map[string]string{"shop": {"team": "a"}, "data": {"team": "b"}}}
	text, err := e.render([]*networkingv1.NetworkPolicy{np}, v6)
	fatal.If(t, err)
	var out []string
	for line := range strings.Lines(text) {
		if rule, own := strings.CutPrefix(strings.TrimSpace(line), "-A ENGINE-"); own && !strings.HasPrefix(rule, "0 ") {
			out = append(out, rule)
		}
	}
	return out
}

func TestEngineRules(t *testing.T) {
	tests := []struct {
		name, spec string
		v6         bool
		want       []string
	}{
		{"ingress alone", "  policyTypes: [Ingress]", false, nil},
		{"no types, no rules", "", false, nil},
		{"nothing", "  policyTypes: [Egress]", false, []string{"1 -j DROP"}},
		{"everything", "  egress: [{}]", false, []string{"1 -j ACCEPT", "1 -j DROP"}},
		{"pods of the namespace", "  egress:\n  - to: [{podSelector: {matchLabels: {app: db}}}]", false, []string{"1 -d 10.1.0.2 -j ACCEPT", "1 -j DROP"}},
		{"pods of another", "  egress:\n  - to: [{namespaceSelector: {matchLabels: {team: b}}}]\n    ports: [{port: 53, protocol: UDP}]", true,
			[]string{"1 -d fd00:2::2 -p udp --dport 53:53 -j ACCEPT", "1 -j DROP"}},
		{"both selectors", "  egress:\n  - to: [{namespaceSelector: {}, podSelector: {matchLabels: {app: web}}}]", false, []string{"1 -d 10.1.0.1 -j ACCEPT", "1 -j DROP"}},
		{"a named port", "  egress:\n  - to: [{namespaceSelector: {}, podSelector: {matchLabels: {app: db}}}]\n    ports: [{port: sql}]", false,
			[]string{"1 -d 10.1.0.2 -p tcp --dport 5432 -j ACCEPT", "1 -d 10.2.0.2 -p tcp --dport 5433 -j ACCEPT", "1 -j DROP"}},
		{"a named port of networks", "  egress:\n  - to: [{ipBlock: {cidr: 10.2.0.0/16}}]\n    ports: [{port: sql}]", false,
			[]string{"2 -d 10.2.0.2 -p tcp --dport 5433 -j ACCEPT", "1 -d 10.2.0.0/16 -j ENGINE-2", "1 -j DROP"}},
		{"an exception and a range", "  egress:\n  - to: [{ipBlock: {cidr: 10.0.0.0/8, except: [10.3.0.0/16]}}]\n    ports: [{port: 80, endPort: 90}, {protocol: SCTP}]", false,
			[]string{"2 -d 10.3.0.0/16 -j RETURN", "2 -p tcp --dport 80:90 -j ACCEPT", "2 -p sctp -j ACCEPT", "1 -d 10.0.0.0/8 -j ENGINE-2", "1 -j DROP"}},
		{"the other family's networks", "  egress:\n  - to: [{ipBlock: {cidr: 10.0.0.0/8}}]", true, []string{"1 -j DROP"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := rulesOf(t, Felix, test.v6, test.spec); !slices.Equal(got, test.want) {
				t.Errorf("rules %q, want %q", got, test.want)
			}
		})
	}
}

// TestEngineStyles: what an engine like kube-router allows goes on, and what it does not
// ends there.
func TestEngineStyles(t *testing.T) {
	want := []string{"1 -j MARK --set-xmark 0x10000/0x10000", "1 -m mark ! --mark 0x10000/0x10000 -j DROP", "1 -j MARK --set-xmark 0x0/0x10000"}
	if got := rulesOf(t, KubeRouter, false, "  egress: [{}]"); !slices.Equal(got, want) {
		t.Errorf("rules %q, want %q", got, want)
	}
}

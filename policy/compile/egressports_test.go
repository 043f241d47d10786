package compile

import (
	"testing"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
)

func TestEgressPorts(t *testing.T) {
	port := func(n int32) v1alpha1.Port { return v1alpha1.Port{Port: &n} }
	all, name, bad := v1alpha1.ProtocolALL, "www.example.org", "www example org"
	rule := func(name string, ports ...v1alpha1.Port) v1alpha1.EgressRule {
		return v1alpha1.EgressRule{Matches: []v1alpha1.Match{{Name: &name}}, Ports: ports}
	}
	dns := port(53)
	dns.Protocol = &all
	for want, rules := range map[policy.PortSet][]v1alpha1.EgressRule{
		"":                                  nil,
		"tcp/443":                           {rule(name, port(443)), rule(name, port(443))},
		"tcp/53,tcp/443-444,udp/53,sctp/53": {rule(name, port(443), dns), rule(name, port(444))},
		"any":                               {rule(name, port(443)), rule(name)},
		"tcp/80":                            {rule(name, port(80)), rule(bad), {Ports: []v1alpha1.Port{port(443)}}},
	} {
		p := &v1alpha1.FQDNNetworkPolicy{Spec: v1alpha1.FQDNNetworkPolicySpec{Egress: rules, Enforcement: v1alpha1.EnforcementAudit}}
		if got := EgressPorts(p); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

package companion

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/statustest"
)

func TestPortRules(t *testing.T) {
	for set, want := range map[string]string{
		"":        "null\n",
		"any":     "- {}\n",
		"tcp/443": "- ports:\n  - port: 443\n    protocol: TCP\n",
		"tcp/443-444,udp,sctp/1-65535": "- ports:\n  - endPort: 444\n    port: 443\n    protocol: TCP\n  - protocol: UDP\n" +
			"  - endPort: 65535\n    port: 1\n    protocol: SCTP\n",
		"nonsense":             "null\n",
		"tcp/80 tcp/http":      "- ports:\n  - port: 80\n    protocol: TCP\n  - port: http\n    protocol: TCP\n",
		" udp/dns sctp/signal": "- ports:\n  - port: dns\n    protocol: UDP\n  - port: signal\n    protocol: SCTP\n",
	} {
		text, err := yaml.Marshal(portRules(podPorts(set)))
		fatal.If(t, err)
		if diff := cmp.Diff(want, string(text)); diff != "" {
			t.Errorf("%q: %s", set, diff)
		}
	}
}

// podPorts reads "SET PROTOCOL/NAME...".
func podPorts(text string) (out compile.PodPorts) {
	words := strings.Split(text, " ")
	out.Numbers = policy.PortSet(words[0])
	for _, word := range words[1:] {
		protocol, name, _ := strings.Cut(word, "/")
		for _, p := range []policy.Protocol{policy.TCP, policy.UDP, policy.SCTP} {
			if p.String() == protocol {
				out.Names = append(out.Names, compile.PortName{Protocol: p, Name: name})
			}
		}
	}
	return out
}

// lets tells whether rules without peers allow a port, by the words of the API.
func lets(rules []networkingv1.NetworkPolicyEgressRule, protocol policy.Protocol, port int32) bool {
	names := map[policy.Protocol]corev1.Protocol{policy.TCP: corev1.ProtocolTCP, policy.UDP: corev1.ProtocolUDP, policy.SCTP: corev1.ProtocolSCTP}
	for _, r := range rules {
		if len(r.Ports) == 0 {
			return true
		}
		for _, p := range r.Ports {
			last := port
			if p.Port != nil {
				last = p.Port.IntVal
			}
			if p.EndPort != nil {
				last = *p.EndPort
			}
			if *p.Protocol == names[protocol] && (p.Port == nil || p.Port.IntVal <= port) && port <= last {
				return true
			}
		}
	}
	return false
}

// TestPortRulesAgainstTheSet: random sets open exactly their ports.
func TestPortRulesAgainstTheSet(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 1))
	protocols := []policy.Protocol{policy.TCP, policy.UDP, policy.SCTP}
	for range 2000 {
		var ranges []policy.PortRange
		for range rng.IntN(5) {
			r := policy.PortRange{Protocol: protocols[rng.IntN(3)], First: uint16(1 + rng.IntN(20)), Last: uint16(1 + rng.IntN(20))}
			if rng.IntN(8) == 0 {
				r.First, r.Last = 0, 65535
			}
			ranges = append(ranges, r)
		}
		set := policy.NewPortSet(ranges...)
		rules := portRules(compile.PodPorts{Numbers: set})
		for _, p := range protocols {
			for _, port := range []int32{1, 65535, rng.Int32N(22) + 1, rng.Int32N(22) + 1} {
				if got, want := lets(rules, p, port), set.Contains(p, uint16(port)); got != want {
					t.Fatalf("%q opens %s/%d: %v", set, p, port, got)
				}
			}
		}
	}
}

func TestOpenable(t *testing.T) {
	may := func(change func(*v1alpha1.FQDNNetworkPolicy)) bool {
		p := statustest.WithPort(statustest.Policy("shop", "web"), 443)
		change(p)
		return openable(p)
	}
	for name, c := range map[string]struct {
		change func(*v1alpha1.FQDNNetworkPolicy)
		want   bool
	}{
		"enforced":             {func(*v1alpha1.FQDNNetworkPolicy) {}, true},
		"in words":             {func(p *v1alpha1.FQDNNetworkPolicy) { p.Spec.Enforcement = v1alpha1.EnforcementEnforce }, true},
		"audited":              {func(p *v1alpha1.FQDNNetworkPolicy) { p.Spec.Enforcement = v1alpha1.EnforcementAudit }, false},
		"without rules":        {func(p *v1alpha1.FQDNNetworkPolicy) { p.Spec.Egress = nil }, false},
		"a rule of no matches": {func(p *v1alpha1.FQDNNetworkPolicy) { p.Spec.Egress[0].Matches = nil }, false},
		"one rule of two works": {func(p *v1alpha1.FQDNNetworkPolicy) {
			p.Spec.Egress = append(p.Spec.Egress, v1alpha1.EgressRule{})
		}, true},
		"every port": {func(p *v1alpha1.FQDNNetworkPolicy) {
			p.Spec.Egress = append(p.Spec.Egress, statustest.Policy("a", "b").Spec.Egress...)
		}, true},
	} {
		if got := may(c.change); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestPortsOfServicesInWords: the resulting companion.
func TestPortsOfServicesInWords(t *testing.T) {
	p := statustest.WithName(statustest.WithPort(statustest.Policy("shop", "web"), 443), "db.shop.svc.cluster.local")
	ports, _ := compile.PodPortsOf(p, compile.NewNamedServices(statustest.ClusterLocal, []*policy.Service{statustest.Service("db", policy.ServicePort{Port: 443, Target: 8443}), statustest.Service("zoo", policy.ServicePort{Port: 443, Target: 1})}))
	ports.Names = append(ports.Names, compile.PortName{Protocol: policy.UDP, Name: "quic"})
	c := newCompanion(p, &metav1.LabelSelector{}, statustest.Endpoint[:1])
	c.Spec.Egress = append(c.Spec.Egress, portRules(ports)...)
	text, err := yaml.Marshal(c.Spec)
	fatal.If(t, err)
	const want = `egress:
- ports:
  - port: 53
    protocol: UDP
  - port: 53
    protocol: TCP
  to:
  - ipBlock:
      cidr: 169.254.20.53/32
- ports:
  - port: 443
    protocol: TCP
  - port: 8443
    protocol: TCP
  - port: quic
    protocol: UDP
podSelector: {}
policyTypes:
- Egress
`
	if diff := cmp.Diff(want, string(text)); diff != "" {
		t.Error(diff)
	}
}

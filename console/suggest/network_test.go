package suggest

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/testkit/fatal"
)

// TestNetworkYAML: written YAML is read as the same object, has the usual order of
// fields, and has the fields that an API server requires.
func TestNetworkYAML(t *testing.T) {
	for name, c := range map[string]struct {
		to   networkingv1.NetworkPolicyPeer
		want string // of it
	}{
		"pods":    {PodPeer("pay", map[string]string{"app": "db"}), "    - namespaceSelector:\n        matchLabels:\n          kubernetes.io/metadata.name: pay\n      podSelector:\n        matchLabels:\n          app: db\n"},
		"address": {AddressPeer(netip.MustParseAddr("2001:db8::1")), "    - ipBlock:\n        cidr: 2001:db8::1/128\n"},
	} {
		t.Run(name, func(t *testing.T) {
			p := NetworkPolicy("shop", "allow-db", metav1.LabelSelector{}, c.to, nil)
			text, err := NetworkYAML(&p)
			fatal.If(t, err)
			want := "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata:\n  namespace: shop\n  name: allow-db\nspec:\n  podSelector: {}\n  policyTypes:\n  - Egress\n  egress:\n  - to:\n" + c.want
			if d := cmp.Diff(want, string(text)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			var again networkingv1.NetworkPolicy
			fatal.If(t, yaml.UnmarshalStrict(text, &again))
			if d := cmp.Diff(p.Spec, again.Spec); d != "" {
				t.Errorf("(-written +read):\n%s", d)
			}
		})
	}
}

package suggest

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/testkit/fatal"
)

func TestYAMLIsAManifestInTheOrderOfPeople(t *testing.T) {
	tcp, port := v1alpha1.ProtocolTCP, int32(443)
	p := Policy("shop", "cart-out", map[string]string{"app": "cart", "yes": "on"}, []Rule{
		{Names: []string{"www.example.org", "*.example.org"}, Ports: []v1alpha1.Port{{Protocol: &tcp, Port: &port}}},
		{Names: []string{"1.test"}},
	})
	got, err := YAML(&p)
	fatal.If(t, err)
	const want = `apiVersion: namegate.io/v1alpha1
kind: FQDNNetworkPolicy
metadata:
  namespace: shop
  name: cart-out
spec:
  podSelector:
    matchLabels:
      app: cart
      "yes": "on"
  egress:
  - matches:
    - name: www.example.org
    - pattern: '*.example.org'
    ports:
    - protocol: TCP
      port: 443
  - matches:
    - name: 1.test
`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Error(diff)
	}
	var back v1alpha1.FQDNNetworkPolicy
	fatal.If(t, yaml.UnmarshalStrict(got, &back))
	if diff := cmp.Diff(p, back); diff != "" {
		t.Error("read back:", diff)
	}
}

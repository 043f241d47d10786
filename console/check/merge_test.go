package check

import (
	"strings"
	"testing"
)

// TestMergedKeys: a rule that merges another one and has a key of its own is checked, in its line.
func TestMergedKeys(t *testing.T) {
	const text = `apiVersion: namegate.io/v1alpha1
kind: FQDNNetworkPolicy
metadata: {name: merged, namespace: shop}
spec:
  podSelector: {}
  egress:
  - &web
    matches: [{name: www.example.org}]
    ports: [{protocol: TCP, port: 443}]
  - <<: *web
    matches: [{name: api.example.org.}]
`
	if got := lint(t, text); len(got) != 1 || !strings.HasPrefix(got[0], "stdin:11: warning: policy shop/merged: spec.egress[1].matches[0].name: ") {
		t.Errorf("findings %q", got)
	}
	if got := lint(t, text+"    matches: []\n"); len(got) != 1 || !strings.Contains(got[0], "line 12: key \"matches\" already set in map") {
		t.Errorf("a key twice: %q", got)
	}
}

package manifest

import (
	"strings"
	"testing"
)

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

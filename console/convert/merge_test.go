package convert

import (
	"strings"
	"testing"

	"github.com/namegate/namegate/testkit/fatal"
)

// TestMergedKeys: a rule that merges another one and has a key of its own is converted, and a
// key that stands twice is not.
func TestMergedKeys(t *testing.T) {
	const text = `apiVersion: networking.gke.io/v1alpha1
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
	var r Result
	fatal.If(t, r.Add("p.yaml", []byte(text)))
	if made := string(r.YAML); strings.Count(made, "www.example.org") != 1 || strings.Count(made, "api.example.org") != 1 || strings.Count(made, "port: 443") != 2 {
		t.Errorf("notes %v\n%s", r.Notes, made)
	}
	r = Result{}
	fatal.If(t, r.Add("p.yaml", []byte(text+"    matches: []\n")))
	if len(r.Notes) != 1 || r.Notes[0].Grade != Failed || !strings.Contains(r.Notes[0].Message, `key "matches" already set in map`) {
		t.Errorf("a key twice: notes %v", r.Notes)
	}
}

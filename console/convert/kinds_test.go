package convert

import (
	"strings"
	"testing"

	"github.com/namegate/namegate/e2e/fatal"
)

// converted returns the result of one manifest, and its notes by grade and path.
func converted(t *testing.T, text string) (out, notes string) {
	t.Helper()
	var r Result
	fatal.If(t, r.Add("p.yaml", []byte(strings.ReplaceAll(text, "\t", " "))))
	var lines []string
	for _, n := range r.Notes {
		lines = append(lines, string(n.Grade)+" "+n.Path)
	}
	return string(r.YAML), strings.Join(lines, ", ")
}

// TestCiliumDefaultDeny: enableDefaultDeny is read; without a default-deny for egress less is allowed here.
func TestCiliumDefaultDeny(t *testing.T) {
	for deny, want := range map[string]string{
		"{egress: true, ingress: false}": "",
		"{egress: true}":                 "",
		"{egress: false}":                "narrower spec.enableDefaultDeny",
		"{Egress: true}":                 "failed ",
	} {
		out, notes := converted(t, `{apiVersion: cilium.io/v2, kind: CiliumNetworkPolicy, metadata: {name: p, namespace: shop}, spec: {endpointSelector: {},
			enableDefaultDeny: `+deny+`, egress: [{toFQDNs: [{matchName: a.test}], toPorts: [{ports: [{port: "443", protocol: TCP}]}]}]}}`)
		if notes != want || strings.Contains(out, "name: a.test") == strings.HasPrefix(want, "failed") {
			t.Errorf("%s: %q, want %q\n%s", deny, notes, want, out)
		}
	}
}

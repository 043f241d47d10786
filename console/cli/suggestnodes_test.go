package cli

import (
	"strings"
	"testing"
)

// TestSuggestNodes: --nodes writes the policy of nodes from their lines, and goes with no flag of pods.
func TestSuggestNodes(t *testing.T) {
	const line = `{"v":1,"kind":"flow","time":"2026-05-01T12:00:00.250000Z","node":"n1","verdict":"would-deny","host":{"uid":0,"gid":0,"ip":"192.0.2.7"},"protocol":"tcp",` +
		`"destination":{"address":"198.51.100.1","port":443},"names":[{"name":"registry.test"}],"reason":"rule","tier":"Admin","policy":"nodenetworkpolicy:workers","rule":"rest","count":1}` + "\n"
	code, out, errs := called(t, line, "suggest", "--nodes", "-")
	if code != 0 || errs != "" || !strings.Contains(out, "nodeSelector: {}") || !strings.Contains(out, "- name: registry.test") || !strings.Contains(out, "enforcement: Audit") {
		t.Errorf("exit code %d, %q\n%s", code, errs, out)
	}
	if code, out, _ = called(t, line, "suggest", "--nodes", "-", "-o", "json"); code != 0 || !strings.Contains(out, `"kind":"NodeNetworkPolicy"`) && !strings.Contains(out, `"kind": "NodeNetworkPolicy"`) {
		t.Errorf("exit code %d\n%s", code, out)
	}
	for _, args := range [][]string{{"--cluster"}, {"--pod", "shop/a"}, {"-n", "shop"}, {"--fold", "3"}} {
		if code, _, errs := called(t, line, append([]string{"suggest", "--nodes", "-"}, args...)...); code != 2 || !strings.Contains(errs, "--nodes") {
			t.Errorf("%q: exit code %d, %q", args, code, errs)
		}
	}
}

package kube

import (
	"testing"

	"github.com/namegate/namegate/testkit/fatal"
)

// testEnforceAll: with networkPolicy.enforce All, which the document sets, each of its commands ends
// as its comment says. Nightly: the upstream suite's test of both tiers beside a NetworkPolicy passes too.
func testEnforceAll(t *testing.T) {
	s := begin(t, "enforceall")
	fatal.If(t, the.LoadProgram(webImage, the.Tool("testpod"), []string{"/testpod", "/bin/curl", "/bin/ping"}, "serve", "web", "80", "8080"))
	defer func() {
		if _, err := the.Helm(s.ctx, helmArgs("upgrade")...); err != nil {
			t.Error(err)
		}
	}()
	s.follow(t, "docs/start/networkpolicies.md", "colors")
	if nightly {
		s.conforms("upstream", "-test.run=^TestUpstream$/^CNPAdminTierIntegration$", "-report-output=")
	}
}

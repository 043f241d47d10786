package kube

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/namegate/namegate/testkit/fatal"
)

// clusterPolicy is a manifest of a ClusterFQDNNetworkPolicy; spec is its YAML in flow style.
func clusterPolicy(name, spec string) string {
	return fmt.Sprintf("---\napiVersion: namegate.io/v1alpha1\nkind: ClusterFQDNNetworkPolicy\nmetadata: {name: %s}\nspec: %s\n", name, spec)
}

// administrate applies a cluster policy, which goes with the scenario.
func (s *scenario) administrate(name, spec string) {
	s.Helper()
	s.apply(clusterPolicy(name, spec))
	s.Cleanup(func() {
		if _, err := the.Kubectl(s.ctx, "", "delete", "cfqdnnp", name, "--ignore-not-found"); err != nil {
			s.Error(err)
		}
	})
}

// clusterEnforced waits until the condition Enforced of a cluster policy is true.
func (s *scenario) clusterEnforced(name string) {
	s.Helper()
	s.clusterCondition(soon, name, "True", "", "")
}

// clusterCondition waits until the condition Enforced of a cluster policy's generation has a status,
// a reason unless it is "", and a message with a text.
func (s *scenario) clusterCondition(within time.Duration, name, status, reason, text string) {
	s.Helper()
	s.eventually(within, "the condition Enforced of "+name, func() error {
		var p conditioned
		fatal.If(s, json.Unmarshal([]byte(s.kubectl("get", "cfqdnnp", name, "-o", "json")), &p))
		if c := p.find("Enforced"); string(c.Status) == status && (reason == "" || c.Reason == reason) && strings.Contains(c.Message, text) {
			return nil
		}
		return fmt.Errorf("conditions %+v", p.Status.Conditions)
	})
}

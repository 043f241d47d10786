package kube

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/namegate/namegate/e2e/cluster"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

const (
	// suites is the module of the conformance suites.
	suites = "../conformance"
	// agnhost is the image that the upstream suite asks for.
	agnhost = "registry.k8s.io/e2e-test-images/agnhost:2.45"
)

// notClaimed are the upstream tests that need rules for ingress, alone or among others.
var notClaimed = []string{
	"CNPAdminTierIngressTCP", "CNPAdminTierIngressUDP", "CNPAdminTierIngressSCTP", "CNPAdminTierIngressNamedPort",
	"CNPBaselineTierIngressTCP", "CNPBaselineTierIngressUDP", "CNPBaselineTierIngressSCTP", "CNPBaselineTierIngressNamedPort",
	"CNPAdminTierGress", "CNPBaselineTierGress", "CNPAdminTierIntegration", "CNPAdminTierPriorityField",
	"CNPAdminTierPodSelector", "CNPAdminTierPortRange", "CNPAdminTierSamePriority", "CNPBaselineTierPodSelector", "CNPBaselineTierPortRange", "CNPBaselineTierSamePriority",
}

// egressOfMixed are the parts for egress of upstream tests that are not claimed, as many as
// egressParts.
const egressOfMixed = `^TestUpstream$/^CNPAdminTierIntegration$/^Should_Deny_traffic_to_slytherin` +
	`|^TestUpstream$/^CNPAdminTierIntegration$/^Should_support_a_'pass-egress'_policy_for_admin_CNP_and_respect_the_match_for_network_policy$` +
	`|^TestUpstream$/^CNPAdminTierPriorityField$/^Should_(Deny_traffic_to_slytherin|respect)` +
	`|^TestUpstream$/^CNP(Admin|Baseline)TierPodSelector$/^Should_support_pod_selectors_in_(egress_peers|the_subject)$` +
	`|^TestUpstream$/^CNP(Admin|Baseline)TierPortRange$/^Should_support_egress`

const egressParts = 10

// requestTimeout is longer than the wait of a TCP socket before it sends a lost SYN again (1 s).
const requestTimeout = "-request-timeout=2s"

// ofAChange are the upstream tests that run for a change.
const ofAChange = "^TestUpstream$/^CNP(AdminTierEgress(TCP|NamedPort)|BaselineTierEgress(UDP|NamedPort|NodePeers))$"

// testConformance runs five tests of the upstream suite for ClusterNetworkPolicy, nightly all that
// are claimed and the suite of names. Their reports are in bin/conformance.
func testConformance(t *testing.T) {
	s := begin(t, "conformance")
	bin, err := filepath.Abs("../../bin")
	fatal.If(t, err)
	fatal.If(t, <-suitesBuilt)
	suite := the.Tool("conformance.test")
	fatal.If(t, the.LoadProgram(agnhost, the.Tool("agnhost"), []string{"/agnhost", "/bin/bash"}, "pause"))

	run := func(name string, args ...string) (out string) {
		t.Run(name, func(t *testing.T) {
			cmd := the.Client(s.ctx, suite, append([]string{
				"-kubeconfig=" + cluster.AdminConfig, requestTimeout, "-poke-timeout=60s", "-report-output=" + filepath.Join(bin, "conformance"),
				"-organization=namegate", "-project=namegate", "-url=https://github.com/namegate/namegate", "-version=" + *imageTag,
				"-contact=https://github.com/namegate/namegate/issues", "-additional-info=https://github.com/namegate/namegate/tree/main/e2e/conformance",
			}, args...)...)
			text, err := cmd.CombinedOutput()
			if out = string(text); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
		return out
	}
	if !nightly {
		out := run("upstream", "-test.v", "-test.run="+ofAChange, "-report-output=", "-cleanup-base-resources=false")
		diff.Equal(t, 5, strings.Count(out, "\n    --- PASS: TestUpstream/CNP"), "upstream tests that passed", out)
		return
	}
	run("upstream", "-test.run=^TestUpstream$", "-not-claimed="+strings.Join(notClaimed, ","), "-cleanup-base-resources=false")
	out := run("mixed", "-test.v", "-test.run="+egressOfMixed, "-report-output=")
	diff.Equal(t, egressParts, strings.Count(out, "        --- PASS: TestUpstream/"), "parts of mixed tests that passed", out)
	run("names", "-test.run=^TestNames$", "-test.parallel=32", "-image="+agnhost, "-outside=198.19.0.0/16", "-outside6=2001:db8:19::/64")
}

// suitesBuilt has the result of buildSuites.
var suitesBuilt = make(chan error, 1)

// buildSuites builds the suites and the program of their pods. It needs minutes on a new machine, and
// runs beside the first scenarios, most of which wait.
func buildSuites() error {
	_, err := build("test", "-c", "-vet=off", "-o", the.Tool("conformance.test"), ".")
	_, errProgram := build("build", "-o", the.Tool("agnhost"), "./agnhost")
	return errors.Join(err, errProgram)
}

// build runs a verb of go in the module of the suites and returns its output.
func build(args ...string) (string, error) {
	cmd := exec.Command("nice", append([]string{"-n", "5", "go"}, args...)...)
	cmd.Dir, cmd.Env, cmd.Stderr = suites, append(os.Environ(), "CGO_ENABLED=0"), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s in %s: %w", strings.Join(args, " "), suites, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// clusterNetworkPolicyCRD returns the path of the CRD with its experimental fields.
func clusterNetworkPolicyCRD() (string, error) {
	dir, err := build("list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/network-policy-api")
	return filepath.Join(dir, "config/crd/experimental/policy.networking.k8s.io_clusternetworkpolicies.yaml"), err
}

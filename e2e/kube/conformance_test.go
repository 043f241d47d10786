package kube

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
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

// requestTimeout is longer than the wait of a TCP socket before it sends a lost SYN again (1 s).
const requestTimeout = "-request-timeout=2s"

// ofAChange are the upstream tests that run for a change.
const ofAChange = "^TestUpstream$/^CNP(AdminTier(Egress(TCP|NamedPort)|Ingress(SCTP|NamedPort)|Integration)|BaselineTier(Egress(UDP|NamedPort|NodePeers)|IngressTCP))$"

// testConformance runs nine tests of the upstream suite for ClusterNetworkPolicy, nightly all of them
// and the suite of names. Their reports are in bin/conformance.
func testConformance(t *testing.T) {
	s := begin(t, "conformance")
	if !nightly {
		out := s.conforms("upstream", "-test.v", "-test.run="+ofAChange, "-report-output=", "-cleanup-base-resources=false")
		diff.Equal(t, 9, strings.Count(out, "\n    --- PASS: TestUpstream/CNP"), "upstream tests that passed", out)
		return
	}
	s.conforms("upstream", "-test.run=^TestUpstream$")
	report, err := os.ReadFile("../../bin/conformance/clusternetworkpolicy.yaml")
	fatal.If(t, err)
	for _, tests := range []string{"Passed: 24\n", "Passed: 6\n"} { // standard and experimental ones
		diff.Has(t, tests, string(report), "the report")
	}
	s.conforms("names", "-test.run=^TestNames$", "-test.parallel=32", "-image="+agnhost, "-outside=198.19.0.0/16", "-outside6=2001:db8:19::/64")
}

// additional is in the reports.
const additional = "https://github.com/namegate/namegate/tree/main/e2e/conformance (clients and servers of SCTP are its agnhost, over raw sockets: the kernel has no SCTP)"

// conforms runs tests of the suites and returns their output.
func (s *scenario) conforms(name string, args ...string) (out string) {
	s.Helper()
	bin, err := filepath.Abs("../../bin")
	fatal.If(s, err)
	fatal.If(s, suitesBuilt())
	fatal.If(s, the.LoadProgram(agnhost, the.Tool("agnhost"), []string{"/agnhost", "/bin/bash"}, "pause"))
	s.Run(name, func(t *testing.T) {
		cmd := the.Client(s.ctx, the.Tool("conformance.test"), append([]string{
			"-kubeconfig=" + cluster.AdminConfig, requestTimeout, "-poke-timeout=60s", "-report-output=" + filepath.Join(bin, "conformance"),
			"-organization=namegate", "-project=namegate", "-url=https://github.com/namegate/namegate", "-version=" + *imageTag,
			"-contact=https://github.com/namegate/namegate/issues", "-additional-info=" + additional,
		}, args...)...)
		text, err := cmd.CombinedOutput()
		if out = string(text); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
	return out
}

// suitesBuilt builds the suites once.
var suitesBuilt = sync.OnceValue(buildSuites)

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

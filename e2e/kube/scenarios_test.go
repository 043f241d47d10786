package kube

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// part is a scenario by its name.
type part struct {
	name string
	run  func(*testing.T)
}

// namespaced are the scenarios that change nothing beyond their namespaces.
var namespaced = []part{
	{"documents", testDocuments},
	{"union", testUnion},
	{"console", testConsole},
	{"why", testWhy},
	{"gke", testGKE},
	{"services", testServices},
	{"ui", testUI},
	{"conformance", testConformance},
	{"changes", testChanges},
	{"ends", testEnds},
	{"newpods", testNewPods},
	{"suggest", testSuggest},
	{"isolation", testIsolation},
	{"admission", testAdmission},
	{"rights", testRights},
	{"hostnetwork", testHostNetwork},
	{"servernames", testServerNames},
}

// alone are the scenarios that change nodes, programs of the cluster or the release. The last takes
// Namegate away.
var alone = []part{
	{"conditions", testConditions},
	{"enforceall", testEnforceAll},
	{"publication", testPublication},
	{"resolvers", testResolvers},
	{"hosts", testHosts},
	{"judged", testJudged},
	{"controlplane", testControlPlane},
	{"nodeports", testNodePorts},
	{"lockout", testLockout},
	{"corefile", testCorefile},
	{"apiserver", testAPIServer},
	{"away", testAway},
	{"kubeproxy", testKubeProxy},
	{"coredns", testCoreDNS},
	{"dataplane", testDataplane},
	{"engine", testEngine},
	{"kuberouter", testKubeRouter},
	{"flannel", testFlannel},
	{"uninstall", testUninstall},
}

// TestNamegate installs Namegate and runs the scenarios: those of namespaces side by side, -parallel of them at a time,
// then the others one after another. One alone: -run TestNamegate/namespaces/NAME or
// -run TestNamegate/NAME.
func TestNamegate(t *testing.T) {
	begin := time.Now()
	if err := install(t.Context()); err != nil {
		t.Fatal(errors.Join(err, errors.New(diagnosis(t.Context()))))
	}
	fmt.Printf("Namegate is installed after %v\n", time.Since(begin).Round(time.Second))
	go func() { _ = suitesBuilt() }()
	t.Run("namespaces", func(t *testing.T) { sideBySide(t, namespaced) })
	t.Run("traceless", testTraceless)
	for _, s := range alone {
		t.Run(s.name, s.run)
	}
}

// sideBySide runs scenarios at the same time.
func sideBySide(t *testing.T, scenarios []part) {
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			s.run(t)
		})
	}
}

// testTraceless: once the pods of the scenarios have ended, the kernel of no node has anything of them.
func testTraceless(t *testing.T) {
	s := &scenario{T: t, ctx: t.Context()}
	s.eventually(patient, "nodes without a trace of pods", func() error { return traces(nil) })
}

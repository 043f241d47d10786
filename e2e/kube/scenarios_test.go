package kube

import "testing"

// TestNamegate runs the scenarios one after another: they share a cluster, and the
// last takes Namegate away. One alone: -run TestNamegate/NAME.
func TestNamegate(t *testing.T) {
	for _, s := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"admission", testAdmission},
		{"rights", testRights},
		{"gke", testGKE},
		{"services", testServices},
		{"union", testUnion},
		{"isolation", testIsolation},
		{"ordered", testOrdered},
		{"changes", testChanges},
		{"ends", testEnds},
		{"newpods", testNewPods},
		{"churn", testChurn},
		{"endpoint", testEndpoint},
		{"nodelocal", testNodeLocal},
		{"console", testConsole},
		{"why", testWhy},
		{"suggest", testSuggest},
		{"conformance", testConformance},
		{"hostnetwork", testHostNetwork},
		{"corefile", testCorefile},
		{"apiserver", testAPIServer},
		{"kubeproxy", testKubeProxy},
		{"coredns", testCoreDNS},
		{"upgrade", testUpgrade},
		{"dataplane", testDataplane},
		{"engine", testEngine},
		{"kuberouter", testKubeRouter},
		{"uninstall", testUninstall},
	} {
		t.Run(s.name, s.run)
	}
}

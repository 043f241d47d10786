package kube

import (
	"slices"
	"testing"
)

// part is a scenario by its name.
type part struct {
	name string
	run  func(*testing.T)
}

// enforcement are the scenarios about what pods may reach, which run with each dataplane.
var enforcement = []part{
	{"gke", testGKE},
	{"services", testServices},
	{"union", testUnion},
	{"isolation", testIsolation},
	{"ordered", testOrdered},
	{"changes", testChanges},
	{"ends", testEnds},
	{"newpods", testNewPods},
	{"churn", testChurn},
}

// TestNamegate runs the scenarios one after another: they share a cluster, and the
// last takes Namegate away. One alone: -run TestNamegate/NAME.
func TestNamegate(t *testing.T) {
	for _, s := range slices.Concat([]part{{"admission", testAdmission}, {"rights", testRights}}, enforcement, []part{
		{"endpoint", testEndpoint},
		{"nodelocal", testNodeLocal},
		{"console", testConsole},
		{"ui", testUI},
		{"why", testWhy},
		{"suggest", testSuggest},
		{"documents", testDocuments},
		{"conformance", testConformance},
		{"hostnetwork", testHostNetwork},
		{"hosts", testHosts},
		{"lockout", testLockout},
		{"corefile", testCorefile},
		{"apiserver", testAPIServer},
		{"kubeproxy", testKubeProxy},
		{"coredns", testCoreDNS},
		{"upgrade", testUpgrade},
		{"dataplane", testDataplane},
		{"engine", testEngine},
		{"kuberouter", testKubeRouter},
		{"flannel", testFlannel},
		{"uninstall", testUninstall},
	}) {
		t.Run(s.name, s.run)
	}
}

// testDataplane: the other dataplane enforces as the first does, and switches to it and back
// lose no query.
func testDataplane(t *testing.T) {
	t.Run("to nftables", func(t *testing.T) { switchDataplane(t, "nftables", "NG4-") })
	for _, s := range enforcement {
		t.Run(s.name, s.run)
	}
	t.Run("to iptables", func(t *testing.T) { switchDataplane(t, "iptables", "table inet namegate-net") })
}

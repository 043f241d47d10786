package kube

import "testing"

// testIsolation: a pod's grants are its own; neither its neighbour on the node nor a pod
// of the other node may use them.
func testIsolation(t *testing.T) {
	s := begin(t, "isolation")
	label := map[string]string{"app": "client"}
	s.run(pod("asker", "node-b", label), pod("neighbour", "node-b", label), pod("far", "node-a", label), pod("far-neighbour", "node-a", label),
		policy("one", `{podSelector: {}, egress: [{matches: [{pattern: "*.wild.test"}]}]}`))
	for _, p := range []string{"asker", "neighbour", "far", "far-neighbour"} {
		s.enforced(soon, p)
	}
	s.gets("asker", "tcp", "a.wild.test", 80, works)
	s.dials("asker", "tcp", "198.51.100.20:80", works)
	for _, p := range []string{"neighbour", "far", "far-neighbour"} {
		s.dials(p, "tcp", "198.51.100.20:80", denied)
	}
	s.gets("far", "tcp", "b.wild.test", 80, works)
	s.dials("far-neighbour", "tcp", "198.51.100.20:80", denied)
	s.dials("neighbour", "tcp", "198.51.100.20:80", denied)
}

package main

import (
	"io"
	"net/http"
	"testing"
)

func TestOptions(t *testing.T) {
	if o, err := parse(nil, io.Discard); err != nil || o.nodes != 5000 || o.pods != 150000 || o.policies != 500 || o.agents != 50 || !o.watchNodes {
		t.Errorf("by default %+v, %v", o, err)
	}
	if o, err := parse([]string{"-watch-nodes=false"}, io.Discard); err != nil || o.watchNodes {
		t.Errorf("-watch-nodes=false is %+v, %v", o, err)
	}
	for _, args := range [][]string{
		{"more"}, {"-agents", "0"}, {"-nodes", "10", "-pods", "10", "-agents", "11"}, {"-nodes", "10", "-pods", "9", "-agents", "1"}, {"-nodes", "10", "-pods", "2501", "-agents", "1"},
		{"-policies", "0"}, {"-policies", "5", "-peers", "6"}, {"-span", "10ms"}, {"-changes", "0"}, {"-writers", "0"}, {"-watch-nodes", "false"},
	} {
		if o, err := parse(args, io.Discard); err == nil {
			t.Errorf("%v is accepted: %+v", args, o)
		}
	}
}

func TestMeter(t *testing.T) {
	var m meter
	for _, r := range []struct{ method, url string }{
		{http.MethodGet, "https://s/api/v1/pods?watch=true"}, {http.MethodGet, "https://s/api/v1/pods"},
		{http.MethodGet, "https://s/apis/coordination.k8s.io/v1/namespaces/n/leases/l"}, {http.MethodPut, "https://s/apis/coordination.k8s.io/v1/namespaces/n/leases/l"},
		{http.MethodPatch, "https://s/apis/namegate.io/v1alpha1/namespaces/n/fqdnnetworkpolicies/p/status"},
	} {
		request, err := http.NewRequest(r.method, r.url, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		m.observe(request)
	}
	m.received.Add(7)
	if got, want := m.count(), (count{reads: 2, watches: 1, leases: 1, writes: 1, received: 7}); got != want {
		t.Errorf("counted %+v, want %+v", got, want)
	}
	if got := m.count().requests(); got != 5 {
		t.Errorf("%d requests", got)
	}
	before := m.count()
	m.leases.Add(2)
	if got, want := m.count().minus(before), (count{leases: 2}); got != want {
		t.Errorf("since then %+v, want %+v", got, want)
	}
}

// TestPodsAreSpread: a Node's pods are in different namespaces, some of which have
// NetworkPolicies, and so are the pods that change and the pods of the agents' Nodes.
func TestPodsAreSpread(t *testing.T) {
	o, err := parse(nil, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	withPeers, changed, first := map[int]bool{}, map[int]bool{}, map[int]bool{}
	for i := range o.peers {
		withPeers[o.peerNamespace(i)] = true
	}
	for i := range o.changes {
		changed[o.namespaceOf(spread(i, o.changes, o.pods))] = true
	}
	for agent := range o.agents {
		node, of := o.nodeOf(agent), map[int]bool{}
		led := 0
		for pod := node; pod < o.pods; pod += o.nodes {
			of[o.namespaceOf(pod)] = true
		}
		for n := range of {
			if withPeers[n] {
				led++
			}
		}
		if node >= o.nodes || len(of) != 30 || led != 15 {
			t.Errorf("Node %d of %d has pods in %d namespaces, %d with NetworkPolicies", node, o.nodes, len(of), led)
		}
		first[o.namespaceOf(node)] = true
	}
	if len(withPeers) != o.peers || len(changed) != o.namespaces() || len(first) != o.agents {
		t.Errorf("%d namespaces have NetworkPolicies, pods of %d change, agents have their first pods in %d", len(withPeers), len(changed), len(first))
	}
}

func TestAddressesOfPods(t *testing.T) {
	for i, want := range map[int]string{0: "10.128.0.0", 256: "10.128.1.0", 149999: "10.130.73.239"} {
		if got := address(i); got != want {
			t.Errorf("pod %d has %s, want %s", i, got, want)
		}
	}
}

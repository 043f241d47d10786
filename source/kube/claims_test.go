package kube

import (
	"testing"

	"github.com/namegate/namegate/policy"
)

// TestYieldedPodsKeepTheirPointers as long as they yield the same.
func TestYieldedPodsKeepTheirPointers(t *testing.T) {
	read := readRemote(ourNode)
	old := read(with(with(aFarPod("old", "10.1.0.1", "10.1.0.2"), ending), madeAt(0)), nil)
	newer := read(with(aFarPod("newer", "10.1.0.1"), madeAt(10)), nil)
	last := read(with(aFarPod("last", "10.1.0.2"), madeAt(10)), nil)
	kept := map[*podEntry]*policy.Pod{}
	first := remotePods([]*podEntry{newer, old}, nil, kept)
	second := remotePods([]*podEntry{newer, old}, nil, kept)
	if first[0] != &newer.pod || first[1] == &old.pod || first[0] != second[0] || first[1] != second[1] {
		t.Errorf("%v, then %v", first, second)
	}
	third := remotePods([]*podEntry{last, newer, old}, nil, kept)
	if third[2] == second[1] || len(third[2].IPs) != 0 || len(second[1].IPs) != 1 {
		t.Errorf("yields %v, before %v", third[2].IPs, second[1].IPs)
	}
	if fourth := remotePods([]*podEntry{old}, nil, kept); fourth[0] != &old.pod || len(kept) != 0 {
		t.Errorf("%v of %v", fourth, kept)
	}
}

package kube

import (
	"fmt"
	"strings"
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

// TestRemoteReusedAddress: which pods of other nodes still have the address, where
// one of this node or of others got it too.
func TestRemoteReusedAddress(t *testing.T) {
	entry := func(name string, made int, ends, local bool) *podEntry {
		p := with(aFarPod(name, "10.1.0.1", "2001:db8::"+fmt.Sprint(len(name))), madeAt(made))
		if ends {
			ending(p)
		}
		if local {
			return readPod(ourNode)(with(p, onNode(ourNode)), nil)
		}
		return readRemote(ourNode)(p, nil)
	}
	for _, c := range []struct {
		name      string
		far, near []*podEntry
		want      string
	}{
		{"one yields", []*podEntry{entry("old", 0, true, false), entry("newer", 10, false, false)}, nil, "newer"},
		{"none ends", []*podEntry{entry("old", 0, false, false), entry("newer", 10, false, false)}, nil, "old newer"},
		{"the newer ends", []*podEntry{entry("old", 0, false, false), entry("newer", 10, true, false)}, nil, "old newer"},
		{"yields to this node's", []*podEntry{entry("old", 0, true, false)}, []*podEntry{entry("newer", 10, false, true)}, ""},
		{"this node's got it first", []*podEntry{entry("newer", 10, true, false)}, []*podEntry{entry("old", 0, true, true)}, "newer"},
	} {
		var claim []string
		for _, p := range remotePods(c.far, c.near, map[*podEntry]*policy.Pod{}) {
			for _, a := range p.IPs {
				if a == addrs("10.1.0.1")[0] {
					claim = append(claim, p.Name)
				}
			}
			if len(p.IPs) == 0 || p.NodeName != "node-b" {
				t.Errorf("%s: %+v", c.name, p)
			}
		}
		if got := strings.Join(claim, " "); got != c.want {
			t.Errorf("%s: %q claim the address, want %q", c.name, got, c.want)
		}
	}
	if pods, _ := localPods([]*podEntry{entry("old", 0, true, true)}); len(pods[0].IPs) != 2 {
		t.Error("a pod of this node yielded to nobody")
	}
}

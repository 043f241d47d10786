package kube

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/source/cni"
	"github.com/namegate/namegate/testkit/diff"
)

func TestWithResults(t *testing.T) {
	pending := func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }
	result := func(since int, ips ...string) cni.Results {
		return cni.Results{"uid-web": {Addrs: addrs(ips...), Since: at(since).Unix()}}
	}
	for _, c := range []struct {
		name    string
		pod     *corev1.Pod
		results cni.Results
		want    string
		claimed int
	}{
		{"no status yet", with(aPod("web"), pending), result(5, "10.0.0.1", "2001:db8::1"), "[10.0.0.1 2001:db8::1]", 5},
		{"no result", aPod("web", "10.0.0.1"), nil, "[10.0.0.1]", 0},
		{"of another pod", with(aPod("web"), pending), cni.Results{"uid-other": {Addrs: addrs("10.0.0.1")}}, "[]", 0},
		{"the status has the same in its order", aPod("web", "2001:db8::1", "10.0.0.1"), result(5, "10.0.0.1", "2001:db8::1"), "[2001:db8::1 10.0.0.1]", 5},
		{"a new sandbox, and the status of the old one", aPod("web", "10.0.0.1"), result(5, "10.0.0.2"), "[10.0.0.2]", 5},
		{"a result of before, and the status of a newer sandbox", with(aPod("web", "10.0.0.2"), startedAt(9)), result(5, "10.0.0.1"), "[10.0.0.2]", 9},
		{"a new sandbox, and the status of when the old one started", with(aPod("web", "10.0.0.1"), startedAt(3)), result(5, "10.0.0.2"), "[10.0.0.2]", 5},
		{"a new sandbox, and no addresses in a later status", with(aPod("web"), startedAt(9)), result(5, "10.0.0.2"), "[10.0.0.2]", 9},
		{"finished, its sandbox remains", with(aPod("web"), func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }), result(5, "10.0.0.1"), "[]", 0},
		{"host network", with(aPod("web", "192.0.2.1"), func(p *corev1.Pod) { p.Spec.HostNetwork = true }), result(5, "10.0.0.1"), "[192.0.2.1]", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			own := []*podEntry{readPod(ourNode)(aPod("api", "10.0.0.9"), nil), readPod(ourNode)(c.pod, nil)}
			object := *own[1]
			got := withResults(own, c.results, nil)
			diff.Equal(t, own[0], got[0], "the entry of a pod without a result")
			if text := fmt.Sprint(got[1].pod.IPs); text != c.want || got[1].claimed != at(c.claimed).Unix() {
				t.Errorf("%s since %d, want %s since %d", text, got[1].claimed, c.want, at(c.claimed).Unix())
			}
			if !same(own[1], &object) {
				t.Error("the entry of the object changed")
			}
			again := withResults(own, c.results, got)
			diff.Equal(t, got[1], again[1], "an entry that did not change")
		})
	}
}

// TestResultsOfPlugins: a pod has its address in the State as soon as its plugin has told it,
// and the status that follows changes nothing.
func TestResultsOfPlugins(t *testing.T) {
	api := newAPIServer(t)
	api.put("pods", with(aPod("web"), func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }))
	r := runAt(t, api)
	text := func(s State) string {
		var out []string
		for _, p := range s.Input.Pods {
			out = append(out, fmt.Sprint(p.Name, " ", p.IPs))
		}
		return strings.Join(out, " ")
	}
	r.until("web []", text)
	r.source.SetResults(cni.Results{"uid-web": {Addrs: addrs("10.0.0.1"), Since: at(1).Unix()}, "uid-none": {Addrs: addrs("10.0.0.2")}})
	r.until("web [10.0.0.1]", text)
	api.put("pods", aPod("other", "10.0.0.3"))
	r.until("other [10.0.0.3] web [10.0.0.1]", text)
	r.source.SetResults(nil)
	r.until("other [10.0.0.3] web []", text)
}

// startedAt gives a pod the time at which its sandbox was ready.
func startedAt(n int) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(at(n))}}
	}
}

// TestFirstStateHasResults: after an upgrade, a pod whose status has no address yet is known
// from the first State on.
func TestFirstStateHasResults(t *testing.T) {
	api := newAPIServer(t)
	api.put("pods", with(aPod("web"), func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }))
	client, dyn := api.clients()
	r := runWith(t, Options{Client: client, Dynamic: dyn, NodeName: ourNode, CNIResults: true, Log: slog.New(slog.DiscardHandler)})
	r.untilHealth("all but the results", func(Health) bool { s := r.source; return s.pods.synced() && s.policies.synced() && s.nodes.synced() })
	r.source.SetResults(cni.Results{"uid-web": {Addrs: addrs("10.0.0.1"), Since: at(1).Unix()}})
	select {
	case s := <-r.states:
		diff.Equal(t, "[10.0.0.1]", fmt.Sprint(s.Input.Pods[0].IPs), "addresses in the first State: the result's")
	case <-time.After(time.Minute):
		t.Fatal("no State")
	}
}

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
		diff.Equal(t, c.want, strings.Join(claim, " "), c.name, "who claims the address")
	}
	if pods, _ := localPods([]*podEntry{entry("old", 0, true, true)}); len(pods[0].IPs) != 2 {
		t.Error("a pod of this node yielded to nobody")
	}
}

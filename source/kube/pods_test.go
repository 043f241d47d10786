package kube

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
)

var addrsByValue = cmpopts.EquateComparable(addrs("::")[0], prefixes("::/0")[0], addrPorts("[::]:0")[0])

func TestReadPod(t *testing.T) {
	plain := policy.Pod{PodRef: policy.PodRef{Namespace: "shop", Name: "web", UID: "uid-web"}, Labels: map[string]string{"app": "web"},
		IPs: addrs("10.0.0.1"), Phase: "Running"}
	networks := func(text string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Annotations = map[string]string{networkStatus: text, "other": "x"} }
	}
	for _, c := range []struct {
		name     string
		pod      *corev1.Pod
		want     *policy.Pod // nil: not one of ours
		problems string      // reason and path
	}{
		{"running", aPod("web", "10.0.0.1"), &plain, ""},
		{"dual stack", aPod("web", "10.0.0.1", "2001:db8::1"), with(new(plain), func(p *policy.Pod) { p.IPs = addrs("10.0.0.1", "2001:db8::1") }), ""},
		{"podIP alone", with(aPod("web"), func(p *corev1.Pod) { p.Status.PodIP = "10.0.0.1" }), &plain, ""},
		{"mapped, and twice", aPod("web", "::ffff:10.0.0.1", "10.0.0.1"), &plain, ""},
		{"no address yet", with(aPod("web"), func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }),
			with(new(plain), func(p *policy.Pod) { p.IPs, p.Phase = nil, "Pending" }), ""},
		{"ending", with(aPod("web", "10.0.0.1"), ending), &plain, ""},
		{"succeeded", with(aPod("web", "10.0.0.1"), func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }),
			with(new(plain), func(p *policy.Pod) { p.IPs, p.Phase = nil, "Succeeded" }), ""},
		{"failed", with(aPod("web", "10.0.0.1"), func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }),
			with(new(plain), func(p *policy.Pod) { p.IPs, p.Phase = nil, "Failed" }), ""},
		{"its node is lost", with(aPod("web", "10.0.0.1"), func(p *corev1.Pod) { p.Status.Phase = corev1.PodUnknown }),
			with(new(plain), func(p *policy.Pod) { p.Phase = "Unknown" }), ""},
		{"host network", with(aPod("web", "10.0.0.1"), func(p *corev1.Pod) { p.Spec.HostNetwork = true }),
			with(new(plain), func(p *policy.Pod) { p.HostNetwork = true }), ""},
		{"of another node", with(aPod("web", "10.0.0.1"), func(p *corev1.Pod) { p.Spec.NodeName = "node-b" }), nil, ""},
		{"of no node", with(aPod("web"), func(p *corev1.Pod) { p.Spec.NodeName = "" }), nil, ""},
		{"a bad address", aPod("web", "10.0.0", "10.0.0.1"), &plain, "AddressInvalid status.podIPs[0].ip"},
		{"one interface", with(aPod("web", "10.0.0.1"), networks(`[{"name":"cbr0","interface":"eth0","ips":["10.0.0.1"],"default":true}]`)), &plain, ""},
		{"one interface, told twice", with(aPod("web", "10.0.0.1"), networks(`[{"interface":"eth0"},{"interface":"eth0"}]`)), &plain, ""},
		{"two interfaces", with(aPod("web", "10.0.0.1"), networks(`[{"interface":"eth0"},{"interface":"net1"}]`)),
			with(new(plain), func(p *policy.Pod) { p.SecondInterfaces = true }), ""},
		{"a device without a name", with(aPod("web", "10.0.0.1"), networks(`[{"interface":"eth0"},{"name":"sriov"}]`)),
			with(new(plain), func(p *policy.Pod) { p.SecondInterfaces = true }), ""},
		{"a broken list of interfaces", with(aPod("web", "10.0.0.1"), networks(`{"interface":1`)), &plain,
			"PartiallyInvalid metadata.annotations[" + networkStatus + "]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := readPod(ourNode)(c.pod, nil)
			if e == nil || c.want == nil {
				if e != nil || c.want != nil {
					t.Errorf("%v, want %v", e, c.want)
				}
				return
			}
			diff.Error(t, *c.want, e.pod)
			diff.Equal(t, c.problems, problemTexts(e.problems, "pod shop/web"), "problems")
		})
	}
	if readPod(ourNode)(aNode("x", "192.0.2.1"), nil) != nil {
		t.Error("a node was read as a pod")
	}
}

// problemTexts returns reason and path of each problem, all of which are of object.
func problemTexts(problems []policy.Problem, object string) string {
	var texts []string
	for _, p := range problems {
		if p.Object != object || p.Message == "" {
			return "not of " + object + ": " + p.Object + " " + p.Message
		}
		texts = append(texts, p.Reason+" "+p.Path)
	}
	return strings.Join(texts, "; ")
}

func TestLabelsAreShared(t *testing.T) {
	read := readPod(ourNode)
	before := read(aPod("web", "10.0.0.1"), nil)
	before.pod.Labels["mark"] = "kept" // written only to see that it is the same map
	p := aPod("web", "10.0.0.2")
	p.Labels["mark"] = "kept"
	after := read(p, before)
	delete(before.pod.Labels, "mark")
	if _, own := after.pod.Labels["mark"]; own {
		t.Error("labels that did not change have a map of their own")
	}
}

// TestReusedAddress goes through what two pods that claim one address may be.
func TestReusedAddress(t *testing.T) {
	started := func(n int) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionTrue,
				LastTransitionTime: metav1.NewTime(at(n))}}
		}
	}
	finished := func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }
	onHost := func(p *corev1.Pod) { p.Spec.HostNetwork = true }
	type changes []func(*corev1.Pod)
	for _, c := range []struct {
		name     string
		old, new changes
		want     string // the pod that still claims the address
	}{
		{"the old one ends", changes{ending}, changes{madeAt(10)}, "new"},
		{"the old one goes on", nil, changes{madeAt(10)}, "old new"},
		{"the new one ends too", changes{ending}, changes{madeAt(10), ending}, "new"},
		{"only the new one ends", nil, changes{madeAt(10), ending}, "old new"},
		{"made in the same second", changes{ending}, changes{madeAt(0)}, "old new"},
		{"the old one got it later", changes{ending, started(20)}, changes{madeAt(10)}, "old new"},
		{"the new one got it last", changes{ending, started(20)}, changes{madeAt(10), started(30)}, "new"},
		{"the old one has finished", changes{finished}, changes{madeAt(10)}, "new"},
		{"the new one has finished", changes{ending}, changes{madeAt(10), finished}, "old"},
		{"the new one has the host's network", changes{ending}, changes{madeAt(10), onHost}, "old new"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var entries []*podEntry
			for _, p := range []struct {
				name string
				changes
			}{{"old", c.old}, {"new", c.new}} {
				pod := aPod(p.name, "10.0.0.1", "2001:db8::"+map[string]string{"old": "1", "new": "2"}[p.name])
				for _, change := range p.changes {
					change(pod)
				}
				entries = append(entries, readPod(ourNode)(pod, nil))
			}
			pods, _ := localPods(entries)
			var claim []string
			for _, p := range pods {
				for _, a := range p.IPs {
					if a == addrs("10.0.0.1")[0] {
						claim = append(claim, p.Name)
					}
				}
				if len(p.IPs) == 0 && !p.Finished() {
					t.Errorf("%s lost the address that nobody else claims", p.Name)
				}
			}
			diff.Equal(t, c.want, strings.Join(claim, " "), "who claims the address")
			if len(entries[0].pod.IPs) == 1 {
				t.Error("what is kept of the pod was changed")
			}
		})
	}
}

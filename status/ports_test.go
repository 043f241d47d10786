package status

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttest "k8s.io/client-go/testing"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/status/companion"
)

// runningPod is a pod of the namespace shop with the label app=cart on a node.
func runningPod(name, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{"app": "cart"}},
		Spec:       corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

// cart is a policy for these pods, which opens one port.
func cart() *v1alpha1.FQDNNetworkPolicy {
	return withPort(selecting(aPolicy("shop", "web"), map[string]string{"app": "cart"}), 443)
}

// inShop runs a test in a world where n1 is ready and runs a pod of the policy, whose
// companion opens its ports.
func inShop(t *testing.T, objects []runtime.Object, test func(*testing.T, *world)) {
	objects = append(objects, limit("shop", "deny", nil), runningPod("a", "n1"))
	inWorld(t, []*v1alpha1.FQDNNetworkPolicy{cart()}, objects, func(t *testing.T, w *world) {
		w.ports = companion.PortsAlways
		defer w.start("n1", true)()
		w.agents["n1"].SetReady(true)
		test(t, w)
	})
}

func (w *world) addPod(p *corev1.Pod) {
	_, err := w.client.CoreV1().Pods("shop").Create(w.t.Context(), p, metav1.CreateOptions{})
	must(w.t, err)
}

func (w *world) changePod(p *corev1.Pod) {
	_, err := w.client.CoreV1().Pods("shop").Update(w.t.Context(), p, metav1.UpdateOptions{})
	must(w.t, err)
}

func (w *world) deletePod(name string) {
	must(w.t, w.client.CoreV1().Pods("shop").Delete(w.t.Context(), name, metav1.DeleteOptions{}))
}

// change changes the one policy.
func (w *world) change(change func(*v1alpha1.FQDNNetworkPolicy)) {
	p := w.policies.get(w.t, "shop", "web")
	change(p)
	p.Generation++
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(p)
	must(w.t, err)
	must(w.t, w.policies.Tracker().Update(v1alpha1.GroupVersionResource(), &unstructured.Unstructured{Object: object}, "shop"))
	w.tell()
}

// opens tells what the one companion opens: "ports", "DNS", or "" if there is none.
func (w *world) opens() string {
	for _, n := range w.networkPolicies() {
		switch {
		case !isCompanion(&n):
		case opensPorts(&n):
			return "ports"
		default:
			return "DNS"
		}
	}
	return ""
}

// want demands what the companion opens after a while.
func (w *world) want(after time.Duration, want, why string) {
	w.t.Helper()
	w.pass(after)
	if got := w.opens(); got != want {
		w.t.Errorf("%s: the companion opens %q, want %q", why, got, want)
	}
}

// held returns the notes of the events that say so.
func (w *world) held() (notes []string) {
	l, err := w.client.EventsV1().Events("").List(w.t.Context(), metav1.ListOptions{})
	must(w.t, err)
	for _, e := range l.Items {
		if e.Reason == companion.ReasonHeld {
			notes = append(notes, e.Note)
		}
	}
	return notes
}

// soonOpen is when ports of a new policy are open, where nothing is in the way.
const soonOpen = companion.OpenAfter + findingsRest + 2*time.Second

// TestPortsWaitForEveryNode: they are open while each node with a pod of the policy has
// an agent that says that policies are in force, and no longer.
func TestPortsWaitForEveryNode(t *testing.T) {
	inShop(t, nil, func(t *testing.T, w *world) {
		w.want(3*time.Second, "DNS", "nodes need time to enforce a new policy")
		w.want(soonOpen, "ports", "its node is ready")
		w.addPod(runningPod("b", "n2"))
		w.want(time.Second, "DNS", "a pod on a node without an agent")
		if held := w.held(); len(held) != 1 || !strings.Contains(held[0], "node n2") || !strings.Contains(held[0], "shop/b") {
			t.Errorf("events %q", held)
		}
		stop := w.start("n2", true)
		w.want(10*time.Second, "DNS", "the agent does not say that policies are in force")
		w.agents["n2"].SetReady(true)
		w.want(10*time.Second, "ports", "now it does")
		w.agents["n2"].SetReady(false)
		w.want(10*time.Second, "DNS", "a node that cannot bring policies into force")
		w.agents["n2"].SetReady(true)
		w.want(20*time.Second, "ports", "it can again")
		stop()
		w.want(time.Minute, "ports", "an agent that is away for a moment: its rules are in the kernel")
		w.want(staleAfter, "DNS", "an agent that is away for good")
		w.deletePod("b")
		w.want(20*time.Second, "ports", "the node has no pod of the policy any more")
	})
}

// TestLeavingNode: an agent that removes its rules says so first.
func TestLeavingNode(t *testing.T) {
	inShop(t, []runtime.Object{runningPod("b", "n2")}, func(t *testing.T, w *world) {
		w.pass(3 * time.Second) // n1 is elected
		stop := w.start("n2", true)
		n2 := w.agents["n2"]
		n2.SetReady(true)
		w.want(renewEvery+soonOpen, "ports", "both are ready")
		stop()
		must(t, n2.Leave(t.Context()))
		w.want(time.Second, "DNS", "nothing is enforced on n2")
	})
}

// TestPodsThatDoNotMatter: NetworkPolicies do not apply to them, or nothing selects them.
func TestPodsThatDoNotMatter(t *testing.T) {
	pod := func(change func(*corev1.Pod)) *corev1.Pod {
		p := runningPod("b", "n2")
		change(p)
		return p
	}
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		want string
	}{
		"one that does":             {pod(func(*corev1.Pod) {}), "DNS"},
		"one that starts":           {pod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }), "DNS"},
		"one that ends":             {pod(func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: at(0)}; p.Finalizers = []string{"x/y"} }), "DNS"},
		"of its node's network":     {pod(func(p *corev1.Pod) { p.Spec.HostNetwork = true }), "ports"},
		"succeeded":                 {pod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }), "ports"},
		"failed":                    {pod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }), "ports"},
		"on no node yet":            {pod(func(p *corev1.Pod) { p.Spec.NodeName = "" }), "ports"},
		"with other labels":         {pod(func(p *corev1.Pod) { p.Labels = map[string]string{"app": "db"} }), "ports"},
		"of another namespace":      {pod(func(p *corev1.Pod) { p.Namespace = "bank" }), "ports"},
		"on a node that is ready":   {pod(func(p *corev1.Pod) { p.Spec.NodeName = "n1" }), "ports"},
		"without labels at all":     {pod(func(p *corev1.Pod) { p.Labels = nil }), "ports"},
		"with further labels aside": {pod(func(p *corev1.Pod) { p.Labels["tier"] = "front" }), "DNS"},
	} {
		t.Run(name, func(t *testing.T) {
			inShop(t, []runtime.Object{c.pod}, func(_ *testing.T, w *world) { w.want(soonOpen, c.want, name) })
		})
	}
}

// TestPodsThatCome: what changes of a pod on a node without an agent counts at once.
func TestPodsThatCome(t *testing.T) {
	inShop(t, nil, func(t *testing.T, w *world) {
		w.want(soonOpen, "ports", "at first")
		b := runningPod("b", "")
		w.addPod(b)
		w.want(5*time.Second, "ports", "it is not scheduled")
		b.Spec.NodeName = "n2"
		w.changePod(b)
		w.want(time.Second, "DNS", "it is scheduled")
		b.Labels = map[string]string{"app": "db"}
		w.changePod(b)
		w.want(10*time.Second, "ports", "it has other labels")
		b.Labels = map[string]string{"app": "cart"}
		w.changePod(b)
		w.want(time.Second, "DNS", "it has the labels again")
		b.Status.Phase = corev1.PodSucceeded
		w.changePod(b)
		w.want(30*time.Second, "ports", "it has ended")
	})
}

// TestPortsOfWhatIsNotEnforced: where a policy denies nothing its companions open nothing.
func TestPortsOfWhatIsNotEnforced(t *testing.T) {
	for name, c := range map[string]struct {
		change, back func(*v1alpha1.FQDNNetworkPolicy)
	}{
		"audit":             {func(p *v1alpha1.FQDNNetworkPolicy) { p.Spec.Enforcement = v1alpha1.EnforcementAudit }, func(p *v1alpha1.FQDNNetworkPolicy) { p.Spec.Enforcement = "" }},
		"DNS":               {func(p *v1alpha1.FQDNNetworkPolicy) { annotated(p, "DNS") }, func(p *v1alpha1.FQDNNetworkPolicy) { p.Annotations = nil }},
		"a slip of the pen": {func(p *v1alpha1.FQDNNetworkPolicy) { annotated(p, "All") }, func(p *v1alpha1.FQDNNetworkPolicy) { annotated(p, "Ports") }},
	} {
		t.Run(name, func(t *testing.T) {
			inShop(t, nil, func(_ *testing.T, w *world) {
				w.want(soonOpen, "ports", "enforced")
				w.change(c.change)
				w.want(time.Second, "DNS", name)
				w.change(c.back)
				w.want(companion.OpenAfter/2, "DNS", "nodes need time to enforce what they did not")
				w.want(companion.OpenAfter, "ports", "enforced again")
				if held := w.held(); len(held) > 0 {
					t.Errorf("events %q", held)
				}
			})
		})
	}
	t.Run("not accepted", func(t *testing.T) {
		inShop(t, nil, func(_ *testing.T, w *world) {
			w.want(soonOpen, "ports", "enforced")
			w.change(func(p *v1alpha1.FQDNNetworkPolicy) { p.Spec.PodSelector = broken("shop", "web").Spec.PodSelector })
			w.want(time.Second, "", "it selects no pod")
		})
	})
	t.Run("none", func(t *testing.T) {
		inShop(t, nil, func(_ *testing.T, w *world) {
			w.want(soonOpen, "ports", "enforced")
			w.change(func(p *v1alpha1.FQDNNetworkPolicy) { annotated(p, "None") })
			w.want(time.Second, "", "no companion is wanted")
		})
	})
}

// TestPortsOfBlindSpots: pods whose connections pass the verdict by are limited by the
// cluster's own engine alone.
func TestPortsOfBlindSpots(t *testing.T) {
	for _, reason := range []string{NotSeen, IPVS, BridgeNotFiltered, DNSBlocked, HostNetwork, SecondInterface, Homeless} {
		t.Run(reason, func(t *testing.T) {
			inShop(t, nil, func(t *testing.T, w *world) {
				w.want(soonOpen, "ports", "at first")
				w.agents["n1"].SetFindings([]Finding{{Policy: "shop/web", Pod: pod("a"), Reason: reason, Message: "it is " + reason}})
				if !slices.Contains(bypasses[:], reason) {
					w.want(10*time.Second, "ports", "it is enforced")
					return
				}
				w.want(10*time.Second, "DNS", "it is not enforced")
				if held := w.held(); len(held) != 1 || !strings.Contains(held[0], "node n1: it is "+reason) {
					t.Errorf("events %q", held)
				}
				w.agents["n1"].SetFindings(nil)
				w.want(20*time.Second, "ports", "mended")
			})
		})
	}
}

// TestPortsUnderTheNextLeader: an agent that is elected takes nobody's word that may be
// old, but leaves open what is.
func TestPortsUnderTheNextLeader(t *testing.T) {
	objects := []runtime.Object{limit("shop", "deny", nil), runningPod("a", "n1"), runningPod("b", "n2")}
	for _, node := range []string{"n1", "n2", "n3"} {
		objects = append(objects, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node, UID: types.UID("uid-" + node)}})
	}
	inWorld(t, []*v1alpha1.FQDNNetworkPolicy{cart()}, objects, func(t *testing.T, w *world) {
		w.ports = companion.PortsAlways
		start := func(node string) (stop func()) {
			stop = w.start(node, true)
			w.agents[node].SetReady(true)
			return stop
		}
		first := start("n1")
		w.pass(3 * time.Second)
		second := start("n2")
		defer start("n3")()
		w.want(renewEvery+soonOpen, "ports", "all are ready")
		second()
		w.pass(2 * time.Minute)
		first()
		w.want(time.Minute, "ports", "nobody knows better than the agent that was elected before")
		if w.leader() != "agent-n3" {
			t.Fatalf("%q leads", w.leader())
		}
		nps := w.client.NetworkingV1().NetworkPolicies("shop")
		for _, n := range w.networkPolicies() {
			if isCompanion(&n) {
				must(t, nps.Delete(t.Context(), n.Name, metav1.DeleteOptions{}))
			}
		}
		w.want(20*time.Second, "DNS", "nothing is opened by the word of agents that may have ended")
		if held := w.held(); len(held) > 0 {
			t.Errorf("events %q, although nobody knows", held)
		}
		defer start("n1")()
		defer start("n2")()
		w.want(20*time.Second, "ports", "they are back")
	})
}

// TestPortsAsked: the chart's value and the policy's annotation, and what is said of them.
func TestPortsAsked(t *testing.T) {
	for _, c := range []struct {
		mode   companion.Ports
		value  string
		want   string
		reason string
	}{
		{companion.PortsNever, "", "DNS", ""},
		{companion.PortsNever, "Ports", "DNS", companion.ReasonIgnored},
		{companion.PortsAsked, "", "DNS", ""},
		{companion.PortsAsked, "Ports", "ports", ""},
		{companion.PortsAlways, "Port", "DNS", companion.ReasonInvalid},
	} {
		t.Run(string(c.mode)+c.value, func(t *testing.T) {
			p := cart()
			if c.value != "" {
				annotated(p, c.value)
			}
			inWorld(t, []*v1alpha1.FQDNNetworkPolicy{p}, []runtime.Object{limit("shop", "deny", nil), runningPod("a", "n1")}, func(t *testing.T, w *world) {
				w.ports = c.mode
				defer w.start("n1", true)()
				w.agents["n1"].SetReady(true)
				w.want(soonOpen, c.want, "")
				var want []string
				if c.reason != "" {
					want = []string{"FQDNNetworkPolicy/web Warning " + c.reason}
				}
				if got := w.events(); !slices.Equal(got, want) {
					t.Errorf("events %q, want %q", got, want)
				}
				podsAsked := slices.ContainsFunc(w.client.Actions(), func(a clienttest.Action) bool { return a.GetResource().Resource == "pods" })
				if podsAsked != (c.mode != companion.PortsNever) {
					t.Errorf("pods are asked for: %v", podsAsked)
				}
			})
		})
	}
}

// TestOnlyTheElectedAgentFollowsPods: thousands of pods are nothing for every agent.
func TestOnlyTheElectedAgentFollowsPods(t *testing.T) {
	inShop(t, nil, func(t *testing.T, w *world) {
		w.pass(5 * time.Second)
		w.client.ClearActions()
		defer w.start("n2", true)()
		w.pass(time.Minute)
		for _, a := range w.client.Actions() {
			if a.GetResource().Resource == "pods" {
				t.Errorf("%s of pods", a.GetVerb())
			}
		}
	})
}

// TestPortsGoWithTheirOwner and with the NetworkPolicy that they stand beside.
func TestPortsGoWithTheirOwner(t *testing.T) {
	inShop(t, nil, func(t *testing.T, w *world) {
		w.want(soonOpen, "ports", "at first")
		w.there = nil
		w.tell()
		w.want(time.Second, "", "the policy is gone")
		if left := w.networkPolicies(); len(left) != 1 || left[0].Name != "deny" || len(left[0].Spec.Egress) != 0 {
			t.Errorf("left: %+v", left)
		}
	})
}

// TestPodsThatCannotBeListed: conditions are written all the same, ports are not opened,
// and those that are open are closed in time.
func TestPodsThatCannotBeListed(t *testing.T) {
	for _, resource := range []string{"pods", "nodes"} {
		t.Run(resource, func(t *testing.T) {
			inWorld(t, []*v1alpha1.FQDNNetworkPolicy{cart()}, []runtime.Object{limit("shop", "deny", nil), runningPod("a", "n1")}, func(t *testing.T, w *world) {
				w.ports = companion.PortsAlways
				stop := w.start("n1", true)
				w.agents["n1"].SetReady(true)
				w.want(soonOpen, "ports", "at first")
				stop()
				refuse(w.client, "list", resource, "no")
				refuse(w.client, "watch", resource, "no")
				w.ready = true // an agent that said no first would close the ports
				defer w.start("n1", true)()
				w.agents["n1"].SetFindings([]Finding{blocked("shop/web", "a")})
				w.want(30*time.Second, "ports", "the list may come")
				if got := w.says("web", ConditionDNSBlocked); got != "True DNSBlocked" {
					t.Errorf("%q: conditions wait for the list", got)
				}
				w.want(companion.ListTimeout+passAgain, "DNS", "the list does not come")
				if held := w.held(); len(held) != 1 || !strings.Contains(held[0], "cannot list") {
					t.Errorf("events %q", held)
				}
			})
		})
	}
}

// TestPodsOfEnforcingNodesWakeNobody: the churn of a large cluster does not keep the elected
// agent busy where every node is ready.
func TestPodsOfEnforcingNodesWakeNobody(t *testing.T) {
	inShop(t, nil, func(t *testing.T, w *world) {
		w.want(soonOpen, "ports", "at first")
		reads := func() int { return len(w.client.Actions()) }
		w.pass(40 * time.Second)
		r := w.agents["n1"]
		for len(r.leadChanged) > 0 {
			<-r.leadChanged
		}
		before, woken := reads(), 0
		for i := range 50 {
			w.addPod(runningPod(fmt.Sprint("calm-", i), "n1"))
			w.addPod(runningPod(fmt.Sprint("waits-", i), ""))
			time.Sleep(10 * time.Millisecond)
			woken += len(r.leadChanged)
		}
		if woken > 2 || reads() < before+100 {
			t.Errorf("woken %d times by %d requests", woken, reads()-before)
		}
	})
}

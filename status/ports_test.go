package status

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/status/companion"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/statustest"
)

// cart is a policy for these pods, which opens one port.
func cart() *v1alpha1.FQDNNetworkPolicy {
	return statustest.WithPort(statustest.Selecting(statustest.Policy("shop", "web"), map[string]string{"app": "cart"}), 443)
}

// inShop runs a test in a world with an agent, where the companion of the policy opens its
// ports.
func inShop(t *testing.T, objects []runtime.Object, test func(*testing.T, *world)) {
	objects = append(objects, statustest.Limit("shop", "deny", nil))
	inWorld(t, []*v1alpha1.FQDNNetworkPolicy{cart()}, objects, func(t *testing.T, w *world) {
		w.ports = companion.PortsAlways
		defer w.start("n1", true)()
		test(t, w)
	})
}

// change changes the only policy.
func (w *world) change(change func(*v1alpha1.FQDNNetworkPolicy)) {
	p := w.policies.get(w.t, "shop", "web")
	change(p)
	p.Generation++
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(p)
	fatal.If(w.t, err)
	fatal.If(w.t, w.policies.Tracker().Update(v1alpha1.GroupVersionResource(), &unstructured.Unstructured{Object: object}, "shop"))
	w.tell()
}

// opens returns the openings of the only companion: "ports", "DNS", or "" if there is
// none.
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

// want demands the companion's openings after a while.
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
	fatal.If(w.t, err)
	for _, e := range l.Items {
		if e.Reason == companion.ReasonHeld {
			notes = append(notes, e.Note)
		}
	}
	return notes
}

// soonOpen is when ports of a new policy are open, where nothing is in the way.
const soonOpen = companion.OpenAfter + findingsRest + 2*time.Second

// TestPortsOfANewPolicy: nodes have time to enforce it, or to report a bypass.
func TestPortsOfANewPolicy(t *testing.T) {
	inShop(t, nil, func(_ *testing.T, w *world) {
		w.want(companion.OpenAfter/2, "DNS", "nodes need time to enforce a new policy")
		w.want(companion.OpenAfter, "ports", "later")
	})
}

// TestPortsOfUnenforcedPolicies: where a policy denies nothing its companions open nothing.
func TestPortsOfUnenforcedPolicies(t *testing.T) {
	for name, c := range map[string]struct {
		change, back func(*v1alpha1.FQDNNetworkPolicy)
	}{
		"audit":             {func(p *v1alpha1.FQDNNetworkPolicy) { p.Spec.Enforcement = v1alpha1.EnforcementAudit }, func(p *v1alpha1.FQDNNetworkPolicy) { p.Spec.Enforcement = "" }},
		"DNS":               {func(p *v1alpha1.FQDNNetworkPolicy) { statustest.Annotated(p, "DNS") }, func(p *v1alpha1.FQDNNetworkPolicy) { p.Annotations = nil }},
		"a slip of the pen": {func(p *v1alpha1.FQDNNetworkPolicy) { statustest.Annotated(p, "All") }, func(p *v1alpha1.FQDNNetworkPolicy) { statustest.Annotated(p, "Ports") }},
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
			w.change(func(p *v1alpha1.FQDNNetworkPolicy) {
				p.Spec.PodSelector = statustest.Broken("shop", "web").Spec.PodSelector
			})
			w.want(time.Second, "", "it selects no pod")
		})
	})
	t.Run("none", func(t *testing.T) {
		inShop(t, nil, func(_ *testing.T, w *world) {
			w.want(soonOpen, "ports", "enforced")
			w.change(func(p *v1alpha1.FQDNNetworkPolicy) { statustest.Annotated(p, "None") })
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

// TestPortsUnderTheNextLeader: a newly elected agent leaves open ports open, and lets new
// companions wait.
func TestPortsUnderTheNextLeader(t *testing.T) {
	inWorld(t, []*v1alpha1.FQDNNetworkPolicy{cart()}, []runtime.Object{statustest.Limit("shop", "deny", nil)}, func(t *testing.T, w *world) {
		w.ports = companion.PortsAlways
		stop := w.start("n1", true)
		w.want(soonOpen, "ports", "at first")
		defer w.start("n2", true)()
		w.pass(5 * time.Second)
		stop()
		for w.leader() != "agent-n2" {
			w.want(time.Second, "ports", "until the next is elected")
		}
		w.want(companion.OpenAfter/2, "ports", "the next leaves it as it is")
		nps := w.client.NetworkingV1().NetworkPolicies("shop")
		for _, n := range w.networkPolicies() {
			if isCompanion(&n) {
				fatal.If(t, nps.Delete(t.Context(), n.Name, metav1.DeleteOptions{}))
			}
		}
		w.want(2*time.Second, "DNS", "a new companion waits")
		w.want(companion.OpenAfter, "ports", "later")
	})
}

// TestPortsAsked: the chart's value and the policy's annotation, and the messages about
// them.
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
				statustest.Annotated(p, c.value)
			}
			inWorld(t, []*v1alpha1.FQDNNetworkPolicy{p}, []runtime.Object{statustest.Limit("shop", "deny", nil)}, func(t *testing.T, w *world) {
				w.ports = c.mode
				defer w.start("n1", true)()
				w.want(soonOpen, c.want, "")
				var want []string
				if c.reason != "" {
					want = []string{"FQDNNetworkPolicy/web Warning " + c.reason}
				}
				if got := w.events(); !slices.Equal(got, want) {
					t.Errorf("events %q, want %q", got, want)
				}
			})
		})
	}
}

// TestPortsAreRemovedWithTheirOwner and with the NetworkPolicy beside them.
func TestPortsAreRemovedWithTheirOwner(t *testing.T) {
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

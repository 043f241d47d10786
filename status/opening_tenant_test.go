package status

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/namegate/namegate/crds/v1alpha1"
)

// TestPortsOfAnotherSelector: nodes need time to enforce a policy on pods that it did not
// select before, and companions of pods that it did stay as they are.
func TestPortsOfAnotherSelector(t *testing.T) {
	objects := []runtime.Object{limit("shop", "carts", map[string]string{"app": "cart"}), limit("shop", "dbs", map[string]string{"app": "db"})}
	inWorld(t, []*v1alpha1.FQDNNetworkPolicy{cart()}, append(objects, runningPod("a", "n1")), func(t *testing.T, w *world) {
		w.ports = PortsAlways
		defer w.start("n1", true)()
		w.agents["n1"].SetReady(true)
		w.want(soonOpen, "ports", "at first")
		with := func() (with, without int) {
			for _, n := range w.networkPolicies() {
				switch {
				case !isCompanion(&n):
				case hasPorts(&n):
					with++
				default:
					without++
				}
			}
			return with, without
		}
		selects := func(values ...string) {
			w.change(func(p *v1alpha1.FQDNNetworkPolicy) {
				p.Spec.PodSelector = metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: values}}}
			})
		}
		selects("cart", "db")
		w.pass(openAfter / 2)
		if with, without := with(); with != 1 || without != 1 {
			t.Errorf("%d with ports and %d without, right after others are selected too", with, without)
		}
		w.pass(openAfter)
		if with, without := with(); with != 2 || without != 0 {
			t.Errorf("%d with ports and %d without, later", with, without)
		}
		selects("cart")
		w.pass(openAfter / 2)
		if with, without := with(); with != 1 || without != 0 {
			t.Errorf("%d with ports and %d without, after fewer are selected", with, without)
		}
	})
}

// TestOpenByAnotherNamespace: who may write NetworkPolicies somewhere makes no companion
// of another namespace's policy look open.
func TestOpenByAnotherNamespace(t *testing.T) {
	forged := newCompanion(cart(), &metav1.LabelSelector{}, endpoint)
	forged.Namespace = "evil"
	forged.Spec.Egress = append(forged.Spec.Egress, portRules(podPorts("tcp/443"))...)
	inShop(t, []runtime.Object{forged}, func(t *testing.T, w *world) {
		w.pass(openAfter / 2)
		for _, n := range w.networkPolicies() {
			if n.Namespace == "shop" && hasPorts(&n) {
				t.Error("the ports are open before nodes had time to enforce the policy")
			}
		}
	})
}

// TestNarrowingIsAtOnce where nobody narrowed it just before: whoever writes a policy
// could go on with what its companions open after it ceased to enforce.
func TestNarrowingIsAtOnce(t *testing.T) {
	c := newCompanionTest(t, byID(aPolicy("shop", "web")), limit("shop", "deny", nil))
	open := func() bool { return slices.ContainsFunc(c.ours(), hasPorts) }
	for round := range 20 {
		for c.ports = anyPort; !open(); {
			c.now = c.now.Add(openAfter)
			c.bring(t.Context(), c.now, c.policies, c.there(), c.ports)
		}
		c.ports = noPorts
		c.now = c.now.Add(passRest)
		if c.bring(t.Context(), c.now, c.policies, c.there(), c.ports); open() {
			t.Fatalf("round %d: open after it was to be narrowed", round)
		}
	}
}

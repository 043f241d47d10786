package status

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/status/companion"
	"github.com/namegate/namegate/testkit/statustest"
)

// TestPortsOfAnotherSelector: nodes need time to enforce a policy on pods that it did not
// select before, and companions of pods that it did stay as they are.
func TestPortsOfAnotherSelector(t *testing.T) {
	objects := []runtime.Object{statustest.Limit("shop", "carts", map[string]string{"app": "cart"}), statustest.Limit("shop", "dbs", map[string]string{"app": "db"})}
	inWorld(t, []*v1alpha1.FQDNNetworkPolicy{cart()}, objects, func(t *testing.T, w *world) {
		w.ports = companion.PortsAlways
		defer w.start("n1", true)()
		w.want(soonOpen, "ports", "at first")
		with := func() (with, without int) {
			for _, n := range w.networkPolicies() {
				switch {
				case !isCompanion(&n):
				case opensPorts(&n):
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
		w.pass(companion.OpenAfter / 2)
		if with, without := with(); with != 1 || without != 1 {
			t.Errorf("%d with ports and %d without, right after others are selected too", with, without)
		}
		w.pass(companion.OpenAfter)
		if with, without := with(); with != 2 || without != 0 {
			t.Errorf("%d with ports and %d without, later", with, without)
		}
		selects("cart")
		w.pass(companion.OpenAfter / 2)
		if with, without := with(); with != 1 || without != 0 {
			t.Errorf("%d with ports and %d without, after fewer are selected", with, without)
		}
	})
}

// TestOpenByAnotherNamespace: NetworkPolicies of one namespace make no companion of
// another namespace's policy look open.
func TestOpenByAnotherNamespace(t *testing.T) {
	forged := companionOf(cart(), true)
	forged.Namespace = "evil"
	inShop(t, []runtime.Object{forged}, func(t *testing.T, w *world) {
		w.pass(companion.OpenAfter / 2)
		for _, n := range w.networkPolicies() {
			if n.Namespace == "shop" && opensPorts(&n) {
				t.Error("the ports are open before nodes had time to enforce the policy")
			}
		}
	})
}

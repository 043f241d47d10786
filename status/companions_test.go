package status

import (
	"slices"
	"strings"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"

	"github.com/namegate/namegate/crds/v1alpha1"
)

// companionTest brings companions up to date, pass by pass.
type companionTest struct {
	*companions
	t        *testing.T
	client   *fake.Clientset
	recorder *events.FakeRecorder
	now      time.Time
	policies map[string]*v1alpha1.FQDNNetworkPolicy
	stop     bool
	ports    portsOf
}

func newCompanionTest(t *testing.T, policies map[string]*v1alpha1.FQDNNetworkPolicy, objects ...runtime.Object) *companionTest {
	c := &companionTest{t: t, client: fake.NewClientset(objects...), recorder: events.NewFakeRecorder(100), now: at(0), policies: policies, ports: noPorts}
	c.companions = &companions{
		client: c.client, recorder: c.recorder, herald: newHerald(c.recorder), log: silent, endpoint: endpoint, stopped: func() bool { return c.stop }, clock: systemClock{}, tries: map[types.NamespacedName]*patience{},
	}
	return c
}

func (c *companionTest) there() (out []*networkingv1.NetworkPolicy) {
	list, err := c.client.NetworkingV1().NetworkPolicies("").List(c.t.Context(), metav1.ListOptions{})
	must(c.t, err)
	for i := range list.Items {
		out = append(out, &list.Items[i])
	}
	return out
}

// pass is one look at everything, a minute later.
func (c *companionTest) pass() time.Duration {
	c.now = c.now.Add(time.Minute)
	return c.bring(c.t.Context(), c.now, c.policies, c.there(), c.ports)
}

func (c *companionTest) ours() (out []*networkingv1.NetworkPolicy) {
	return slices.DeleteFunc(c.there(), func(n *networkingv1.NetworkPolicy) bool { return !isCompanion(n) })
}

// changes returns the verbs of requests that change NetworkPolicies, and forgets them.
func (c *companionTest) changes() string {
	var verbs []string
	for _, a := range c.client.Actions() {
		if v := a.GetVerb(); v != "list" && v != "get" {
			verbs = append(verbs, v)
		}
	}
	c.client.ClearActions()
	return strings.Join(verbs, " ")
}

func TestCompanionsComeAndGo(t *testing.T) {
	c := newCompanionTest(t, byID(aPolicy("shop", "web")), limit("shop", "deny", nil))
	c.pass()
	if got := c.changes(); got != "create" || len(c.ours()) != 1 {
		t.Fatalf("%q", got)
	}
	for range 5 {
		c.pass()
	}
	if got := c.changes(); got != "" {
		t.Errorf("%q although nothing changed", got)
	}
	c.policies = byID(aPolicy("shop", "other"))
	c.pass()
	if got := c.changes(); got != "create delete" {
		t.Errorf("%q: the new is there before the old goes", got)
	}
	c.policies = nil
	c.pass()
	if got := c.there(); len(got) != 1 || got[0].Name != "deny" {
		t.Errorf("%d are left", len(got))
	}
	for range 30 {
		c.pass()
	}
	if len(c.tries) > 0 {
		t.Errorf("%d objects that are gone are remembered", len(c.tries))
	}
}

// TestCompanionsDrift: what somebody changes of ours comes back, what he adds stays.
func TestCompanionsDrift(t *testing.T) {
	for name, change := range map[string]func(*networkingv1.NetworkPolicy){
		"egress":     func(n *networkingv1.NetworkPolicy) { n.Spec.Egress = nil },
		"selector":   func(n *networkingv1.NetworkPolicy) { n.Spec.PodSelector.MatchLabels = map[string]string{"a": "b"} },
		"label":      func(n *networkingv1.NetworkPolicy) { n.Labels = nil },
		"annotation": func(n *networkingv1.NetworkPolicy) { n.Annotations[PolicyAnnotation] = "x" },
		"owner":      func(n *networkingv1.NetworkPolicy) { n.OwnerReferences[0].UID = "of a policy of that name before" },
	} {
		t.Run(name, func(t *testing.T) {
			c := newCompanionTest(t, byID(aPolicy("shop", "web")), limit("shop", "deny", nil))
			c.pass()
			n := c.ours()[0].DeepCopy()
			n.Annotations["example.org/added"] = "yes"
			change(n)
			_, err := c.client.NetworkingV1().NetworkPolicies("shop").Update(t.Context(), n, metav1.UpdateOptions{})
			must(t, err)
			c.changes()
			c.pass()
			wanted, _ := wantedCompanions(c.policies, c.there(), endpoint, noPorts)
			if got := c.changes(); got != "update" || drifted(c.ours()[0], wanted[0]) || c.ours()[0].Annotations["example.org/added"] != "yes" {
				t.Errorf("%q, %+v", got, c.ours()[0])
			}
		})
	}
}

// TestCompanionsSpareUsersObjects: also one that happens to have the name.
func TestCompanionsSpareUsersObjects(t *testing.T) {
	deny := limit("shop", "deny", nil)
	wanted, _ := wantedCompanions(byID(aPolicy("shop", "web")), []*networkingv1.NetworkPolicy{deny}, endpoint, noPorts)
	user := limit("shop", wanted[0].Name, map[string]string{"mine": "yes"})
	user.Labels = map[string]string{ManagedByLabel: ManagedBy}
	c := newCompanionTest(t, byID(aPolicy("shop", "web")), deny, user)
	for range 5 {
		c.pass()
	}
	for _, verb := range strings.Fields(c.changes()) {
		if verb != "create" {
			t.Errorf("%s", verb)
		}
	}
	for _, n := range c.there() {
		if n.Name == user.Name && n.Spec.PodSelector.MatchLabels["mine"] != "yes" {
			t.Error("the user's is changed")
		}
	}
}

// TestCompanionsAgainstAnother: one who undoes each change is not fought.
func TestCompanionsAgainstAnother(t *testing.T) {
	c := newCompanionTest(t, byID(aPolicy("shop", "web")), limit("shop", "deny", nil))
	for second := range 3600 {
		c.now = at(time.Duration(second) * time.Second)
		c.bring(t.Context(), c.now, c.policies, c.there(), c.ports)
		for _, n := range c.ours() {
			must(t, c.client.NetworkingV1().NetworkPolicies("shop").Delete(t.Context(), n.Name, metav1.DeleteOptions{}))
		}
	}
	if n := strings.Count(c.changes(), "create"); n < 10 || n > 25 {
		t.Errorf("created %d times in an hour", n)
	}
}

func TestCompanionsFail(t *testing.T) {
	c := newCompanionTest(t, byID(aPolicy("shop", "web")), limit("shop", "deny", nil))
	count := refuse(c.client, "create", "networkpolicies", "no")
	for second := range 600 {
		c.now = at(time.Duration(second) * time.Second)
		if again := c.bring(t.Context(), c.now, c.policies, c.there(), c.ports); again <= 0 || again > patienceMost {
			t.Fatalf("again after %v", again)
		}
	}
	if n := count.Load(); n < 5 || n > 12 {
		t.Errorf("%d attempts in ten minutes", n)
	}
}

func TestCompanionsStop(t *testing.T) {
	c := newCompanionTest(t, byID(aPolicy("shop", "web")), limit("shop", "deny", nil))
	c.stop = true
	c.pass()
	if got := c.changes(); got != "" {
		t.Errorf("%q while Namegate is being uninstalled", got)
	}
}

func TestCompanionsTellCrowdedOnce(t *testing.T) {
	c := newCompanionTest(t, nil)
	a, b := aPolicy("shop", "a"), aPolicy("shop", "b")
	for _, crowded := range [][]*v1alpha1.FQDNNetworkPolicy{{a}, {a}, {a, b}, {}, {b}} {
		c.tellCrowded(crowded)
	}
	if said := emitted(c.recorder); len(said) != 3 || !strings.HasPrefix(said[0], "Warning "+ReasonTooManyCompanions) {
		t.Errorf("%q", said)
	}
}

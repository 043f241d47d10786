package companion

import (
	"slices"
	"strings"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/status/backoff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/statustest"
)

// companionTest writes companions, pass by pass.
type companionTest struct {
	*writer
	t        *testing.T
	client   *fake.Clientset
	now      time.Time
	policies map[string]*v1alpha1.FQDNNetworkPolicy
	stop     bool
	ports    portsOf
}

// options are a test's Options.
func options(client *fake.Clientset, recorder events.EventRecorder) Options {
	return Options{Client: client, Recorder: recorder, Log: statustest.Silent, Endpoint: statustest.Endpoint, Stopped: func() bool { return false }, Changed: func() {}, Now: time.Now}
}

func newCompanionTest(t *testing.T, policies map[string]*v1alpha1.FQDNNetworkPolicy, objects ...runtime.Object) *companionTest {
	c := &companionTest{t: t, client: fake.NewClientset(objects...), now: statustest.At(0), policies: policies, ports: noPorts}
	c.writer = New(options(c.client, nil)).writer
	c.Stopped = func() bool { return c.stop }
	return c
}

func (c *companionTest) sync() time.Duration {
	there := c.there()
	all, _ := wanted(c.policies, there, statustest.Endpoint, c.ports)
	return c.write(c.t.Context(), c.now, all, there)
}

func (c *companionTest) there() (out []*networkingv1.NetworkPolicy) {
	list, err := c.client.NetworkingV1().NetworkPolicies("").List(c.t.Context(), metav1.ListOptions{})
	fatal.If(c.t, err)
	for i := range list.Items {
		out = append(out, &list.Items[i])
	}
	return out
}

// pass is one look at everything, a minute later.
func (c *companionTest) pass() time.Duration {
	c.now = c.now.Add(time.Minute)
	return c.sync()
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
	c := newCompanionTest(t, statustest.ByID(statustest.Policy("shop", "web")), statustest.Limit("shop", "deny", nil))
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
	c.policies = statustest.ByID(statustest.Policy("shop", "other"))
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
	if len(c.attempts) > 0 {
		t.Errorf("%d objects that are gone are remembered", len(c.attempts))
	}
}

// TestCompanionsDrift: changed fields of ours are restored, added fields stay.
func TestCompanionsDrift(t *testing.T) {
	for name, change := range map[string]func(*networkingv1.NetworkPolicy){
		"egress":     func(n *networkingv1.NetworkPolicy) { n.Spec.Egress = nil },
		"selector":   func(n *networkingv1.NetworkPolicy) { n.Spec.PodSelector.MatchLabels = map[string]string{"a": "b"} },
		"label":      func(n *networkingv1.NetworkPolicy) { n.Labels = nil },
		"annotation": func(n *networkingv1.NetworkPolicy) { n.Annotations[PolicyAnnotation] = "x" },
		"owner":      func(n *networkingv1.NetworkPolicy) { n.OwnerReferences[0].UID = "of a policy of that name before" },
	} {
		t.Run(name, func(t *testing.T) {
			c := newCompanionTest(t, statustest.ByID(statustest.Policy("shop", "web")), statustest.Limit("shop", "deny", nil))
			c.pass()
			n := c.ours()[0].DeepCopy()
			n.Annotations["example.org/added"] = "yes"
			change(n)
			_, err := c.client.NetworkingV1().NetworkPolicies("shop").Update(t.Context(), n, metav1.UpdateOptions{})
			fatal.If(t, err)
			c.changes()
			c.pass()
			want, _ := wanted(c.policies, c.there(), statustest.Endpoint, noPorts)
			if got := c.changes(); got != "update" || drifted(c.ours()[0], want[0]) || c.ours()[0].Annotations["example.org/added"] != "yes" {
				t.Errorf("%q, %+v", got, c.ours()[0])
			}
		})
	}
}

// TestCompanionsKeepUsersObjects: also an object with a companion's name.
func TestCompanionsKeepUsersObjects(t *testing.T) {
	deny := statustest.Limit("shop", "deny", nil)
	want, _ := wanted(statustest.ByID(statustest.Policy("shop", "web")), []*networkingv1.NetworkPolicy{deny}, statustest.Endpoint, noPorts)
	user := statustest.Limit("shop", want[0].Name, map[string]string{"mine": "yes"})
	user.Labels = map[string]string{ManagedByLabel: ManagedBy}
	c := newCompanionTest(t, statustest.ByID(statustest.Policy("shop", "web")), deny, user)
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

// TestCompanionsAgainstAnotherProgram: the agent does not fight a program that undoes each
// change.
func TestCompanionsAgainstAnotherProgram(t *testing.T) {
	c := newCompanionTest(t, statustest.ByID(statustest.Policy("shop", "web")), statustest.Limit("shop", "deny", nil))
	for second := range 3600 {
		c.now = statustest.At(time.Duration(second) * time.Second)
		c.sync()
		for _, n := range c.ours() {
			fatal.If(t, c.client.NetworkingV1().NetworkPolicies("shop").Delete(t.Context(), n.Name, metav1.DeleteOptions{}))
		}
	}
	if n := strings.Count(c.changes(), "create"); n < 10 || n > 25 {
		t.Errorf("created %d times in an hour", n)
	}
}

func TestCompanionsFail(t *testing.T) {
	c := newCompanionTest(t, statustest.ByID(statustest.Policy("shop", "web")), statustest.Limit("shop", "deny", nil))
	count := statustest.Refuse(c.client, "create", "networkpolicies", "no")
	for second := range 600 {
		c.now = statustest.At(time.Duration(second) * time.Second)
		if again := c.sync(); again <= 0 || again > backoff.Most {
			t.Fatalf("again after %v", again)
		}
	}
	if n := count.Load(); n < 5 || n > 12 {
		t.Errorf("%d attempts in ten minutes", n)
	}
}

func TestCompanionsStop(t *testing.T) {
	c := newCompanionTest(t, statustest.ByID(statustest.Policy("shop", "web")), statustest.Limit("shop", "deny", nil))
	c.stop = true
	c.pass()
	if got := c.changes(); got != "" {
		t.Errorf("%q while Namegate is being uninstalled", got)
	}
}

func TestPoliciesBeyondTheLimitAreAnnouncedOnce(t *testing.T) {
	recorder := events.NewFakeRecorder(100)
	c := New(options(fake.NewClientset(), recorder))
	a, b := statustest.Policy("shop", "a"), statustest.Policy("shop", "b")
	for _, crowded := range [][]*v1alpha1.FQDNNetworkPolicy{{a}, {a}, {a, b}, {}, {b}} {
		c.announceCrowded(crowded)
	}
	if said := emitted(recorder); len(said) != 3 || !strings.HasPrefix(said[0], "Warning "+ReasonTooMany) {
		t.Errorf("%q", said)
	}
}

// TestNarrowingIsNotDelayed: however often a companion was opened and narrowed before.
func TestNarrowingIsNotDelayed(t *testing.T) {
	c := newCompanionTest(t, statustest.ByID(statustest.Policy("shop", "web")), statustest.Limit("shop", "deny", nil))
	open := func() bool { return slices.ContainsFunc(c.ours(), opensPorts) }
	var opened, worst int
	for second := range 1200 {
		c.now = statustest.At(time.Duration(second) * time.Second)
		held := second%2 == 1
		c.ports = noPorts
		if !held {
			c.ports = anyPort
		}
		before := open()
		c.sync()
		switch {
		case held && open():
			worst++
		case held:
			worst = 0
		case !before && open():
			opened++
		}
		if worst > int(narrowAgain/time.Second) {
			t.Fatalf("second %d: open for too long", second)
		}
	}
	if opened == 0 || opened > 20 {
		t.Errorf("opened %d times in 20 minutes of flapping", opened)
	}
	c.ports = anyPort
	for c.now = c.now.Add(time.Second); !open(); c.now = c.now.Add(time.Second) {
		c.sync()
	}
	c.policies = nil
	c.now = c.now.Add(narrowAgain)
	c.sync()
	if len(c.ours()) > 0 {
		t.Error("what opens ports stays after its policy's end")
	}
}

// TestNarrowingIsWrittenFirst: before companions are made that are not there yet.
func TestNarrowingIsWrittenFirst(t *testing.T) {
	c := newCompanionTest(t, statustest.ByID(statustest.Policy("shop", "web")), statustest.Limit("shop", "deny", nil))
	c.ports = anyPort
	c.pass()
	c.changes()
	c.policies = statustest.ByID(statustest.Policy("shop", "api"), statustest.Policy("shop", "web"), statustest.Policy("shop", "zoo"))
	c.ports = noPorts
	c.pass()
	if got := c.changes(); got != "update create create" {
		t.Error(got)
	}
	c.ports = anyPort
	c.pass()
	if got := c.changes(); got != "update update update" || len(c.ours()) != 3 {
		t.Error(got)
	}
	var names []string
	c.policies, c.ports = statustest.ByID(statustest.Policy("shop", "web")), noPorts
	c.now = c.now.Add(narrowAgain)
	c.sync()
	for _, n := range c.ours() {
		names = append(names, n.Annotations[PolicyAnnotation])
	}
	if !slices.Equal(names, []string{"web"}) || slices.ContainsFunc(c.there(), func(n *networkingv1.NetworkPolicy) bool { return isCompanion(n) && opensPorts(n) }) {
		t.Errorf("left: %q", names)
	}
}

// TestNarrowingIsImmediate unless it was narrowed just before: otherwise the author of a
// policy could keep its companions' ports after it ceased to enforce.
func TestNarrowingIsImmediate(t *testing.T) {
	c := newCompanionTest(t, statustest.ByID(statustest.Policy("shop", "web")), statustest.Limit("shop", "deny", nil))
	open := func() bool { return slices.ContainsFunc(c.ours(), opensPorts) }
	for round := range 20 {
		for c.ports = anyPort; !open(); {
			c.now = c.now.Add(OpenAfter)
			c.sync()
		}
		c.ports = noPorts
		c.now = c.now.Add(resumeAfter)
		if c.sync(); open() {
			t.Fatalf("round %d: open after it was to be narrowed", round)
		}
	}
}

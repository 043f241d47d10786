package status

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/netpol"
	"github.com/namegate/namegate/policy/netpolicyfor"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// termTest is a term of an agent with a server, without workers of its own.
type termTest struct {
	*term
	t      *testing.T
	server *policyServer
	events *events.FakeRecorder
	clock  time.Time
}

func newTermTest(t *testing.T, server *policyServer) *termTest {
	r, err := New(Options{Client: kubefake.NewClientset(), Dynamic: server, Namespace: "namegate", Log: silent})
	fatal.If(t, err)
	s := &termTest{t: t, server: server, events: events.NewFakeRecorder(100), clock: at(0)}
	r.now, r.recorder = func() time.Time { return s.clock }, s.events
	s.term = r.newTerm()
	t.Cleanup(s.queue.ShutDown)
	return s
}

var webKey = key{v1alpha1.GroupVersionResource(), "shop", "web"}

// at reconciles the policy shop/web as a source has it, with what nodes found of it.
func (s *termTest) at(after time.Duration, p *v1alpha1.FQDNNetworkPolicy, found ...entry) error {
	s.t.Helper()
	s.clock = at(after)
	s.index = newIndex(&State{Policies: listed(p)})
	s.reports.byPolicy = map[string]map[string][]entry{"shop/web": {"lease": found}}
	return s.reconcile(s.t.Context(), webKey)
}

func (s *termTest) web() *v1alpha1.FQDNNetworkPolicy { return s.server.get(s.t, "shop", "web") }

// emitted drains the recorder.
func (s *termTest) emitted() (out []string) {
	for len(s.events.Events) > 0 {
		out = append(out, <-s.events.Events)
	}
	return out
}

// TestConditionsAreWrittenOnce: and then not again, also before the source tells of it, or where it
// leaves the status out, as of a policy that it cannot read whole.
func TestConditionsAreWrittenOnce(t *testing.T) {
	s := newTermTest(t, newPolicyServer(t, aPolicy("shop", "web")))
	old := s.web()
	for i := range 10 {
		fatal.If(t, s.at(time.Duration(i)*time.Millisecond, old))
	}
	for i := range 10 {
		p := s.web()
		fatal.If(t, s.at(time.Duration(i)*time.Hour, p))
		p.Status.Conditions = nil
		fatal.If(t, s.at(time.Duration(i)*time.Hour, p))
	}
	if got := s.server.written(); len(got) != 1 || says(s.web(), policy.ConditionAccepted) != "True Accepted" {
		t.Errorf("%d writes, %+v", len(got), s.web().Status)
	}
	diff.Empty(t, s.emitted(), "events", "of a policy that is well")
}

// TestConditionsFollowTheSpec: a later generation is written, with its events, and the
// time changes with the status alone.
func TestConditionsFollowTheSpec(t *testing.T) {
	s := newTermTest(t, newPolicyServer(t, aBroken("shop", "web")))
	fatal.If(t, s.at(0, s.web()))
	first := meta.FindStatusCondition(s.web().Status.Conditions, ConditionDNSBlocked)
	s.server.change(t, "shop", "web", func(p *v1alpha1.FQDNNetworkPolicy) { p.Generation, p.Spec = 2, aPolicy("shop", "web").Spec })
	fatal.If(t, s.at(time.Minute, s.web()))
	c := meta.FindStatusCondition(s.web().Status.Conditions, policy.ConditionAccepted)
	if c.Status != metav1.ConditionTrue || c.ObservedGeneration != 2 || !c.LastTransitionTime.Time.Equal(at(time.Minute)) {
		t.Errorf("%+v", c)
	}
	if c := meta.FindStatusCondition(s.web().Status.Conditions, ConditionDNSBlocked); c.ObservedGeneration != 2 || !c.LastTransitionTime.Equal(&first.LastTransitionTime) {
		t.Errorf("%+v", c)
	}
	said := s.emitted()
	if len(said) != 2 || said[0][:15] != "Warning Invalid" || said[1] != "Normal Accepted every part of the policy works" {
		t.Errorf("events %q", said)
	}
}

// TestOthersConditionsStay: those that another program wrote before, and after.
func TestOthersConditionsStay(t *testing.T) {
	others := func(c string) metav1.Condition {
		return metav1.Condition{Type: c, Status: "True", Reason: "ByHand", LastTransitionTime: metav1.NewTime(at(-time.Hour))}
	}
	p := aPolicy("shop", "web")
	p.Status.Conditions = []metav1.Condition{others("Reviewed")}
	s := newTermTest(t, newPolicyServer(t, p))
	fatal.If(t, s.at(0, s.web()))
	s.server.change(t, "shop", "web", func(p *v1alpha1.FQDNNetworkPolicy) {
		p.Status.Conditions = append(p.Status.Conditions, others("Tested"))
	})
	fatal.If(t, s.at(time.Minute, s.web(), entry{Reason: IPVS, Message: "m"}))
	for _, c := range []string{"Reviewed", "Tested"} {
		if is := meta.FindStatusCondition(s.web().Status.Conditions, c); is == nil || !cmp.Equal(*is, others(c)) {
			t.Errorf("%+v", is)
		}
	}
	if p := s.web(); len(p.Status.Conditions) != 5 || says(p, ConditionEnforced) != "False IPVS" || len(s.server.written()) != 2 {
		t.Errorf("%d writes: %+v", len(s.server.written()), p.Status.Conditions)
	}
}

// TestConditionsOfAStaleVersion: that the policy was changed meanwhile does not matter, but another
// one of its name gets nothing.
func TestConditionsOfAStaleVersion(t *testing.T) {
	s := newTermTest(t, newPolicyServer(t, aPolicy("shop", "web")))
	stale := s.web()
	s.server.change(t, "shop", "web", func(p *v1alpha1.FQDNNetworkPolicy) { p.Labels = map[string]string{"a": "b"} })
	fatal.If(t, s.at(0, stale))
	if got := says(s.web(), policy.ConditionAccepted); got != "True Accepted" || s.web().Labels["a"] != "b" {
		t.Error(got)
	}
	stale.UID, stale.ResourceVersion = "uid-of-another", "7"
	if err := s.at(time.Hour, stale, entry{Reason: IPVS, Message: "m"}); !apierrors.IsConflict(err) {
		t.Error(err)
	}
}

// TestContenders: two agents that both think they are elected, and disagree, write
// less and less.
func TestContenders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newPolicyServer(t, aPolicy("shop", "web"))
		yes, no := newTermTest(t, server), newTermTest(t, server)
		perHour := make([]int, 3)
		for second := range 3 * 3600 {
			after := time.Duration(second) * time.Second
			fatal.If(t, yes.at(after, server.get(t, "shop", "web")))
			fatal.If(t, no.at(after, server.get(t, "shop", "web"), entry{Reason: NotSeen, Message: "not seen"}))
			perHour[second/3600] = len(server.written())
		}
		if last := perHour[2] - perHour[1]; last > 2*int(time.Hour/mostWait)+2 || perHour[0] > 50 {
			t.Errorf("writes after each hour: %v", perHour)
		}
		// News is written at once all the same.
		before := len(server.written())
		fatal.If(t, yes.at(3*time.Hour, server.get(t, "shop", "web"), entry{Reason: IPVS, Message: "m"}))
		if got := says(server.get(t, "shop", "web"), ConditionEnforced); got != "False IPVS" || len(server.written()) != before+1 {
			t.Errorf("%s after %d writes", got, len(server.written())-before)
		}
		yes.queue.ShutDown()
		no.queue.ShutDown()
	})
}

// TestFailedWrites are tried again, less and less, and without events.
func TestFailedWrites(t *testing.T) {
	resource := v1alpha1.GroupVersionResource().GroupResource()
	for name, err := range map[string]error{
		"away": errors.New("connection refused"), "forbidden": apierrors.NewForbidden(resource, "web", nil), "gone": apierrors.NewNotFound(resource, "web"), "conflict": apierrors.NewConflict(resource, "web", nil),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newTermTest(t, newPolicyServer(t, aBroken("shop", "web")))
				s.now = time.Now
				s.index = newIndex(&State{Policies: listed(s.web())})
				s.server.setFail(err)
				go s.work(t.Context())
				s.queue.Add(webKey)
				time.Sleep(10 * time.Minute)
				if n := len(s.server.written()); n < 5 || n > 12 {
					t.Errorf("%d attempts in ten minutes", n)
				}
				diff.Empty(t, s.emitted(), "events", "of what is not written")
				s.server.setFail(nil)
				time.Sleep(mostWait)
				diff.Equal(t, "False Invalid", says(s.web(), policy.ConditionAccepted))
				s.queue.ShutDown()
			})
		})
	}
}

// TestDeletedPolicies are not written, and nothing of them is kept.
func TestDeletedPolicies(t *testing.T) {
	s := newTermTest(t, newPolicyServer(t, aPolicy("shop", "web")))
	fatal.If(t, s.at(0, s.web()))
	ending := s.web()
	ending.DeletionTimestamp = &metav1.Time{Time: at(0)}
	fatal.If(t, s.at(time.Hour, ending, entry{Reason: IPVS, Message: "m"}))
	if len(s.server.written()) != 1 || len(s.written) != 0 {
		t.Errorf("%d writes, %d kept", len(s.server.written()), len(s.written))
	}
	s.index = newIndex(&State{})
	fatal.If(t, s.reconcile(t.Context(), webKey))
}

// TestUnchangedStates have no policy reconciled: a source sends a State for each pod that comes or goes.
func TestUnchangedStates(t *testing.T) {
	s := newTermTest(t, newPolicyServer(t))
	cluster := aClusterPolicy(v1alpha1.ClusterSubject{Namespaces: &metav1.LabelSelector{}})
	cluster.ResourceVersion = "1"
	clusters := []*v1alpha1.ClusterFQDNNetworkPolicy{cluster}
	web, api := aPolicy("shop", "web"), aPolicy("shop", "api")
	bad := policy.Problem{Object: "policy shop/web", Reason: policy.ReasonInvalid, Policies: []string{"shop/web"}}
	later := web.DeepCopy()
	later.ResourceVersion = "2"
	list := listed(web, api)
	for _, c := range []struct {
		what  string
		state State
		want  []string
	}{
		{"no policies", State{}, nil},
		{"the first cluster policy", State{ClusterPolicies: clusters}, []string{"p"}},
		{"the same", State{ClusterPolicies: clusters}, nil},
		{"policies", State{Policies: list}, []string{"p", "shop/api", "shop/web"}},
		{"the same list", State{Policies: list}, nil},
		{"another list", State{Policies: listed(web, api)}, nil},
		{"a finding of this node", State{Policies: list, Findings: []Finding{blocked("shop/web", "a")}}, nil},
		{"a problem", State{Policies: list, Problems: []policy.Problem{bad}}, []string{"shop/web"}},
		{"the same problem", State{Policies: list, Problems: []policy.Problem{bad}}, nil},
		{"a later version", State{Policies: listed(later, api), Problems: []policy.Problem{bad}}, []string{"shop/web"}},
		{"without room on this node", State{Policies: listed(later, api), Problems: []policy.Problem{bad}, Compiled: []policy.Problem{{Object: "policy shop/api", Reason: policy.ReasonNoRoom}}}, nil},
		{"none", State{}, []string{"shop/api", "shop/web"}},
		{"without room", State{ClusterPolicies: clusters, Compiled: []policy.Problem{{Object: "clusterpolicy p", Reason: policy.ReasonNoRoom}}}, []string{"p"}},
		{"with room", State{ClusterPolicies: clusters}, []string{"p"}},
	} {
		before := s.index
		s.Set(c.state)
		if s.follow(); strings.HasPrefix(c.what, "the same") && s.index != before {
			t.Errorf("%s: all policies are read again", c.what)
		}
		var got []string
		for s.queue.Len() > 0 {
			k, _ := s.queue.Get()
			got = append(got, k.id())
			s.queue.Done(k)
		}
		if slices.Sort(got); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
}

// TestNetworkPolicyForAnotherEngine: where NetworkPolicies limit pods of a policy, its condition has the
// NetworkPolicy that another engine needs, ready to apply, until that is there.
func TestNetworkPolicyForAnotherEngine(t *testing.T) {
	limit := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "limit"}, Spec: networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{"Egress"}}}
	elsewhere := limit.DeepCopy()
	elsewhere.Namespace = "pay"
	web, api := aPolicy("shop", "web"), aPolicy("pay", "api")
	s := newTermTest(t, newPolicyServer(t, web))
	s.o.Endpoint = netpolicyfor.Endpoint()
	message := func(others ...*networkingv1.NetworkPolicy) string {
		before := s.index
		s.index = newIndex(&State{Policies: listed(web, api), NetworkPolicies: others})
		if changed := s.index.changed(before); len(before.policies) > 0 && !slices.Equal(changed, []key{webKey}) {
			t.Errorf("%v", changed)
		}
		fatal.If(t, s.reconcile(t.Context(), webKey))
		c := meta.FindStatusCondition(s.web().Status.Conditions, ConditionEnforced)
		diff.Equal(t, metav1.ConditionTrue, c.Status, c)
		return c.Reason + ": " + c.Message
	}
	if got := message(elsewhere); !strings.HasPrefix(got, ReasonNoBlindSpot+": ") {
		t.Error(got)
	}
	got := message(elsewhere, limit)
	_, text, found := strings.Cut(got, "kubectl apply -f - takes that of the policy's ports: ")
	if !strings.HasPrefix(got, ReasonBesideNetworkPolicies+": ") || !found {
		t.Fatal(got)
	}
	printed := &networkingv1.NetworkPolicy{}
	fatal.If(t, json.Unmarshal([]byte(text), printed))
	if printed.Namespace != "shop" || printed.Labels[netpol.IgnoreLabel] != netpol.IgnoreValue || len(printed.Spec.Egress) != 2 {
		t.Errorf("%+v", printed)
	}
	s.clock = at(time.Hour)
	if got := message(elsewhere, limit, printed); !strings.HasPrefix(got, ReasonNoBlindSpot+": ") {
		t.Error(got)
	}
}

// TestEventsOfClusterPolicies name no rule and no match: their readers may not see the policy.
func TestEventsOfClusterPolicies(t *testing.T) {
	p := aClusterPolicy(v1alpha1.ClusterSubject{Namespaces: &metav1.LabelSelector{}})
	p.Spec.Egress[0] = v1alpha1.ClusterEgressRule{Name: "secret-rule", Action: "Log", Networks: []v1alpha1.Network{"192.0.2.0/24"}}
	s := newTermTest(t, newPolicyServer(t, p))
	s.index = newIndex(&State{ClusterPolicies: []*v1alpha1.ClusterFQDNNetworkPolicy{p}})
	fatal.If(t, s.reconcile(t.Context(), key{v1alpha1.ClusterGroupVersionResource(), "", "p"}))
	if said := s.emitted(); len(said) != 1 || said[0] != "Warning PartiallyInvalid the condition Accepted of the policy says what is wrong with it" {
		t.Errorf("%q", said)
	}
}

func TestMerged(t *testing.T) {
	then, now := at(0), at(time.Hour)
	stamp := func(c metav1.Condition, when time.Time) metav1.Condition {
		c.LastTransitionTime = metav1.NewTime(when)
		return c
	}
	yes, no := condition("Enforced", true, "A", "a"), condition("Enforced", false, "B", "b")
	foreign := stamp(condition("Reviewed", true, "ByHand", ""), then)
	for name, c := range map[string]struct {
		have    []metav1.Condition
		want    metav1.Condition
		changed bool
		time    time.Time
	}{
		"new":               {nil, yes, true, now},
		"the same":          {[]metav1.Condition{stamp(yes, then)}, yes, false, then},
		"another status":    {[]metav1.Condition{stamp(yes, then)}, no, true, now},
		"another reason":    {[]metav1.Condition{stamp(yes, then)}, condition("Enforced", true, "C", "a"), true, then},
		"another message":   {[]metav1.Condition{stamp(yes, then)}, condition("Enforced", true, "A", "c"), true, then},
		"without a time":    {[]metav1.Condition{yes}, yes, true, now},
		"beside another's":  {[]metav1.Condition{foreign, stamp(yes, then)}, yes, false, then},
		"after another's":   {[]metav1.Condition{foreign}, yes, true, now},
		"a later spec seen": {[]metav1.Condition{stamp(yes, then)}, metav1.Condition{Type: "Enforced", Status: "True", Reason: "A", Message: "a", ObservedGeneration: 2}, true, then},
	} {
		ours, changed := merged(c.have, []metav1.Condition{c.want}, now)
		if len(ours) != 1 || changed != c.changed || !ours[0].LastTransitionTime.Time.Equal(c.time) || ours[0].Reason != c.want.Reason || strings.Contains(ours[0].Type, "Reviewed") {
			t.Errorf("%s: changed %v, %+v", name, changed, ours)
		}
	}
}

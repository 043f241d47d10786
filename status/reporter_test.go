package status

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

func objectsOf[T runtime.Object](list []T) (out []runtime.Object) {
	for _, o := range list {
		out = append(out, o)
	}
	return out
}

// world is a cluster with agents, in a bubble of its own time.
type world struct {
	t        *testing.T
	client   *fake.Clientset
	policies *policyServer
	there    []*v1alpha1.FQDNNetworkPolicy
	cluster  State                // without policies of namespaces
	findings map[string][]Finding // by node
	agents   map[string]*Reporter
	now      func() time.Time // of agents, nil: the bubble's
	marked   atomic.Bool      // Namegate is being uninstalled
	total    int              // the number of agents that later agents are told
}

// inWorld runs a test among agents. Time passes only where the test waits.
func inWorld(t *testing.T, policies []*v1alpha1.FQDNNetworkPolicy, objects []runtime.Object, test func(*testing.T, *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, client: fake.NewClientset(objects...), policies: newPolicyServer(t, objectsOf(policies)...), there: policies, agents: map[string]*Reporter{}, findings: map[string][]Finding{}}
		test(t, w)
	})
}

// start starts a node's agent and returns how to end it.
func (w *world) start(node string) (stop func()) {
	total := w.total
	r, err := New(Options{
		Client: w.client, Dynamic: w.policies, Namespace: "namegate", Node: node, Agents: func() int { return total }, Identity: "agent-" + node, DaemonSet: "agents",
		Uninstalling: func() bool { return w.marked.Load() }, Log: silent,
	})
	fatal.If(w.t, err)
	if w.now != nil {
		r.now = w.now
	}
	w.agents[node] = r
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	w.tell()
	return func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Error(err)
		}
		delete(w.agents, node)
	}
}

// tell tells all agents of the policies as they are now, as their sources would.
func (w *world) tell() {
	var now []*v1alpha1.FQDNNetworkPolicy
	for _, p := range w.there {
		now = append(now, w.policies.get(w.t, p.Namespace, p.Name))
	}
	for node, r := range w.agents {
		s := w.cluster
		s.Policies, s.Findings = slices.Clone(now), w.findings[node]
		r.Set(s)
	}
}

// pass lets time pass. The sources tell each second.
func (w *world) pass(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(time.Second)
		synctest.Wait()
		w.tell()
	}
}

func (w *world) says(name, kind string) string {
	return says(w.policies.get(w.t, "shop", name), kind)
}

func (w *world) leases() (names []string) {
	l, err := w.client.CoordinationV1().Leases("namegate").List(w.t.Context(), metav1.ListOptions{})
	fatal.If(w.t, err)
	for _, l := range l.Items {
		names = append(names, l.Name)
	}
	return names
}

func (w *world) leader() string {
	l, err := w.client.CoordinationV1().Leases("namegate").Get(w.t.Context(), LeaderLease, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return ""
	}
	fatal.If(w.t, err)
	return *l.Spec.HolderIdentity
}

// events returns "kind/name type reason" of all events, sorted.
func (w *world) events() (out []string) {
	l, err := w.client.EventsV1().Events("").List(w.t.Context(), metav1.ListOptions{})
	fatal.If(w.t, err)
	for _, e := range l.Items {
		out = append(out, e.Regarding.Kind+"/"+e.Regarding.Name+" "+e.Type+" "+e.Reason)
	}
	slices.Sort(out)
	return out
}

// TestConditionsOfAllNodes: what any node finds is in the policy's conditions, which
// one agent writes, and goes from there when the node says so.
func TestConditionsOfAllNodes(t *testing.T) {
	inWorld(t, []*v1alpha1.FQDNNetworkPolicy{aPolicy("shop", "web"), aBroken("shop", "typo")}, nil, func(t *testing.T, w *world) {
		defer w.start("n1")()
		defer w.start("n2")()
		w.pass(10 * time.Second)
		for _, c := range [][3]string{
			{"web", policy.ConditionAccepted, "True Accepted"}, {"web", ConditionEnforced, "True NoBlindSpot"}, {"web", ConditionDNSBlocked, "False Reachable"},
			{"typo", policy.ConditionAccepted, "False Invalid"}, {"typo", ConditionEnforced, "False NotAccepted"}, {"typo", ConditionDNSBlocked, "False Reachable"},
		} {
			if got := w.says(c[0], c[1]); got != c[2] {
				t.Errorf("%s of %s is %q, want %q", c[1], c[0], got, c[2])
			}
		}
		for _, node := range []string{"n1", "n2"} {
			w.findings[node] = []Finding{blocked("shop/web", "cart-"+node), {Policy: "shop/web", Pod: pod("old"), Reason: HostNetwork, Message: "it is of the host network"}}
		}
		w.pass(10 * time.Second)
		diff.Equal(t, "True DNSBlocked, False HostNetwork", w.says("web", ConditionDNSBlocked)+", "+w.says("web", ConditionEnforced))
		message := meta.FindStatusCondition(w.policies.get(t, "shop", "web").Status.Conditions, ConditionDNSBlocked).Message
		if !strings.HasPrefix(message, "2 pods: shop/cart-n1, shop/cart-n2;") {
			t.Error(message)
		}
		w.findings["n1"] = nil
		w.findings["n2"] = nil
		w.pass(10 * time.Second)
		diff.Equal(t, "False Reachable, True NoBlindSpot", w.says("web", ConditionDNSBlocked)+", "+w.says("web", ConditionEnforced))
		before := len(w.policies.written())
		w.pass(10 * time.Minute)
		if after := len(w.policies.written()); after != before || before != 4 {
			t.Errorf("%d writes, then %d: only changes are written", before, after-before)
		}
	})
}

// TestHandOver: the next agent continues within seconds of the end of the last, because
// that gives its Lease back, and reports nothing twice.
func TestHandOver(t *testing.T) {
	inWorld(t, []*v1alpha1.FQDNNetworkPolicy{aPolicy("shop", "web"), aBroken("shop", "typo")}, nil, func(t *testing.T, w *world) {
		stop1 := w.start("n1")
		w.pass(3 * time.Second)
		defer w.start("n2")()
		w.pass(time.Minute)
		diff.MustEqual(t, "agent-n1", w.leader(), "the leader")
		said := w.events()
		stop1()
		diff.Equal(t, "", w.leader(), "the leader after its end")
		w.pass(20 * time.Second)
		diff.MustEqual(t, "agent-n2", w.leader(), "the leader")
		diff.Equal(t, 2, len(w.policies.written()), "writes: one of each policy")
		if now := w.events(); !slices.Equal(now, said) || !slices.Equal(said, []string{"FQDNNetworkPolicy/typo Warning Invalid"}) {
			t.Errorf("events %q, then %q", said, now)
		}
	})
}

// TestLostNode: an agent that ends for good is forgotten after a while.
func TestLostNode(t *testing.T) {
	inWorld(t, []*v1alpha1.FQDNNetworkPolicy{aPolicy("shop", "web")}, []runtime.Object{
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "uid-n1"}}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2", UID: "uid-n2"}},
	}, func(t *testing.T, w *world) {
		defer w.start("n1")()
		stop := w.start("n2")
		w.findings["n2"] = []Finding{blocked("shop/web", "cart")}
		w.pass(10 * time.Second)
		stop()
		w.pass(staleAfter - time.Minute)
		diff.MustEqual(t, "True DNSBlocked", w.says("web", ConditionDNSBlocked), "the agent may be about to come back")
		w.pass(2*time.Minute + expireEvery)
		diff.Equal(t, "False Reachable", w.says("web", ConditionDNSBlocked))
		diff.Error(t, []string{LeaderLease, "namegate-node-n1"}, w.leases(), "Leases")
	})
}

// TestWithdraw: with running agents, none of their objects is written again, and other
// objects stay.
func TestWithdraw(t *testing.T) {
	inWorld(t, []*v1alpha1.FQDNNetworkPolicy{aPolicy("shop", "web")}, []runtime.Object{
		&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "namegate", Name: "agents"}},
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "namegate", Name: "namegate-console-0", Labels: map[string]string{ManagedByLabel: ManagedBy, leaseLabel: "console"}}},
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "namegate", Name: "somebodys", Labels: map[string]string{ManagedByLabel: ManagedBy}}},
	}, func(t *testing.T, w *world) {
		defer w.start("n1")()
		defer w.start("n2")()
		w.pass(10 * time.Second)
		if len(w.leases()) != 5 {
			t.Fatalf("Leases %q", w.leases())
		}
		hook, err := New(Options{Client: w.client, Dynamic: w.policies, Namespace: "namegate", DaemonSet: "agents", Log: silent})
		fatal.If(t, err)
		done := make(chan error, 1)
		go func() { done <- hook.Withdraw(t.Context()) }()
		synctest.Wait()
		set, err := w.client.AppsV1().DaemonSets("namegate").Get(t.Context(), "agents", metav1.GetOptions{})
		fatal.If(t, err)
		if set.Annotations[UninstallingAnnotation] == "" {
			t.Fatal("the DaemonSet is not marked")
		}
		w.pass(3 * time.Second) // the agents write still
		w.marked.Store(true)
		fatal.If(t, <-done)
		w.pass(5 * time.Minute)
		diff.Error(t, []string{"somebodys"}, w.leases(), "left are the Leases")
	})
}

func TestWithdrawFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := fake.NewClientset()
		refuse(c, "list", "leases", "no")
		r, err := New(Options{Client: c, Dynamic: newPolicyServer(t), Namespace: "namegate", DaemonSet: "agents", Log: silent})
		fatal.If(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := r.Withdraw(ctx); !apierrors.IsForbidden(err) {
			t.Errorf("got %v", err)
		}
	})
}

func TestNewAndRunNeedTheirOptions(t *testing.T) {
	o := Options{Client: fake.NewClientset(), Dynamic: newPolicyServer(t), Log: silent}
	if _, err := New(o); err == nil {
		t.Error("made without a namespace")
	}
	o.Namespace = "namegate"
	r, err := New(o)
	fatal.If(t, err)
	if r.Run(t.Context()) == nil {
		t.Error("runs without a node")
	}
	if r.Withdraw(t.Context()) == nil {
		t.Error("withdraws without a DaemonSet")
	}
	if _, err := New(Options{Namespace: "namegate"}); err == nil {
		t.Error("made without clients")
	}
}

package enforcer

import (
	"context"
	"errors"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/enforcer/intercept"
	"github.com/namegate/namegate/kernel/conntrack"
	"github.com/namegate/namegate/kernel/link"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

func waiting(pods ...policy.Pod) map[policy.PodRef]bool {
	out := map[policy.PodRef]bool{}
	for _, p := range pods {
		out[p.PodRef] = true
	}
	return out
}

// part prepares a snapshot and brings it into force for all pods but some.
func (w *world) part(s *policy.Snapshot, pods ...policy.Pod) {
	w.t.Helper()
	w.prepare(s)
	w.commitPart(pods...)
}

// commitPart brings what is prepared into force for all pods but some.
func (w *world) commitPart(pods ...policy.Pod) {
	w.t.Helper()
	_, err := w.e.CommitPart(context.Background(), waiting(pods...))
	fatal.If(w.t, err)
}

// TestCommitPart: pods that wait are open still, and what is prepared for them is ready,
// whatever else happens meanwhile; all others have the new snapshot.
func TestCommitPart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	web, db, late, fresh := pod("web", "10.1.0.5", "one", "two"), pod("db", "10.1.0.6", "two"), pod("late", "10.1.0.7", "two"), pod("fresh", "10.1.0.8", "two")
	one, two := pol("one", "tcp/443 www.example.org"), pol("two", "tcp/80 www.example.com")
	w.apply([]policy.Pod{web, db, late}, one)
	w.answer(web, "www.example.org", 60, "192.0.2.1")
	next := w.compile([]policy.Pod{web, db, late, fresh}, two)
	w.part(next, web, late, fresh) // web is isolated already, and does not wait
	check := func(when string, waits bool) {
		t.Helper()
		for _, test := range []struct {
			src, dst string
			port     uint16
			passes   bool
		}{
			{"10.1.0.5", "192.0.2.1", 443, false}, // by the policy that is gone
			{"10.1.0.6", "192.0.2.9", 25, false},
			{"10.1.0.7", "192.0.2.9", 25, waits},
			{"10.1.0.8", "192.0.2.9", 25, waits},
		} {
			diff.Equal(t, test.passes, w.dials(test.src, test.dst, test.port), when, test.src, "to", test.dst, "port", test.port, "passes")
		}
	}
	check("after the part", true)
	held := flow("10.1.0.7:1000", "192.0.2.2:80")
	held.Mark &^= DefaultMark
	w.flows.Track(held)
	for _, p := range []policy.Pod{late, fresh} {
		fatal.If(t, w.answerBy(next, p, "www.example.com", 60, "192.0.2.2"))
	}
	w.reconcile()
	w.learns(intercept.Network{})
	check("after a reconcile and another network", true)
	w.part(w.compile([]policy.Pod{web, db, late, fresh}, two, pol("none")), late)
	if !w.dials("10.1.0.7", "192.0.2.9", 25) || w.dials("10.1.0.8", "192.0.2.9", 25) {
		t.Error("after a part of the next snapshot the one pod waits, and the other does not")
	}
	w.commit()
	check("in the end", false)
	for _, src := range []string{"10.1.0.7", "10.1.0.8"} {
		if !w.dials(src, "192.0.2.2", 80) {
			t.Errorf("what was granted to %s while it waited is closed", src)
		}
	}
	if !w.admitted(held) {
		t.Error("a connection that was open before is cut, though it was granted meanwhile")
	}
}

// TestFirstSnapshotHasNoWaitingPods: the chains of an earlier agent isolate pods until
// the first Commit.
func TestFirstSnapshotHasNoWaitingPods(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	web, one := pod("web", "10.1.0.5", "one"), pol("one", "tcp/443 www.example.org")
	w.apply([]policy.Pod{web}, one)
	w.restart()
	s := w.compile([]policy.Pod{web}, one)
	w.prepare(s)
	if got, err := w.e.CommitPart(context.Background(), waiting(web)); err != nil || got != s {
		t.Errorf("in force is %v, error %v", got, err)
	}
	if w.dials("10.1.0.5", "192.0.2.9", 25) {
		t.Error("the pod is open")
	}
}

// TestRetryRepairsEveryFaultOfAPartialCommit: a part may fail at any step, and be followed by
// the whole or by another try.
func TestRetryRepairsEveryFaultOfAPartialCommit(t *testing.T) {
	t.Parallel()
	w, next := busy(t)
	fatal.If(t, w.rollOut(next))
	want := w.all()
	late, tries := pod("late", "10.1.0.7", "three"), 0
	eachFault(t, leastSteps[iptablesPlane], true, func() (*world, func() error) {
		w, next = busy(t)
		return w, func() error {
			if err := w.e.Prepare(context.Background(), next); err != nil {
				return err
			}
			_, err := w.e.CommitPart(context.Background(), waiting(late))
			return err
		}
	}, func(f fault) {
		f.told()
		f.retried(func() error {
			if tries++; tries%3 > 0 {
				return f.rollOut(next)
			}
			f.part(next, late)
			return f.e.Commit(context.Background())
		}, want)
	})
}

// TestAPodThatWaitsLosesAPeer: what it opened to the peer meanwhile, by chains that admit
// it already, is cut with the peer.
func TestAPodThatWaitsLosesAPeer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	late := pod("late", "10.1.0.7", "one", "np")
	w.links.SetHome(addr("10.1.0.7"), link.Home{Iface: "veth7"})
	w.apply([]policy.Pod{late})
	one := pol("one", "tcp/443 www.example.org")
	w.netpols = append(w.netpols, netpol("np", "tcp/80 db"))
	w.remote = []*policy.Pod{far("db1", "10.2.0.1", "db"), far("db2", "10.2.0.2", "db")}
	w.part(w.compile([]policy.Pod{late}, one), late)
	stays, goes := w.track("10.1.0.7:1001", "10.2.0.1:80"), w.track("10.1.0.7:1002", "10.2.0.2:80")
	w.remote = w.remote[:1]
	w.part(w.compile([]policy.Pod{late}, one), late)
	w.commit()
	if !w.admitted(stays) || w.admitted(goes) {
		t.Errorf("to the peer that stays: admitted %v; to the one that went: %v", w.admitted(stays), w.admitted(goes))
	}
}

// TestAFailureClosesTheComingPodsAlone: a pod that a failure closed stays closed while it
// waits for its names, and a pod that comes later is open until its own are granted.
func TestAFailureClosesTheComingPodsAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	sick, later := pod("sick", "10.1.0.5", "one"), pod("later", "10.1.0.6", "two")
	one, two := pol("one", "tcp/443 www.example.org"), pol("two", "tcp/443 www.example.org")
	w.apply([]policy.Pod{sick, later})
	next := w.compile([]policy.Pod{sick, later}, one)
	w.seams.refuse = "restore"
	if err := w.e.Prepare(context.Background(), next); !errors.Is(err, errInjected) {
		t.Fatal(err)
	}
	w.seams.refuse = ""
	w.part(next, sick)
	fatal.If(t, w.e.Prepare(context.Background(), w.compile([]policy.Pod{sick, later}, one, two)))
	check := func(when string) {
		t.Helper()
		if w.dials("10.1.0.5", "192.0.2.9", 25) {
			t.Errorf("%s: a pod that a failure closed is open again", when)
		}
		if !w.dials("10.1.0.6", "192.0.2.9", 25) {
			t.Errorf("%s: a pod that came after the failure is closed before its Commit", when)
		}
	}
	check("prepared")
	w.reconcile()
	check("compared")
	w.commitPart(sick, later)
	check("committed in part")
	w.commit()
	if w.dials("10.1.0.5", "192.0.2.9", 25) || w.dials("10.1.0.6", "192.0.2.9", 25) || len(w.e.closed) > 0 {
		t.Errorf("after the Commit a pod is open; closed %v", w.e.closed)
	}
}

// TestNextPodOfAnotherNode: the next pod of an address inherits no connection to a pod with rules for ingress, also where
// it is of another node. A pod that changes keeps its connections, and so does one that is not read any more.
func TestNextPodOfAnotherNode(t *testing.T) {
	t.Parallel()
	for name, whole := range map[string]bool{"members of peers alone": false, "a whole snapshot": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nextPodOfAnotherNode(t, whole)
		})
	}
}

// nextPodOfAnotherNode is for one way to commit.
func nextPodOfAnotherNode(t *testing.T, whole bool) {
	w := newWorld(t)
	in := netpol("in")
	in.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
	in.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"good": "yes"}}}}}}
	clients := map[string]conntrack.Flow{}
	after := func(what string, read []string, unknown bool, remote []*policy.Pod, open string) {
		t.Helper()
		input := compile.Input{Pods: []policy.Pod{pod("web", "10.1.0.5", "in")}, Remote: remote, RemoteNamespaces: read, PeersUnknown: unknown, NetworkPolicies: []*networkingv1.NetworkPolicy{in}, EnforceNetworkPolicies: true}
		w.e.complete = w.e.complete && !whole
		fatal.If(t, w.rollOut(w.compiler.Compile(input)))
		w.clock.Pass(packetGrace)
		w.recheck()
		for name, f := range clients {
			diff.Equal(t, strings.Contains(open, name), w.admitted(f), what+": the connection of", name, "is admitted")
		}
	}
	first, second, third := far("first", "10.2.0.1", "good"), far("second", "10.2.0.2", "good"), far("third", "10.2.0.3", "good")
	after("at first", nil, false, []*policy.Pod{first, second, third}, "")
	for name, from := range map[string]string{"first": "10.2.0.1:1001", "second": "10.2.0.2:1001", "third": "10.2.0.3:1001"} {
		clients[name] = w.track(from, "10.1.0.5:80")
	}
	after("a pod changes", nil, false, []*policy.Pod{first, far("second", "10.2.0.2"), third}, "first second third")
	after("another pod is gone", nil, false, []*policy.Pod{second, third}, "second third")
	after("a pod has the address of another", nil, false, []*policy.Pod{far("fourth", "10.2.0.2"), third}, "third")
	after("pods are not known", nil, true, nil, "third")
	after("pods are known again", nil, false, []*policy.Pod{third}, "third")
	after("the namespace is not read", []string{"other"}, false, nil, "third")
}

// TestAPodThatWaitsKeepsItsClients: connections to a pod that waits for names stay admitted at further changes.
func TestAPodThatWaitsKeepsItsClients(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	in := netpol("in")
	in.Spec.PolicyTypes, in.Spec.Ingress = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}, []networkingv1.NetworkPolicyIngressRule{{}}
	db, web := pod("db", "10.1.0.6"), pod("web", "10.1.0.5", "in", "allow")
	compiled := func(pods ...policy.Pod) *policy.Snapshot {
		return w.compiler.Compile(compile.Input{Pods: pods, Policies: []*v1alpha1.FQDNNetworkPolicy{pol("allow", "tcp/443 www.example.org")}, NetworkPolicies: []*networkingv1.NetworkPolicy{in}, EnforceNetworkPolicies: true})
	}
	fatal.If(t, w.rollOut(compiled(db)))
	w.part(compiled(db, web), web)
	w.track("10.1.0.6:1001", "10.1.0.5:80")
	stays := func() {
		t.Helper()
		if !w.admitted(flow("10.1.0.6:1001", "10.1.0.5:80")) {
			t.Error("the connection lost its admission")
		}
	}
	for range 2 {
		w.part(compiled(db, web, pod("other", "10.1.0.7")), web)
		stays()
	}
	w.part(compiled(db, web))
	stays()
}

package kube

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// remoteText describes a State's pods of other nodes.
func remoteText(s State) string {
	var words []string
	for _, p := range s.Input.Remote {
		words = append(words, fmt.Sprintf("%s%v", p.Name, p.IPs))
	}
	if s.Input.PeersUnknown {
		words = append(words, "unknown")
	}
	return strings.Join(words, " ")
}

// requested returns how often pods of other nodes were asked for from the start.
func requested(api *apiServer) int {
	return api.requests("stream other pods") + api.requests("list other pods")
}

func (s *apiServer) setForbid(resource string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forbid = resource
}

// withPeers is an API server where pods of other nodes are needed.
func withPeers(t *testing.T) *apiServer {
	api := newAPIServer(t)
	api.put(v1alpha1.Resource, aPolicy("p", "www.example.org"))
	api.put("networkpolicies", aNetworkPolicy("shop", "db", "db"))
	api.put("pods", aPod("web", "10.0.0.1"))
	api.put("pods", aFarPod("db", "10.1.0.1"))
	return api
}

// TestFirstStateWaitsForRemotePods as for all that is needed, and Health says so.
func TestFirstStateWaitsForRemotePods(t *testing.T) {
	api := withPeers(t)
	api.setForbid("other pods")
	r := runAt(t, api)
	h := r.untilHealth("an error", away)
	if !strings.HasPrefix(h.LastError, "pods of other nodes in shop: ") || len(r.states) > 0 {
		t.Errorf("health %+v, %d states", h, len(r.states))
	}
	api.setForbid("")
	diff.Equal(t, "db[10.1.0.1]", remoteText(<-r.states), "the first state has")
	r.untilHealth("well", well)
}

// TestRemotePodsAreNotAskedForByNodesWithoutSuchPods: a policy and a NetworkPolicy of
// one namespace are nothing to a node that has none of its pods, until one is bound to it.
func TestRemotePodsAreNotAskedForByNodesWithoutSuchPods(t *testing.T) {
	api := withPeers(t)
	api.put("pods", with(aPod("web", "10.0.0.1"), func(p *corev1.Pod) { p.Namespace = "bank" }))
	api.put("pods", with(aPod("host", "192.0.2.1"), func(p *corev1.Pod) { p.Spec.HostNetwork = true }))
	api.put("pods", with(aPod("job", "10.0.0.3"), func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }))
	api.remove("pods/shop/web")
	r := runOn(t, api, newPickedClock(PeersPatience))
	first := <-r.states
	if got := podText(first); got != "web[10.0.0.1] host[192.0.2.1] job[]" || remoteText(first) != "" || requested(api) > 0 {
		t.Fatalf("%q, %q after %d requests", got, remoteText(first), requested(api))
	}
	api.put("pods", aPod("new")) // it has no address yet
	s := r.until("web[10.0.0.1] host[192.0.2.1] job[] new[]", podText)
	if remoteText(s) != "db[10.1.0.1]" || requested(api) == 0 {
		t.Errorf("the pod came with %q", remoteText(s))
	}
	api.remove("pods/shop/new")
	r.until("", remoteText)
}

// TestRemotePodsAreNeededLater, and the API server refuses: states go on without them
// and wait for nothing, and one follows with them.
func TestRemotePodsAreNeededLater(t *testing.T) {
	api := withPeers(t)
	api.remove("networkpolicies/shop/db")
	api.setForbid("other pods")
	r := runOn(t, api, newPickedClock(PeersPatience)) // whose end never comes
	r.until("web[10.0.0.1]", podText)
	api.put("networkpolicies", aNetworkPolicy("shop", "db", "db"))
	r.until("unknown", remoteText)
	const problem = "pods of other nodes: PeersUnknown"
	problems := func(s State) string {
		var words []string
		for _, p := range s.Problems {
			words = append(words, p.Object+": "+p.Reason)
		}
		return strings.Join(words, " ")
	}
	if s := r.until(problem, problems); len(s.Input.NetworkPolicies) != 1 || !strings.Contains(s.Problems[0].Message, "list and watch pods") {
		t.Errorf("%v, %v", s.Input.NetworkPolicies, s.Problems)
	}
	api.put("pods", aPod("zoo", "10.0.0.2"))
	if s := r.until("web[10.0.0.1] zoo[10.0.0.2]", podText); remoteText(s) != "unknown" {
		t.Errorf("%q", remoteText(s))
	}
	api.setForbid("")
	if s := r.until("db[10.1.0.1]", remoteText); problems(s) != "" {
		t.Errorf("%v", s.Problems)
	}
	r.untilHealth("well", well)
}

// pickedClock is the system's, but for the durations that are the test's to end.
type pickedClock struct {
	clock.Clock
	asked map[time.Duration]chan chan time.Time
}

func newPickedClock(picked ...time.Duration) pickedClock {
	c := pickedClock{Clock: clock.RealClock{}, asked: map[time.Duration]chan chan time.Time{}}
	for _, d := range picked {
		c.asked[d] = make(chan chan time.Time, 10)
	}
	return c
}

func (c pickedClock) After(d time.Duration) <-chan time.Time {
	asked := c.asked[d]
	if asked == nil {
		return c.Clock.After(d)
	}
	over := make(chan time.Time, 1)
	asked <- over
	return over
}

// runOn is runAt by a clock.
func runOn(t *testing.T, api *apiServer, clock clock.Clock) *running {
	client, dyn := api.clients()
	return runWith(t, Options{Client: client, Dynamic: dyn, NodeName: ourNode, Log: slog.New(slog.DiscardHandler), Clock: clock})
}

// TestRemotePodsAreForgotten when they were not needed for a while, and not before.
func TestRemotePodsAreForgotten(t *testing.T) {
	api := withPeers(t)
	clock := newPickedClock(RemoteLinger, PeersPatience)
	linger := clock.asked[RemoteLinger]
	r := runOn(t, api, clock)
	first := r.until("db[10.1.0.1]", remoteText)
	before := requested(api)

	api.remove("networkpolicies/shop/db")
	r.until("", remoteText)
	stale := <-linger
	diff.Equal(t, 1, api.open("other pods"), "feeds that are open")
	api.put("networkpolicies", aNetworkPolicy("shop", "db", "db"))
	again := r.until("1", func(s State) string { return fmt.Sprint(len(s.Input.NetworkPolicies)) })
	diff.MustEqual(t, "db[10.1.0.1]", remoteText(again), "needed again before it ended")
	if first.Input.Remote[0] != again.Input.Remote[0] || requested(api) != before {
		t.Errorf("%d requests, before %d", requested(api), before)
	}
	stale <- at(600) // it was needed again: that time means nothing any more
	api.put("pods", aFarPod("zoo", "10.1.0.2"))
	r.until("db[10.1.0.1] zoo[10.1.0.2]", remoteText)
	diff.Equal(t, before, requested(api), "requests: the feed was needed again")

	api.remove(v1alpha1.Resource + "/shop/p")
	r.until("", remoteText)
	(<-linger) <- at(1200)
	untilNotWatched(t, api)
	r.untilHealth("well", well)
	api.remove("pods/shop/zoo")
	api.put(v1alpha1.Resource, aPolicy("p", "www.example.org"))
	diff.Equal(t, "db[10.1.0.1]", remoteText(r.until("p:www.example.org", policyText)), "the policy came with")
	if requested(api) == before {
		t.Error("what was forgotten was not asked for again")
	}
	diff.Equal(t, 0, len(linger), "times of a feed that is needed")
}

// spaceText describes a State's pods of other nodes with their namespaces, and the namespaces
// whose pods it has.
func spaceText(s State) string {
	var words []string
	for _, p := range s.Input.Remote {
		words = append(words, p.Namespace+"/"+p.Name)
	}
	return fmt.Sprint(strings.Join(words, " "), " of ", s.Input.RemoteNamespaces)
}

// TestRemotePodsOfNamespaces: only the namespaces to which NetworkPolicies lead are asked for,
// and a namespace comes with its pods.
func TestRemotePodsOfNamespaces(t *testing.T) {
	for name, noStream := range map[string]bool{"streamed": false, "listed": true} {
		t.Run(name, func(t *testing.T) {
			api := withPeers(t)
			api.noStream = noStream
			for _, namespace := range []string{"bank", "pay", "dev"} {
				api.put("namespaces", space(namespace, map[string]string{"bank": "back", "pay": "front"}[namespace]))
				api.put("pods", with(aFarPod("api", "10.1.1.1"), inSpace(namespace)))
			}
			api.put("pods", aFarPod("db", "10.1.0.1"))
			clock := newPickedClock(RemoteLinger, PeersPatience)
			r := runOn(t, api, clock)
			if got := spaceText(<-r.states); got != "shop/db of [shop]" || api.namespaces("other pods") != "shop" {
				t.Fatalf("%q, asked for %q", got, api.namespaces("other pods"))
			}
			api.put("networkpolicies", with(aNetworkPolicy("shop", "back", ""), toSpaces(map[string]string{"v": "back"})))
			next := func(what, want string) {
				t.Helper()
				select {
				case s := <-r.states:
					diff.Equal(t, want, spaceText(s), what)
				case <-time.After(time.Minute):
					t.Fatalf("%s: no state", what)
				}
			}
			next("a NetworkPolicy", "bank/api shop/db of [bank shop]")
			api.put("namespaces", space("pay", "back"))
			next("a namespace gets the label", "bank/api pay/api shop/db of [bank pay shop]")
			api.put("namespaces", space("bank", "front"))
			next("a namespace loses the label", "pay/api shop/db of [pay shop]")
			api.put("namespaces", space("bank", "back"))
			next("it has the label again", "bank/api pay/api shop/db of [bank pay shop]")
			diff.Equal(t, "bank pay shop", api.namespaces("other pods"), "asked for")
			api.remove("networkpolicies/shop/db")
			next("the own namespace is not needed", "bank/api pay/api of [bank pay]")
			for len(clock.asked[RemoteLinger]) > 1 {
				<-clock.asked[RemoteLinger] // of the namespace that was needed again
			}
			(<-clock.asked[RemoteLinger]) <- at(600)
			fatal.Await(t, "the end of a watch", func() bool { return api.open("other pods") == 2 })
			api.put("pods", with(aFarPod("new", "10.1.1.2"), inSpace("bank")))
			next("a watch that goes on", "bank/api bank/new pay/api of [bank pay]")
			r.untilHealth("well", well)
		})
	}
}

// TestPodsOfNamespacesAreListed, also by a server that can stream lists: it would copy and sort all
// pods of the cluster. Whole kinds are streamed, which needs no whole list at once, and so are the
// pods of this node, which must not be older than an earlier agent knew.
func TestPodsOfNamespacesAreListed(t *testing.T) {
	api := withPeers(t)
	api.put("networkpolicies", with(aNetworkPolicy("shop", "all", ""), toSpaces(map[string]string{"v": "back"})))
	client, dyn := api.clients()
	r := runWith(t, Options{Client: client, Dynamic: dyn, NodeName: ourNode, Log: slog.New(slog.DiscardHandler)}, func(s *Source) { s.remote.most = 1 })
	r.until("shop/db of [shop]", spaceText)
	if streamed, listed := api.requests("stream other pods"), api.requests("list other pods"); streamed > 0 || listed != 1 {
		t.Errorf("%d streamed, %d listed", streamed, listed)
	}
	api.put("namespaces", space("bank", "back"))
	r.until("shop/db of []", spaceText)
	for _, what := range []string{"pods", "nodes", "namespaces", "services", "networkpolicies", v1alpha1.Resource, "other pods"} {
		diff.Equal(t, 1, api.requests("stream "+what), what, "streamed")
	}
}

// TestListsOfNamespacesTakeTurns: the watches of all namespaces share the turns of their lists.
func TestListsOfNamespacesTakeTurns(t *testing.T) {
	api := withPeers(t)
	api.put("networkpolicies", with(aNetworkPolicy("shop", "back", ""), toSpaces(map[string]string{"v": "back"})))
	for _, namespace := range []string{"bank", "pay", "dev"} {
		api.put("namespaces", space(namespace, "back"))
	}
	api.setSilent("other pods")
	r := runAt(t, api)
	fatal.Await(t, "the first lists", func() bool { return api.requests("list other pods") == remoteLists })
	diff.Equal(t, remoteLists, len(r.source.remote.turns), "lists have a turn")
	api.speak()
	r.until("shop/db of [bank dev pay shop]", spaceText)
}

// untilNotWatched waits until pods of other nodes are not watched.
func untilNotWatched(t *testing.T, api *apiServer) {
	t.Helper()
	fatal.Await(t, "the end of the feed", func() bool { return api.open("other pods") == 0 })
}

// TestRemotePodsComeInPages from servers that cannot stream.
func TestRemotePodsComeInPages(t *testing.T) {
	api := withPeers(t)
	api.noStream = true
	const pods = 2*remotePage + 1
	for i := range pods - 1 {
		api.put("pods", aFarPod(fmt.Sprint("p", i), policyAddr(i)))
	}
	r := runAt(t, api)
	if s := <-r.states; len(s.Input.Remote) != pods {
		t.Errorf("%d pods", len(s.Input.Remote))
	}
	diff.Equal(t, 3, api.requests("list other pods"), "pages")
}

func policyAddr(i int) string { return fmt.Sprintf("10.2.%d.%d", i/250, 1+i%250) }

// TestServicesAreShared: the pointer of a Service that did not change stays.
func TestServicesAreShared(t *testing.T) {
	api := newAPIServer(t)
	api.put("services", aService("shop", "web", "10.96.0.1"))
	r := runAt(t, api)
	text := func(s State) string { return fmt.Sprint(s.Cluster.Services) }
	first := r.until("[10.96.0.1]", text)
	api.put("services", aService("shop", "zoo", "10.96.0.2"))
	second := r.until("[10.96.0.1 10.96.0.2]", text)
	at := func(s State) *policy.Service { return s.Cluster.ServicesAt[addrs("10.96.0.1")[0]] }
	if at(first) == nil || at(first) != at(second) || first.Cluster.Dialled[0] != at(first) || second.Cluster.Dialled[0] != at(first) || len(first.Cluster.ServicesAt) != 1 || len(second.Cluster.ServicesAt) != 2 {
		t.Errorf("%v, then %v", first.Cluster.ServicesAt, second.Cluster.ServicesAt)
	}
}

// TestRemotePodsKeepTheirPointers: a change of one leaves the others as they are, also
// when all are listed again.
func TestRemotePodsKeepTheirPointers(t *testing.T) {
	for name, noStream := range map[string]bool{"streamed": false, "listed": true} {
		t.Run(name, func(t *testing.T) {
			api := withPeers(t)
			api.noStream = noStream
			api.put("pods", aFarPod("zoo", "10.1.0.2"))
			r := runAt(t, api)
			first := r.until("db[10.1.0.1] zoo[10.1.0.2]", remoteText)
			api.put("pods", with(aFarPod("zoo", "10.1.0.2"), func(p *corev1.Pod) { p.Labels = map[string]string{"app": "ape"} }))
			second := r.until("ape", func(s State) string { return s.Input.Remote[1].Labels["app"] })
			lists := requested(api)
			api.setAway(true)
			r.untilHealth("an error", away)
			api.forget()
			api.put("pods", aFarPod("new", "10.1.0.3"))
			api.setAway(false)
			third := r.until("db[10.1.0.1] new[10.1.0.3] zoo[10.1.0.2]", remoteText)
			if first.Input.Remote[0] != second.Input.Remote[0] || first.Input.Remote[1] == second.Input.Remote[1] {
				t.Error("the unchanged pod was replaced, or the changed one kept")
			}
			if third.Input.Remote[0] != second.Input.Remote[0] || third.Input.Remote[2] != second.Input.Remote[1] || requested(api) == lists {
				t.Error("pods that were listed anew and did not change were replaced")
			}
			diff.Equal(t, third.Input.NetworkPolicies[0], first.Input.NetworkPolicies[0], "a NetworkPolicy that did not change")
			if first.Input.Remote[1].Labels["app"] != "zoo" || len(second.Input.Remote) != 2 {
				t.Error("a state that was handed out has changed")
			}
		})
	}
}

// TestOtherChangesOfRemotePodsAreNoState.
func TestOtherChangesOfRemotePodsAreNoState(t *testing.T) {
	api := withPeers(t)
	r := runAt(t, api)
	r.until("db[10.1.0.1]", remoteText)
	for i := range 20 {
		api.put("pods", with(aFarPod("db", "10.1.0.1"), func(p *corev1.Pod) { p.Status.Message = fmt.Sprint(i) }))
		api.put("pods", with(aFarPod("host", "192.0.2.2"), func(p *corev1.Pod) { p.Spec.HostNetwork, p.Labels["i"] = true, fmt.Sprint(i) }))
	}
	api.put("pods", aFarPod("zoo", "10.1.0.2"))
	r.until("db[10.1.0.1] zoo[10.1.0.2]", remoteText)
	diff.Equal(t, 0, len(r.states), "more states")
}

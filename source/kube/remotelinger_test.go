package kube

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// lingering is a source whose policies lead from shop to the namespaces with the label "v: back".
// One such namespace has a watch of its own, more have one of all. No watch asks an API server.
func lingering(t *testing.T) (*Source, pickedClock) {
	t.Helper()
	s, clock := patient(t)
	clock.asked[RemoteLinger] = make(chan chan time.Time, 10)
	delete(s.remote.feeds, "shop")
	fatal.If(t, s.networkPolicies.Replace([]any{with(aNetworkPolicy("shop", "back", ""), toSpaces(map[string]string{"v": "back"}))}, ""))
	fatal.If(t, s.policies.Add(aPolicy("p", "www.example.org")))
	return s, clock
}

// addFeed adds a watch of a namespace, whose pods are not known.
func (s *Source) addFeed(namespace string) {
	s.remote.feeds[namespace] = &remoteFeed{listWatch: &listWatch{name: remoteName(namespace)}, pods: remoteStore(s.noteRemote, ourNode), stop: func() {}}
}

// setPods replaces the pods of a watch.
func (s *Source) setPods(t *testing.T, namespace string, pods ...*corev1.Pod) {
	t.Helper()
	f := s.remote.feeds[namespace]
	if f == nil {
		t.Fatalf("the watch of %q has ended", namespace)
	}
	var objects []any
	for _, p := range pods {
		objects = append(objects, p)
	}
	fatal.If(t, f.pods.Replace(objects, ""))
}

// setSpaces replaces the namespaces by some with the label "v: back".
func (s *Source) setSpaces(t *testing.T, names ...string) {
	t.Helper()
	var objects []any
	for _, name := range names {
		objects = append(objects, space(name, "back"))
	}
	fatal.If(t, s.namespaces.Replace(objects, ""))
}

// wants checks the pods of other nodes of the State after a burst.
func (s *Source) wants(t *testing.T, what, want string) {
	t.Helper()
	step(t, s)
	diff.Equal(t, want, remoteText(s.assembly.state), what)
}

func farIn(namespace, name, ip string) *corev1.Pod {
	return with(aFarPod(name, ip), inSpace(namespace))
}

// TestWatchesOfNamespacesStayUntilAllIsKnown: they are all that is known, however long the API
// server does not tell the pods of all namespaces.
func TestWatchesOfNamespacesStayUntilAllIsKnown(t *testing.T) {
	s, clock := lingering(t)
	s.addFeed("bank")
	s.setSpaces(t, "bank")
	s.setPods(t, "bank", farIn("bank", "api", "10.1.1.1"))
	s.wants(t, "one namespace", "api[10.1.1.1]")
	s.addFeed("")
	s.setSpaces(t, "bank", "pay")
	s.link.note(s.remote.feeds[""].listWatch, errors.New("forbidden"))
	s.wants(t, "all, which is refused", "api[10.1.1.1] unknown")
	<-clock.asked[RemoteLinger]
	s.endRemote()
	s.setPods(t, "bank", farIn("bank", "api", "10.1.1.2"))
	s.wants(t, "a pod gets another address", "api[10.1.1.2] unknown")
	s.setPods(t, "", farIn("bank", "api", "10.1.1.2"), farIn("pay", "card", "10.1.1.3"))
	s.wants(t, "all is known", "api[10.1.1.2] card[10.1.1.3]")
	if len(clock.asked[RemoteLinger]) == 0 {
		t.Fatal("the watch of a namespace goes on for ever")
	}
	s.endRemote()
	if len(s.remote.feeds) != 1 || !s.remote.has("") {
		t.Errorf("%d watches", len(s.remote.feeds))
	}
}

// TestWatchOfAllStaysUntilNamespacesAreKnown.
func TestWatchOfAllStaysUntilNamespacesAreKnown(t *testing.T) {
	s, clock := lingering(t)
	s.addFeed("")
	s.setSpaces(t, "bank", "pay")
	s.setPods(t, "", farIn("bank", "api", "10.1.1.1"), farIn("pay", "card", "10.1.1.3"))
	s.wants(t, "two namespaces", "api[10.1.1.1] card[10.1.1.3]")
	s.addFeed("bank")
	s.setSpaces(t, "bank")
	s.wants(t, "one namespace", "api[10.1.1.1]")
	<-clock.asked[RemoteLinger]
	s.endRemote()
	s.wants(t, "after a while", "api[10.1.1.1]")
	s.setPods(t, "bank", farIn("bank", "api", "10.1.1.1"))
	s.wants(t, "the namespace is known", "api[10.1.1.1]")
	s.endRemote()
	if len(s.remote.feeds) != 1 || !s.remote.has("bank") {
		t.Errorf("%d watches", len(s.remote.feeds))
	}
}

// TestWatchOfANamespaceCountsMore than one of all, which is not needed and may be behind.
func TestWatchOfANamespaceCountsMore(t *testing.T) {
	s, _ := lingering(t)
	s.addFeed("")
	s.setSpaces(t, "bank", "pay")
	s.setPods(t, "", farIn("bank", "api", "10.1.1.1"), farIn("pay", "card", "10.1.1.3"))
	s.wants(t, "two namespaces", "api[10.1.1.1] card[10.1.1.3]")
	s.addFeed("bank")
	s.setSpaces(t, "bank")
	s.setPods(t, "bank", farIn("bank", "api", "10.1.1.2"))
	s.wants(t, "a pod has another address in the watch of its namespace", "api[10.1.1.2]")
	before := s.assembly.state.Input.Remote[0]
	s.setPods(t, "", farIn("bank", "api", "10.1.1.2"))
	s.endRemote()
	s.setPods(t, "bank", farIn("bank", "api", "10.1.1.2"), farIn("bank", "new", "10.1.1.4"))
	s.wants(t, "the watch of all has ended", "api[10.1.1.2] new[10.1.1.4]")
	diff.Equal(t, before, s.assembly.state.Input.Remote[0], "a pod that did not change")
}

// TestKnownPodsStayWhileAllIsFilled: a watch that is filled while a State is made takes the known
// pods out of none.
func TestKnownPodsStayWhileAllIsFilled(t *testing.T) {
	var pods []any
	for i := range 5000 {
		pods = append(pods, farIn("bank", fmt.Sprint("api-", i), fmt.Sprintf("10.1.%d.%d", i/250, 1+i%250)))
	}
	one := slices.Clone(pods[:1])
	s, _ := lingering(t)
	s.addFeed("bank")
	fatal.If(t, s.remote.feeds["bank"].pods.Replace(pods, ""))
	s.remote.wanted = map[string]bool{"": true}
	for range 2000 {
		s.addFeed("")
		s.remote.moved = true
		filled := make(chan struct{})
		go func() {
			defer close(filled)
			_ = s.remote.feeds[""].pods.Replace(slices.Clone(one), "") // it never fails
		}()
		s.updateRemote(false)
		<-filled
		if len(s.assembly.state.Input.Remote) == 0 {
			t.Fatal("the known pods are gone")
		}
	}
}

// TestWatchesEndOneAfterTheOther, also where nothing else happens.
func TestWatchesEndOneAfterTheOther(t *testing.T) {
	s, clock := lingering(t)
	s.remote.most = 3
	for _, namespace := range []string{"bank", "dev", "pay"} {
		s.addFeed(namespace)
		s.setPods(t, namespace, farIn(namespace, namespace, "10.1.1.1"))
	}
	s.setSpaces(t, "bank", "dev", "pay")
	s.wants(t, "three namespaces", "bank[10.1.1.1] dev[10.1.1.1] pay[10.1.1.1]")
	s.setSpaces(t, "dev", "pay")
	s.wants(t, "two namespaces", "dev[10.1.1.1] pay[10.1.1.1]")
	s.setSpaces(t, "pay")
	s.wants(t, "one namespace", "pay[10.1.1.1]")
	stopped := make(chan string, 3)
	for namespace, f := range s.remote.feeds {
		f.stop = func() { stopped <- namespace }
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for s.wait(ctx) {
			continue
		}
	}()
	for _, want := range []string{"bank", "dev"} {
		select {
		case over := <-clock.asked[RemoteLinger]:
			over <- at(600)
		case <-time.After(time.Minute):
			t.Fatalf("the time of the watch of %s does not end", want)
		}
		// The time of the next may be asked for meanwhile.
		select {
		case got := <-stopped:
			diff.Equal(t, want, got, "whose watch has ended")
		case <-time.After(time.Minute):
			t.Fatalf("the watch of %s goes on", want)
		}
	}
	cancel()
	<-ended
}

// TestStatesWaitForEachNamespace: one whose pods the API server does not tell takes the wait from
// no other.
func TestStatesWaitForEachNamespace(t *testing.T) {
	for name, refused := range map[string]bool{"silent": false, "refused": true} {
		t.Run(name, func(t *testing.T) {
			s, clock := lingering(t)
			s.remote.most = 2
			s.addFeed("bank")
			s.addFeed("pay")
			s.setSpaces(t, "bank")
			if got := step(t, s); len(got) > 0 {
				t.Fatalf("a state came without peers: %q", remoteText(got[0]))
			}
			if refused {
				s.link.note(s.remote.feeds["bank"].listWatch, errors.New("forbidden"))
			} else {
				asks(t, clock) <- at(1)
				s.wait(t.Context())
			}
			if got := step(t, s); len(got) != 1 || remoteText(got[0]) != "unknown" {
				t.Fatalf("%d states", len(got))
			}
			s.setSpaces(t, "bank", "pay")
			if got := step(t, s); len(got) > 0 {
				t.Fatalf("a state came without the peers of a further namespace: %q", remoteText(got[0]))
			}
			s.setPods(t, "pay", farIn("pay", "card", "10.1.1.3"))
			if got := step(t, s); len(got) != 1 || remoteText(got[0]) != "card[10.1.1.3] unknown" {
				t.Fatalf("%d states after the pods of the namespace", len(got))
			}
			fatal.If(t, s.pods.Add(aPod("new", "10.0.0.3")))
			if got := step(t, s); len(got) != 1 {
				t.Error("a later change has waited for the namespace that is not told")
			}
		})
	}
}

// TestNoNamespaceIsNotEveryNamespace: NetworkPolicies may lead to namespaces that do not exist.
func TestNoNamespaceIsNotEveryNamespace(t *testing.T) {
	s, _ := lingering(t)
	s.remote.most = 1
	for _, c := range []struct {
		spaces []string
		want   string
		every  bool
	}{{nil, "[]", false}, {[]string{"bank"}, "[bank]", false}, {[]string{"bank", "pay"}, "[]", true}, {nil, "[]", false}} {
		s.addFeed("bank")
		s.addFeed("")
		s.setPods(t, "bank")
		s.setPods(t, "")
		s.setSpaces(t, c.spaces...)
		step(t, s)
		got := s.assembly.state.Input.RemoteNamespaces
		if fmt.Sprint(got) != c.want || (got == nil) != c.every {
			t.Errorf("to %v: %v, every %v", c.spaces, got, got == nil)
		}
	}
}

// TestSpacesAreFoundOnce: a change of a pod compares no selector with the labels of namespaces
// again, unless other NetworkPolicies count because of it.
func TestSpacesAreFoundOnce(t *testing.T) {
	s, _ := lingering(t)
	s.addFeed("bank")
	s.setPods(t, "bank", farIn("bank", "api", "10.1.1.1"))
	s.setSpaces(t, "bank")
	s.wants(t, "one namespace", "api[10.1.1.1]")
	leads := s.remote.peerSpaces["shop"].selected
	s.remote.peerSpaces["shop"].selected = nil // it would be found missing
	fatal.If(t, s.pods.Add(aPod("new", "10.0.0.3")))
	s.wants(t, "a pod", "api[10.1.1.1]")
	s.remote.peerSpaces["shop"].selected = leads
	fatal.If(t, s.pods.Replace(nil, ""))
	s.wants(t, "no pod", "")
	fatal.If(t, s.pods.Add(aPod("new", "10.0.0.3")))
	s.wants(t, "a pod again", "api[10.1.1.1]")
}

// manySelectors is a NetworkPolicy that leads to the namespaces of n different selectors.
func manySelectors(n int) *networkingv1.NetworkPolicy {
	p := aNetworkPolicy("shop", "many", "db")
	p.Spec.Egress[0].To = nil
	for i := range n {
		p.Spec.Egress[0].To = append(p.Spec.Egress[0].To, networkingv1.NetworkPolicyPeer{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"v": fmt.Sprint("v", i)}}})
	}
	return p
}

// TestManySelectorsLeadToEveryNamespace, and equal ones count once.
func TestManySelectorsLeadToEveryNamespace(t *testing.T) {
	for n, want := range map[int]string{MaxSelectorRequirements: "bank", MaxSelectorRequirements + 1: "*"} {
		twice := manySelectors(n)
		twice.Name, twice.Spec.Egress = "twice", append(twice.Spec.Egress, twice.Spec.Egress[0])
		entries := []*networkPolicyEntry{readNetworkPolicy(manySelectors(n), nil), readNetworkPolicy(twice, nil)}
		r := remote{most: MaxRemoteNamespaces, peerSpaces: peerSpacesOf(entries, false)}
		diff.Equal(t, want, spacesText(r.spacesFrom(map[string]bool{"shop": true}, map[string]map[string]string{"bank": {"v": "v7"}, "pay": {"v": "x"}})), "selectors", n)
	}
}

// aRealPod is a pod as clusters have it, some 6 KiB of JSON: the i-th of a cluster of
// 100 nodes with five pods of each workload.
func aRealPod(i int) *corev1.Pod {
	name := fmt.Sprintf("checkout-%d-7d9f8b6c5d-%05d", i/5, i)
	p := aWholePod(name, fmt.Sprintf("10.%d.%d.%d", 2+i/60000, i/250%250, 1+i%250))
	p.UID = types.UID(fmt.Sprintf("0f8fad5b-d9cb-469f-a165-%012d", i))
	p.Namespace, p.Spec.NodeName = fmt.Sprint("team-", i%50), fmt.Sprint("ip-10-0-0-", i%100, ".compute.internal")
	p.Labels = map[string]string{"app.kubernetes.io/name": "checkout", "app.kubernetes.io/instance": fmt.Sprint("checkout-", i/5), "app.kubernetes.io/version": "1.2.3",
		"app.kubernetes.io/part-of": "shop", "app.kubernetes.io/managed-by": "Helm", "pod-template-hash": "7d9f8b6c5d", "tier": "backend", "team": fmt.Sprint(i % 50)}
	for j := range 8 {
		p.Annotations[fmt.Sprint("example.org/annotation-", j)] = "a value of some length, as operators and meshes write it"
	}
	c := &p.Spec.Containers[0]
	c.Image, c.Command = "registry.example.org/shop/checkout:1.2.3", []string{"/checkout", "--listen", ":8080"}
	for j := range 30 {
		c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprint("SETTING_NUMBER_", j), Value: "some value of a setting"})
		c.VolumeMounts = append(c.VolumeMounts[:min(j, 6)], corev1.VolumeMount{Name: fmt.Sprint("volume-", j), MountPath: fmt.Sprint("/var/lib/checkout/", j)})
	}
	c.Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m"), corev1.ResourceMemory: resource.MustParse("512Mi")}
	for j := range 6 {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: fmt.Sprint("volume-", j), VolumeSource: corev1.VolumeSource{
			ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: fmt.Sprint("config-", j)}}}})
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodConditionType(fmt.Sprint("Condition", j)), Status: corev1.ConditionTrue})
		p.ManagedFields = append(p.ManagedFields, metav1.ManagedFieldsEntry{Manager: "kubelet", Operation: "Update",
			FieldsV1: metav1.NewFieldsV1(`{"f:status":{"f:conditions":{"k:{\"type\":\"ContainersReady\"}":{".":{},"f:lastProbeTime":{},"f:status":{}}}}}`)})
	}
	return p
}

func heapMiB() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / (1 << 20)
}

// TestRemotePodsAreSmall: the kept part of a pod of another node is small. 5,000 were
// measured to take 6 MiB.
func TestRemotePodsAreSmall(t *testing.T) {
	const pods, most = 1000, 4.0 // MiB; whole they are some 15
	for name, noStream := range map[string]bool{"streamed": false, "listed": true} {
		t.Run(name, func(t *testing.T) {
			api := withPeers(t)
			api.noStream = noStream
			api.put("networkpolicies", with(aNetworkPolicy("shop", "all", "db"), toSpaces(nil)))
			for i := range pods {
				api.put("pods", aRealPod(i))
			}
			before := heapMiB()
			r := runAt(t, api)
			s := <-r.states
			used := heapMiB() - before
			if len(s.Input.Remote) != pods+1 {
				t.Fatalf("%d pods", len(s.Input.Remote))
			}
			t.Logf("%d pods of other nodes take %.1f MiB", pods, used)
			if used > most {
				t.Errorf("%.1f MiB, at most %.1f", used, most)
			}
			runtime.KeepAlive(api)
			runtime.KeepAlive(s)
		})
	}
}

package kube

import (
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/source/cni"
	"github.com/namegate/namegate/testkit/fatal"
)

// aWholePod is a pod of another node with what clusters write into pods.
func aWholePod(name string, ips ...string) *corev1.Pod {
	p := aFarPod(name, ips...)
	p.Annotations = map[string]string{lastApplied: "{}", networkStatus: `[{"interface":"eth0"},{"interface":"net1"}]`}
	p.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet"}}
	p.Spec.Containers = []corev1.Container{
		{Name: "a", Image: "a", Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: 8080}, {ContainerPort: 1}}, Env: []corev1.EnvVar{{Name: "A", Value: "b"}}},
		{Name: "b"},
	}
	p.Spec.InitContainers = []corev1.Container{
		{Name: "c", RestartPolicy: new(corev1.ContainerRestartPolicyAlways), Ports: []corev1.ContainerPort{{Name: "log", Protocol: corev1.ProtocolUDP, ContainerPort: 514}}},
		{Name: "d", Ports: []corev1.ContainerPort{{Name: "once", ContainerPort: 7}}},
	}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue},
		{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(at(30)), Message: "x"}}
	return p
}

// networked says whether a pod has its network.
func networked(status corev1.ConditionStatus) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodReadyToStartContainers, Status: status})
	}
}

func TestReadRemote(t *testing.T) {
	plain := policy.Pod{PodRef: policy.PodRef{Namespace: "shop", Name: "web", UID: "uid-web"}, Labels: map[string]string{"app": "web"},
		IPs: addrs("10.1.0.1"), Phase: "Running", NodeName: "node-b"}
	whole := plain
	whole.Ports = []policy.NamedPort{{Name: "web", Protocol: policy.TCP, Port: 8080}, {Name: "log", Protocol: policy.UDP, Port: 514}}
	for _, c := range []struct {
		name string
		pod  *corev1.Pod
		want *policy.Pod // nil: no peer
	}{
		{"running", aFarPod("web", "10.1.0.1"), &plain},
		{"with all there is", aWholePod("web", "10.1.0.1"), &whole},
		{"dual stack", aFarPod("web", "10.1.0.1", "2001:db8::1"), with(new(plain), func(p *policy.Pod) { p.IPs = addrs("10.1.0.1", "2001:db8::1") })},
		{"a bad address", aFarPod("web", "10.1.0", "10.1.0.1"), &plain},
		{"ending", with(aFarPod("web", "10.1.0.1"), ending), &plain},
		{"ending, with its network", with(with(aFarPod("web", "10.1.0.1"), ending), networked(corev1.ConditionTrue)), &plain},
		{"ending, without its network", with(with(aFarPod("web", "10.1.0.1"), ending), networked(corev1.ConditionFalse)), nil},
		{"its network is set up again", with(aFarPod("web", "10.1.0.1"), networked(corev1.ConditionFalse)), &plain},
		{"of this node", aPod("web", "10.1.0.1"), nil},
		{"of no node yet", with(aFarPod("web", "10.1.0.1"), onNode("")), nil},
		{"no address yet", aFarPod("web"), nil},
		{"finished", with(aFarPod("web", "10.1.0.1"), func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }), nil},
		{"host network", with(aFarPod("web", "192.0.2.2"), func(p *corev1.Pod) { p.Spec.HostNetwork = true }), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := readRemote(ourNode)(c.pod.DeepCopy(), nil)
			trimmed, err := trim(c.pod)
			fatal.If(t, err)
			if after := readRemote(ourNode)(trimmed, nil); !same(e, after) {
				t.Errorf("trimmed it is %+v, whole %+v", after, e)
			}
			if e == nil || c.want == nil {
				if e != nil || c.want != nil {
					t.Errorf("%v, want %v", e, c.want)
				}
				return
			}
			if diff := cmp.Diff(*c.want, e.pod, addrsByValue); diff != "" || len(e.problems) > 0 {
				t.Errorf("problems %v, %s", e.problems, diff)
			}
		})
	}
	if readRemote(ourNode)(aNode("x", "192.0.2.1"), nil) != nil {
		t.Error("a node was read as a pod")
	}
	if _, err := trim(aNode("x", "192.0.2.1")); err == nil {
		t.Error("a node was trimmed")
	}
}

// TestRemotePodsAreTrimmed before they are gathered, whether they come in a stream or in
// a list: whole ones would take ten times the memory for a while.
func TestRemotePodsAreTrimmed(t *testing.T) {
	list, err := remoteRequests(fake.NewClientset(aWholePod("web", "10.1.0.1")), ourNode, "").list(t.Context(), metav1.ListOptions{})
	fatal.If(t, err)
	listed := list.(*corev1.PodList).Items[0]
	gathered, err := remoteStore(nil, ourNode).Transformer()(aWholePod("web", "10.1.0.1"))
	fatal.If(t, err)
	for _, p := range []*corev1.Pod{&listed, gathered.(*corev1.Pod)} {
		if p.Name != "web" || p.Annotations != nil || p.ManagedFields != nil || p.Spec.Containers[0].Env != nil {
			t.Errorf("%+v", p)
		}
	}
	if newStore(nil, readPod(ourNode)).Transformer() != nil {
		t.Error("pods of this node are trimmed too, but more of them is used")
	}
}

// TestRemoteIsNeeded goes through what asks for pods of other nodes.
func TestRemoteIsNeeded(t *testing.T) {
	anywhere := aNetworkPolicy("shop", "any", "db")
	anywhere.Spec.Egress[0].To = nil
	ignored := aNetworkPolicy("shop", "ignored", "db")
	ignored.Labels = map[string]string{"namegate.io/ignore": "true"}
	type objects []any
	elsewhere := set(t, aPolicy("p", "www.example.org"), "bank", "metadata", "namespace")
	broken := set(t, aPolicy("p", "www.example.org"), map[string]any{}, "spec")
	web := objects{aPod("web", "10.0.0.1")}
	for _, c := range []struct {
		name                            string
		policies, networkPolicies, pods objects
		want                            bool
	}{
		{"nothing", nil, nil, web, false},
		{"a policy alone", objects{aPolicy("p", "www.example.org")}, nil, web, false},
		{"a NetworkPolicy alone", nil, objects{aNetworkPolicy("shop", "db", "db")}, web, false},
		{"both", objects{aPolicy("p", "www.example.org")}, objects{anywhere, aNetworkPolicy("shop", "db", "db")}, web, true},
		{"in two namespaces", objects{elsewhere}, objects{aNetworkPolicy("shop", "db", "db")}, web, false},
		{"it leads to no pod", objects{aPolicy("p", "www.example.org")}, objects{anywhere}, web, false},
		{"one for another engine", objects{aPolicy("p", "www.example.org")}, objects{ignored}, web, false},
		{"a policy that selects no pod", objects{broken}, objects{aNetworkPolicy("shop", "db", "db")}, web, false},
		{"no pod of this node", objects{aPolicy("p", "www.example.org")}, objects{aNetworkPolicy("shop", "db", "db")}, nil, false},
		{"a pod of this node elsewhere", objects{elsewhere}, objects{aNetworkPolicy("bank", "db", "db")}, web, false},
		{"a pod without an address", objects{aPolicy("p", "www.example.org")}, objects{aNetworkPolicy("shop", "db", "db")}, objects{aPod("web")}, true},
		{"a pod that ends", objects{aPolicy("p", "www.example.org")}, objects{aNetworkPolicy("shop", "db", "db")}, objects{with(aPod("web", "10.0.0.1"), ending)}, true},
		{"a finished pod", objects{aPolicy("p", "www.example.org")}, objects{aNetworkPolicy("shop", "db", "db")},
			objects{with(aPod("web", "10.0.0.1"), func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })}, false},
		{"a pod on the host network", objects{aPolicy("p", "www.example.org")}, objects{aNetworkPolicy("shop", "db", "db")},
			objects{with(aPod("web", "10.0.0.1"), func(p *corev1.Pod) { p.Spec.HostNetwork = true })}, false},
	} {
		s := needing()
		s.remote.wanted, s.remote.feeds = nil, nil
		for _, p := range c.policies {
			fatal.If(t, s.policies.Add(p))
			s.gather()
		}
		for _, n := range c.networkPolicies {
			fatal.If(t, s.networkPolicies.Add(n))
			s.gather()
		}
		for _, p := range c.pods {
			fatal.If(t, s.pods.Add(p))
		}
		if s.gather(); s.remote.wanted["shop"] != c.want || s.remote.needed() != c.want {
			t.Errorf("%s: needed %v", c.name, s.remote.wanted)
		}
		fatal.If(t, s.policies.Replace(nil, ""))
		if s.gather(); s.remote.needed() {
			t.Errorf("%s: needed without a policy", c.name)
		}
	}
}

// needing is a source that needs pods of other nodes, and has no feed.
func needing() *Source {
	nothing := func() {}
	s := &Source{
		policies: newStore(nothing, readPolicy), clusterPolicies: newOptionalKind(nothing, readClusterPolicy, v1alpha1.ClusterGroupVersionResource(), ""),
		nodePolicies: newOptionalKind(nothing, readNodePolicy, v1alpha1.NodeGroupVersionResource(), ""), networkPolicies: newStore(nothing, readNetworkPolicy), pods: newStore(nothing, readPod(ourNode)),
		namespaces: newStore(nothing, readNamespace), services: newStore(nothing, readService), nodes: newStore(nothing, readNode(false, "")),
		link:   newLink(slog.New(slog.DiscardHandler), time.Now),
		remote: remote{wanted: map[string]bool{"": true}, feeds: map[string]*remoteFeed{"": {pods: remoteStore(nothing, ourNode), stop: nothing}}, most: 1},
	}
	s.results.Store(&cni.Results{})
	s.assembly.watched = &[]policy.ServiceRef{}
	return s
}

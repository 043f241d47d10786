package kube

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

func TestServices(t *testing.T) {
	balanced := aService("shop", "web", "10.96.0.9", "2001:db8:9::9")
	balanced.Spec.ExternalIPs = []string{"198.51.100.1", "::ffff:10.96.0.9"}
	balanced.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.1"}, {Hostname: "lb.example.org"}}
	old := aService("shop", "old", "")
	old.Spec.ClusterIP, old.Spec.ClusterIPs = "10.96.0.3", nil
	named := aService("shop", "named", "")
	named.Spec.Type, named.Spec.ExternalName = corev1.ServiceTypeExternalName, "www.example.org"
	broken := aService("shop", "broken", "10.96.0", "10.96.0.4")
	broken.Spec.ExternalIPs = []string{"x"}
	broken.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "y"}}
	var entries []*serviceEntry
	for _, s := range []*corev1.Service{balanced, old, named, broken, aService("shop", "headless", "None")} {
		entries = append(entries, readService(s, nil))
	}
	var c policy.Cluster
	problems := listServices(entries, &c)
	got, at := c.Services, c.ServicesAt
	want := addrs("10.96.0.3", "10.96.0.4", "10.96.0.9", "203.0.113.1", "2001:db8:9::9")
	diff.Error(t, want, got)
	if len(at) != len(want)+1 { // the external IP
		t.Errorf("%d of %d addresses have a Service", len(at), len(want)+1)
	}
	for a, name := range map[string]string{"10.96.0.9": "web", "2001:db8:9::9": "web", "198.51.100.1": "web", "203.0.113.1": "web", "10.96.0.3": "old", "10.96.0.4": "broken"} {
		if s := at[addrs(a)[0]]; s == nil || s.Ref.Name != name || s.Ref.Namespace == "" {
			t.Errorf("%s is %v, want %s", a, s, name)
		}
	}
	if len(c.Dialled) != 3 || c.Dialled[0] != at[addrs("10.96.0.9")[0]] || c.Dialled[1].Ref.Name != "old" || c.Dialled[2].Ref.Name != "broken" {
		t.Errorf("with a cluster IP: %v", c.Dialled)
	}
	diff.Equal(t, at[addrs("198.51.100.1")[0]], at[addrs("10.96.0.9")[0]], "the Service by another address")
	const wrong = "Unreadable spec.clusterIPs[0]; Unreadable spec.externalIPs[0]; Unreadable status.loadBalancer.ingress[0].ip"
	diff.Equal(t, wrong, problemTexts(problems, "service shop/broken"), "problems")
	if readService(aPod("x"), nil) != nil {
		t.Error("a pod was read as a Service")
	}
}

// TestServicePorts: where each port of a Service leads to in a pod.
func TestServicePorts(t *testing.T) {
	s := aService("shop", "web", "10.96.0.9")
	s.Spec.Selector = map[string]string{"app": "web"}
	s.Spec.Ports = []corev1.ServicePort{
		{Port: 80, TargetPort: intstr.FromInt32(8080)},
		{Port: 81, Protocol: corev1.ProtocolUDP},
		{Port: 82, Protocol: corev1.ProtocolSCTP, TargetPort: intstr.FromString("log")},
		{Port: 0, TargetPort: intstr.FromInt32(1)}, {Port: 65536}, {Port: 83, Protocol: "tcp"},
		{Port: 84, TargetPort: intstr.FromInt32(65536)},
	}
	want := policy.Service{
		Ref: policy.ServiceRef{Namespace: "shop", Name: "web"}, Selector: map[string]string{"app": "web"},
		Ports: []policy.ServicePort{
			{Protocol: policy.TCP, Port: 80, Target: 8080}, {Protocol: policy.UDP, Port: 81, Target: 81},
			{Protocol: policy.SCTP, Port: 82, TargetName: "log"}, {Protocol: policy.TCP, Port: 84, Target: 84},
		},
	}
	diff.Error(t, want, readService(s, nil).service)
}

// TestAddressOfTwoServices: it is always the same one's, whichever came first.
func TestAddressOfTwoServices(t *testing.T) {
	store := newStore(func() {}, readService)
	for _, name := range []string{"b", "a", "c"} {
		s := aService("shop", name, "None")
		s.Spec.ExternalIPs = []string{"198.51.100.1"}
		fatal.If(t, store.Add(s))
	}
	store.take()
	entries := store.taken
	var c policy.Cluster
	listServices(entries, &c)
	at := c.ServicesAt
	if got := at[addrs("198.51.100.1")[0]]; got.Ref.Name != "a" {
		t.Errorf("the address is that of %v", got.Ref)
	}
}

func TestAPISlices(t *testing.T) {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: "kubernetes", Labels: map[string]string{discoveryv1.LabelServiceName: "kubernetes"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Port: new(int32(6443))}, {Port: new(int32(7)), Protocol: new(corev1.ProtocolUDP)}, {}},
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.2"}}, {Addresses: []string{"192.0.2.1"}, Conditions: discoveryv1.EndpointConditions{Ready: new(false)}}, {Addresses: []string{"192.0.2.3"}, Conditions: discoveryv1.EndpointConditions{Ready: new(false), Terminating: new(true)}}, {Addresses: []string{"192.0.2"}}},
	}
	other := aSlice("default", "kubernetes", "six", "2001:db8::1", "192.0.2.1")
	other.Ports = slice.Ports
	read := readSlice(apiService)
	e := read(slice, nil)
	diff.Error(t, addrPorts("192.0.2.1:6443", "192.0.2.2:6443", "192.0.2.3:6443", "[2001:db8::1]:6443"), apiEndpoints([]*sliceEntry{e, read(other, nil)}))
	diff.Equal(t, "Unreadable endpoints[3].addresses[0]", problemTexts(e.problems, "endpointslice default/kubernetes"), "problems")
}

// TestNodesOfTheAPIServer: a source that is asked for nodes has the API's Service, its
// endpoints and the own node, and another has none of them.
func TestNodesOfTheAPIServer(t *testing.T) {
	api := newAPIServer(t)
	client, dyn := api.clients()
	service := aService("default", "kubernetes", "10.96.0.1", "2001:db8:96::1")
	service.Spec.Ports = []corev1.ServicePort{{Name: "https", Protocol: corev1.ProtocolTCP, Port: 443}}
	slice := aSlice("default", "kubernetes", "kubernetes", "192.0.2.10")
	slice.Ports = []discoveryv1.EndpointPort{{Name: new("https"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(6443))}}
	api.put("services", service)
	api.put("endpointslices", slice)
	for _, name := range []string{ourNode, "node-b"} {
		n := aNode(name, "192.0.2.1")
		n.Labels, n.Spec.ProviderID = map[string]string{"name": name}, "aws:///zone/"+name
		api.put("nodes", n)
	}
	text := func(s State) (text string) {
		if own := s.Cluster.Own; own != nil {
			text = fmt.Sprintf("%v %s; ", own.Labels, own.ProviderID)
		}
		return fmt.Sprint(text, s.Cluster.APIServers)
	}
	r := runWith(t, Options{Client: client, Dynamic: dyn, NodeName: ourNode, Log: slog.New(slog.DiscardHandler), Nodes: true})
	const before = "map[name:node-a] aws:///zone/node-a; {[10.96.0.1:443 [2001:db8:96::1]:443] [192.0.2.10:6443]}"
	r.until(before, text)
	moved := slice.DeepCopy()
	moved.Endpoints[0].Addresses = []string{"192.0.2.11"}
	api.put("endpointslices", moved)
	r.until(strings.Replace(before, "2.10:", "2.11:", 1), text)

	none := runWith(t, Options{Client: client, Dynamic: dyn, NodeName: ourNode, Log: slog.New(slog.DiscardHandler)})
	diff.Equal(t, "{[] []}", text(<-none.states), "unasked")
}

package kube

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/namegate/namegate/policy"
)

func TestHosts(t *testing.T) {
	labelled := func(labels ...string) func(*corev1.Node) {
		return func(n *corev1.Node) {
			n.Labels = map[string]string{"kubernetes.io/hostname": n.Name}
			for _, l := range labels {
				n.Labels[l] = ""
			}
			n.Spec.ProviderID = "aws:///eu-central-1a/i-" + n.Name
		}
	}
	other := with(aNode("node-b", "192.0.2.2"), labelled("node-role.kubernetes.io/control-plane"))
	other.Status.DaemonEndpoints.KubeletEndpoint.Port = 10255
	var entries []*nodeEntry
	for _, n := range []*corev1.Node{
		with(aNode(ourNode, "192.0.2.1"), labelled()), other,
		with(aNode("node-c", "2001:db8::3"), labelled("node-role.kubernetes.io/master")),
		with(aNode("node-d", "192.0.2.4"), labelled("node-role.kubernetes.io/etcd")),
		with(aNode("node-e", "192.0.2.5"), labelled("node-role.kubernetes.io/worker")),
	} {
		entries = append(entries, readNode(false, ourNode)(n, nil))
	}
	var c policy.Cluster
	listHosts(entries, &c)
	want := []*policy.Host{
		{Name: ourNode, Addrs: addrs("192.0.2.1"), KubeletPort: 10250, Labels: map[string]string{"kubernetes.io/hostname": ourNode}, ProviderID: "aws:///eu-central-1a/i-" + ourNode},
		{Name: "node-b", Addrs: addrs("192.0.2.2"), KubeletPort: 10255, ControlPlane: true},
		{Name: "node-c", Addrs: addrs("2001:db8::3"), KubeletPort: 10250, ControlPlane: true},
		{Name: "node-d", Addrs: addrs("192.0.2.4"), KubeletPort: 10250, ControlPlane: true},
		{Name: "node-e", Addrs: addrs("192.0.2.5"), KubeletPort: 10250},
	}
	if d := cmp.Diff(want, c.Hosts, addrsByValue); d != "" {
		t.Error(d)
	}
	if listHosts([]*nodeEntry{readNode(false, "")(other, nil)}, &c); c.Hosts != nil {
		t.Errorf("hosts that were not asked for: %v", c.Hosts)
	}
}

func TestAPISlices(t *testing.T) {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: "kubernetes", Labels: map[string]string{discoveryv1.LabelServiceName: "kubernetes"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Port: ptr(int32(6443))}, {Port: ptr(int32(7)), Protocol: ptr(corev1.ProtocolUDP)}, {}},
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.2"}}, {Addresses: []string{"192.0.2.1"}, Conditions: discoveryv1.EndpointConditions{Ready: ptr(false)}}, {Addresses: []string{"192.0.2"}}},
	}
	var c policy.Cluster
	problems := listAPISlices([]*apiSlice{readAPISlice(slice, nil), {to: addrPorts("[2001:db8::1]:6443", "192.0.2.1:6443")}}, &c)
	if d := cmp.Diff(addrPorts("192.0.2.1:6443", "192.0.2.2:6443", "[2001:db8::1]:6443"), c.APIServers.Endpoints, addrsByValue); d != "" {
		t.Error(d)
	}
	if got := problemTexts(problems, "endpointslice default/kubernetes"); got != "Unreadable endpoints[2].addresses[0]" {
		t.Errorf("problems %q", got)
	}
	if readAPISlice(aSlice("default", "other", "x", "192.0.2.1"), nil) != nil {
		t.Error("a slice of another Service was read")
	}
}

// TestNodesOfTheAPIServer: a source that is asked for nodes has the API's Service, its
// endpoints and the nodes, and another has none of them.
func TestNodesOfTheAPIServer(t *testing.T) {
	api := newAPIServer(t)
	client, dyn := api.clients()
	service := aService("default", "kubernetes", "10.96.0.1", "2001:db8:96::1")
	service.Spec.Ports = []corev1.ServicePort{{Name: "https", Protocol: corev1.ProtocolTCP, Port: 443}}
	slice := aSlice("default", "kubernetes", "kubernetes", "192.0.2.10")
	slice.Ports = []discoveryv1.EndpointPort{{Name: ptr("https"), Protocol: ptr(corev1.ProtocolTCP), Port: ptr(int32(6443))}}
	api.put("services", service)
	api.put("endpointslices", slice)
	api.put("nodes", aNode(ourNode, "192.0.2.1"))
	text := func(s State) (text string) {
		for _, h := range s.Cluster.Hosts {
			text += fmt.Sprintf("%s %v %d; ", h.Name, h.Addrs, h.KubeletPort)
		}
		return fmt.Sprint(text, s.Cluster.APIServers)
	}
	r := runWith(t, Options{Client: client, Dynamic: dyn, NodeName: ourNode, Log: slog.New(slog.DiscardHandler), Nodes: true})
	const before = "node-a [192.0.2.1] 10250; {[10.96.0.1:443 [2001:db8:96::1]:443] [192.0.2.10:6443]}"
	r.until(before, text)
	moved := slice.DeepCopy()
	moved.Endpoints[0].Addresses = []string{"192.0.2.11"}
	api.put("endpointslices", moved)
	r.until(strings.Replace(before, "2.10:", "2.11:", 1), text)

	none := runWith(t, Options{Client: client, Dynamic: dyn, NodeName: ourNode, Log: slog.New(slog.DiscardHandler)})
	if got := text(<-none.states); got != "{[] []}" {
		t.Errorf("unasked: %s", got)
	}
}

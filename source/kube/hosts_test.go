package kube

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/namegate/namegate/testkit/diff"
)

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
	if got := problemTexts(e.problems, "endpointslice default/kubernetes"); got != "Unreadable endpoints[3].addresses[0]" {
		t.Errorf("problems %q", got)
	}
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
	if got := text(<-none.states); got != "{[] []}" {
		t.Errorf("unasked: %s", got)
	}
}

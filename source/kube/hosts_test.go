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
// endpoints and the own node, and another has none of them.
func TestNodesOfTheAPIServer(t *testing.T) {
	api := newAPIServer(t)
	client, dyn := api.clients()
	service := aService("default", "kubernetes", "10.96.0.1", "2001:db8:96::1")
	service.Spec.Ports = []corev1.ServicePort{{Name: "https", Protocol: corev1.ProtocolTCP, Port: 443}}
	slice := aSlice("default", "kubernetes", "kubernetes", "192.0.2.10")
	slice.Ports = []discoveryv1.EndpointPort{{Name: ptr("https"), Protocol: ptr(corev1.ProtocolTCP), Port: ptr(int32(6443))}}
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

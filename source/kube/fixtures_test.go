package kube

import (
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

const ourNode = "node-a"

// at is a moment n seconds after some other.
func at(n int) time.Time { return time.Unix(1_700_000_000+int64(n), 0) }

func addrs(texts ...string) []netip.Addr {
	var list []netip.Addr
	for _, text := range texts {
		list = append(list, netip.MustParseAddr(text))
	}
	return list
}

func addrPorts(texts ...string) []netip.AddrPort {
	var list []netip.AddrPort
	for _, text := range texts {
		list = append(list, netip.MustParseAddrPort(text))
	}
	return list
}

func prefixes(texts ...string) []netip.Prefix {
	var list []netip.Prefix
	for _, text := range texts {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}

// aPod is a running pod of our node, made at at(0).
func aPod(name string, ips ...string) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{"app": name},
			CreationTimestamp: metav1.NewTime(at(0))},
		Spec:   corev1.PodSpec{NodeName: ourNode},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, ip := range ips {
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: ip})
	}
	return p
}

func with[T any](object *T, change func(*T)) *T {
	change(object)
	return object
}

func ending(p *corev1.Pod) {
	end := metav1.NewTime(at(1000))
	p.DeletionTimestamp = &end
}

func madeAt(n int) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(at(n)) }
}

func aNamespace(name string, labels map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}

func aNode(name, address string, ranges ...string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{PodCIDRs: ranges},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}}}
}

func aService(namespace, name string, ips ...string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: corev1.ServiceSpec{
		ClusterIP: ips[0], ClusterIPs: ips, Ports: []corev1.ServicePort{{Name: "dns", Protocol: corev1.ProtocolUDP, Port: 53}}}}
}

// aSlice is a slice of a Service with ready endpoints at port 1053.
func aSlice(namespace, service, name string, ready ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new("dns"), Protocol: new(corev1.ProtocolUDP), Port: new(int32(1053))}},
	}
	for _, a := range ready {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}})
	}
	return s
}

// aPolicy is a policy with one name.
func aPolicy(name, match string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "namegate.io/v1alpha1", "kind": "FQDNNetworkPolicy",
		"metadata": map[string]any{"namespace": "shop", "name": name},
		"spec": map[string]any{
			"podSelector": map[string]any{"matchLabels": map[string]any{"app": "web"}},
			"egress":      []any{map[string]any{"matches": []any{map[string]any{"name": match}}}},
			"ttl":         map[string]any{"inUse": "Renew"},
		},
	}}
}

func onNode(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.NodeName = name }
}

// aFarPod is a running pod of another node.
func aFarPod(name string, ips ...string) *corev1.Pod {
	return with(aPod(name, ips...), onNode("node-b"))
}

// toSpaces makes a NetworkPolicy lead to all pods of the namespaces with labels.
func toSpaces(labels map[string]string) func(*networkingv1.NetworkPolicy) {
	return func(n *networkingv1.NetworkPolicy) {
		n.Spec.Egress[0].To = []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{MatchLabels: labels}}}
	}
}

// inSpace moves a pod into a namespace.
func inSpace(namespace string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Namespace = namespace }
}

// aNetworkPolicy lets the pods of a namespace reach the pods with a label.
func aNetworkPolicy(namespace, name, app string) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: networkingv1.NetworkPolicySpec{
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress},
			Egress: []networkingv1.NetworkPolicyEgressRule{{To: []networkingv1.NetworkPolicyPeer{
				{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}}}}},
		},
	}
}

package kube

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
)

var kubeDNS = policy.ServiceRef{Namespace: "kube-system", Name: "kube-dns"}

func dnsSlice(name string, ready ...string) *discoveryv1.EndpointSlice {
	return aSlice(kubeDNS.Namespace, kubeDNS.Name, name, ready...)
}

// conditions sets the conditions of all endpoints of the slice: t, f or - for ready,
// serving, terminating.
func conditions(s *discoveryv1.EndpointSlice, words string) *discoveryv1.EndpointSlice {
	value := func(i int) *bool {
		return map[byte]*bool{'t': new(true), 'f': new(false)}[words[i]]
	}
	for i := range s.Endpoints {
		s.Endpoints[i].Conditions = discoveryv1.EndpointConditions{Ready: value(0), Serving: value(1), Terminating: value(2)}
	}
	return s
}

// portsOf replaces the slice's ports: each word is name/protocol/number.
func portsOf(s *discoveryv1.EndpointSlice, ports ...discoveryv1.EndpointPort) *discoveryv1.EndpointSlice {
	s.Ports = ports
	return s
}

func aPort(name string, protocol corev1.Protocol, number int32) discoveryv1.EndpointPort {
	return discoveryv1.EndpointPort{Name: &name, Protocol: &protocol, Port: &number}
}

func TestResolver(t *testing.T) {
	service := aService(kubeDNS.Namespace, kubeDNS.Name, "2001:db8:9::a", "10.96.0.10")
	renamed := aService(kubeDNS.Namespace, kubeDNS.Name, "10.96.0.10")
	renamed.Spec.Ports[0].Name = "names"
	portless := aService(kubeDNS.Namespace, kubeDNS.Name, "10.96.0.10")
	portless.Spec.Ports = []corev1.ServicePort{{Name: "x", Port: 5353, Protocol: corev1.ProtocolUDP}, {Name: "y", Port: 53, Protocol: corev1.ProtocolTCP}}
	for _, c := range []struct {
		name     string
		service  *corev1.Service
		slices   []*discoveryv1.EndpointSlice
		ips, eps []string
		problems string
	}{
		{"ready, of two slices, once each and sorted", service, []*discoveryv1.EndpointSlice{dnsSlice("a", "10.0.0.3", "10.0.0.2"), dnsSlice("b", "10.0.0.2", "2001:db8::2")},
			[]string{"10.96.0.10", "2001:db8:9::a"}, []string{"10.0.0.2:1053", "10.0.0.3:1053", "[2001:db8::2]:1053"}, ""},
		{"no Service", nil, []*discoveryv1.EndpointSlice{dnsSlice("a", "10.0.0.3")}, nil, nil, ""},
		{"no slice", renamed, nil, []string{"10.96.0.10"}, nil, ""},
		{"headless", aService(kubeDNS.Namespace, kubeDNS.Name, "None"), []*discoveryv1.EndpointSlice{dnsSlice("a", "10.0.0.3")}, nil, []string{"10.0.0.3:1053"}, ""},
		{"over", renamed, []*discoveryv1.EndpointSlice{conditions(dnsSlice("a", "10.0.0.3"), "fft"), conditions(dnsSlice("b", "10.0.0.4"), "f-t")},
			[]string{"10.96.0.10"}, nil, ""},
		{"none is ready", renamed, []*discoveryv1.EndpointSlice{conditions(dnsSlice("a", "10.0.0.3"), "fff"), conditions(dnsSlice("b", "10.0.0.4"), "f-t"), conditions(dnsSlice("c", "10.0.0.5"), "f--")},
			[]string{"10.96.0.10"}, []string{"10.0.0.3:1053", "10.0.0.5:1053"}, ""},
		{"one is ready", renamed, []*discoveryv1.EndpointSlice{conditions(dnsSlice("a", "10.0.0.3"), "fff"), conditions(dnsSlice("b", "10.0.0.4"), "ttf")},
			[]string{"10.96.0.10"}, []string{"10.0.0.4:1053"}, ""},
		{"ready ones before those that end", renamed, []*discoveryv1.EndpointSlice{conditions(dnsSlice("a", "10.0.0.3"), "ftt"), conditions(dnsSlice("b", "10.0.0.4"), "ttf")},
			[]string{"10.96.0.10"}, []string{"10.0.0.4:1053"}, ""},
		{"those that end before those that are not ready", renamed, []*discoveryv1.EndpointSlice{conditions(dnsSlice("a", "10.0.0.3"), "ftt"), conditions(dnsSlice("b", "10.0.0.4"), "fff")},
			[]string{"10.96.0.10"}, []string{"10.0.0.3:1053"}, ""},
		{"serving but not ready", renamed, []*discoveryv1.EndpointSlice{conditions(dnsSlice("a", "10.0.0.3"), "ftf")}, []string{"10.96.0.10"}, []string{"10.0.0.3:1053"}, ""},
		{"no word on conditions", renamed, []*discoveryv1.EndpointSlice{conditions(dnsSlice("a", "10.0.0.3"), "---")}, []string{"10.96.0.10"}, []string{"10.0.0.3:1053"}, ""},
		{"the port of the Service's name", renamed, []*discoveryv1.EndpointSlice{portsOf(dnsSlice("a", "10.0.0.3"), aPort("dns", corev1.ProtocolUDP, 1), aPort("names", corev1.ProtocolTCP, 2), aPort("names", corev1.ProtocolUDP, 3))},
			[]string{"10.96.0.10"}, []string{"10.0.0.3:3"}, ""},
		{"a port without a name", with(aService(kubeDNS.Namespace, kubeDNS.Name, "10.96.0.10"), func(s *corev1.Service) { s.Spec.Ports[0].Name = "" }),
			[]*discoveryv1.EndpointSlice{portsOf(dnsSlice("a", "10.0.0.3"), discoveryv1.EndpointPort{Protocol: new(corev1.ProtocolUDP), Port: new(int32(4))}, aPort("dns", corev1.ProtocolUDP, 5))},
			[]string{"10.96.0.10"}, []string{"10.0.0.3:4"}, ""},
		{"a name of old", portless, []*discoveryv1.EndpointSlice{portsOf(dnsSlice("a", "10.0.0.3"), aPort("x", corev1.ProtocolUDP, 5353), aPort("dns", corev1.ProtocolUDP, 6), aPort("dns-udp", corev1.ProtocolUDP, 7))},
			[]string{"10.96.0.10"}, []string{"10.0.0.3:7"}, ""},
		{"the only port", portless, []*discoveryv1.EndpointSlice{portsOf(dnsSlice("a", "10.0.0.3"), aPort("x", corev1.ProtocolUDP, 5353), aPort("y", corev1.ProtocolTCP, 53))},
			[]string{"10.96.0.10"}, []string{"10.0.0.3:5353"}, ""},
		{"nobody can tell which port", portless, []*discoveryv1.EndpointSlice{portsOf(dnsSlice("a", "10.0.0.3"), aPort("x", corev1.ProtocolUDP, 1), aPort("z", corev1.ProtocolUDP, 2))},
			[]string{"10.96.0.10"}, nil, "PartiallyInvalid spec.ports"},
		{"ports that are none", portless, []*discoveryv1.EndpointSlice{portsOf(dnsSlice("a", "10.0.0.3"), aPort("dns", corev1.ProtocolUDP, 0), aPort("dns", corev1.ProtocolUDP, 65536), discoveryv1.EndpointPort{})},
			[]string{"10.96.0.10"}, nil, "PartiallyInvalid spec.ports"},
		{"names for addresses", renamed, []*discoveryv1.EndpointSlice{with(dnsSlice("a", "dns.example.org"), func(s *discoveryv1.EndpointSlice) { s.AddressType = discoveryv1.AddressTypeFQDN })},
			[]string{"10.96.0.10"}, nil, ""},
		{"of another Service", renamed, []*discoveryv1.EndpointSlice{aSlice(kubeDNS.Namespace, "other", "a", "10.0.0.3"), aSlice("other", kubeDNS.Name, "a", "10.0.0.3")},
			[]string{"10.96.0.10"}, nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var entries []*sliceEntry
			for _, s := range c.slices {
				if e := readSlice(kubeDNS)(s, nil); e != nil {
					entries = append(entries, e)
				}
			}
			var service *serviceEntry
			if c.service != nil {
				service = readService(c.service, nil)
			}
			got, problems := resolver(service, entries)
			want := policy.Resolver{ClusterIPs: addrs(c.ips...), Endpoints: addrPorts(c.eps...)}
			diff.Error(t, want, got)
			diff.Equal(t, c.problems, problemTexts(problems, "service kube-system/kube-dns"), "problems")
		})
	}
}

func TestBrokenEndpoint(t *testing.T) {
	e := readSlice(kubeDNS)(dnsSlice("a", "10.0.0", "10.0.0.2"), nil)
	r, _ := resolver(readService(aService(kubeDNS.Namespace, kubeDNS.Name, "10.96.0.10"), nil), []*sliceEntry{e})
	diff.Equal(t, "Unreadable endpoints[0].addresses[0]", problemTexts(e.problems, "endpointslice kube-system/a"), "problems")
	diff.Error(t, addrPorts("10.0.0.2:1053"), r.Endpoints)
}

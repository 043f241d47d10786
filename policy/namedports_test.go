package policy

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/namegate/namegate/testkit/diff"
)

func TestNamedPorts(t *testing.T) {
	always, never := corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicyNever
	web := []corev1.ContainerPort{{Name: "web", ContainerPort: 8080}}
	for _, c := range []struct {
		name string
		spec corev1.PodSpec
		want []NamedPort
	}{
		{"none", corev1.PodSpec{}, nil},
		{"TCP where none is written", corev1.PodSpec{Containers: []corev1.Container{{Ports: web}}}, []NamedPort{{"web", TCP, 8080}}},
		{"no name", corev1.PodSpec{Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{ContainerPort: 8080}}}}}, nil},
		{"all protocols, one name, two containers", corev1.PodSpec{Containers: []corev1.Container{
			{Ports: []corev1.ContainerPort{{Name: "dns", Protocol: corev1.ProtocolUDP, ContainerPort: 53}, {Name: "dns", Protocol: corev1.ProtocolTCP, ContainerPort: 53}}},
			{Ports: []corev1.ContainerPort{{Name: "dns", Protocol: corev1.ProtocolSCTP, ContainerPort: 65535}, {Name: "dns", ContainerPort: 5353}}},
		}}, []NamedPort{{"dns", UDP, 53}, {"dns", TCP, 53}, {"dns", SCTP, 65535}, {"dns", TCP, 5353}}},
		{"once each", corev1.PodSpec{Containers: []corev1.Container{{Ports: web}, {Ports: web}}}, []NamedPort{{"web", TCP, 8080}}},
		{"init containers that go on", corev1.PodSpec{InitContainers: []corev1.Container{
			{Ports: []corev1.ContainerPort{{Name: "gone", ContainerPort: 1}}},
			{RestartPolicy: &never, Ports: []corev1.ContainerPort{{Name: "gone", ContainerPort: 2}}},
			{RestartPolicy: &always, Ports: web},
		}}, []NamedPort{{"web", TCP, 8080}}},
		{"what cannot be", corev1.PodSpec{Containers: []corev1.Container{{Ports: []corev1.ContainerPort{
			{Name: "a", ContainerPort: 0}, {Name: "b", ContainerPort: 65536}, {Name: "c", ContainerPort: -1}, {Name: "d", Protocol: "tcp", ContainerPort: 80}}}}}, nil},
	} {
		diff.Error(t, c.want, NamedPorts(&c.spec), c.name)
	}
}

// TestNamedPortsAreBounded: the first count, each once.
func TestNamedPortsAreBounded(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	spec := corev1.PodSpec{Containers: make([]corev1.Container, 2), InitContainers: []corev1.Container{{RestartPolicy: &always}}}
	port := func(i int) corev1.ContainerPort {
		return corev1.ContainerPort{Name: fmt.Sprint("p", i), ContainerPort: int32(i%65535 + 1)}
	}
	for i := range MaxNamedPorts - 1 {
		spec.Containers[0].Ports = append(spec.Containers[0].Ports, port(i), port(i))
	}
	spec.Containers[1].Ports = []corev1.ContainerPort{port(3), port(1000), port(1001)}
	spec.InitContainers[0].Ports = []corev1.ContainerPort{port(1002)}
	got := NamedPorts(&spec)
	if len(got) != MaxNamedPorts || got[0].Name != "p0" || got[MaxNamedPorts-1].Name != "p1000" {
		t.Errorf("%d ports, the last is %v", len(got), got[len(got)-1])
	}
}

func TestCheckPodAddr(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.1": "", "192.0.2.1": "", "100.64.0.1": "", "223.255.255.255": "", "2001:db8::1": "", "fd00::1": "", "::ffff:10.0.0.1": "",
		"0.0.0.0": "no host's", "0.1.2.3": "no host's", "::": "no host's", "255.255.255.255": "no host's", "240.0.0.1": "no host's",
		"127.0.0.1": "loopback", "127.9.9.9": "loopback", "::1": "loopback", "::ffff:127.0.0.1": "loopback",
		"224.0.0.1": "multicast", "239.1.1.1": "multicast", "ff02::1": "multicast",
		"169.254.1.1": "link-local", "fe80::1": "link-local", "fe80::1%eth0": "zone", "2001:db8::1%eth0": "zone",
	} {
		switch err := CheckPodAddr(netip.MustParseAddr(text)); {
		case want == "" && err != nil:
			t.Errorf("%s: %v", text, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), text)):
			t.Errorf("%s: the error does not say %q: %v", text, want, err)
		}
	}
	if err := CheckPodAddr(netip.Addr{}); err == nil || !strings.Contains(err.Error(), "missing") {
		t.Errorf("no address: %v", err)
	}
}

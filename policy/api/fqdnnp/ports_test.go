package fqdnnp

import (
	"strings"
	"testing"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/fields"
)

func ptr[T any](v T) *T { return &v }

func tcp(port int32) v1alpha1.Port {
	return v1alpha1.Port{Protocol: ptr(v1alpha1.ProtocolTCP), Port: ptr(port)}
}

func TestPorts(t *testing.T) {
	proto := func(p v1alpha1.Protocol) *v1alpha1.Protocol { return &p }
	for _, c := range []struct {
		ports    []v1alpha1.Port
		want     policy.PortSet
		problems string
	}{
		{nil, "any", ""},
		{[]v1alpha1.Port{{}}, "any", ""},
		{[]v1alpha1.Port{{Port: ptr(int32(443))}}, "tcp/443,udp/443,sctp/443", ""},
		{[]v1alpha1.Port{{Port: ptr(int32(443)), EndPort: ptr(int32(8443))}}, "tcp/443-8443,udp/443-8443,sctp/443-8443", ""},
		{[]v1alpha1.Port{{Port: ptr(int32(5)), EndPort: ptr(int32(5))}}, "tcp/5,udp/5,sctp/5", ""},
		{[]v1alpha1.Port{{Protocol: proto("TCP"), Port: ptr(int32(5)), EndPort: ptr(int32(5))}}, "tcp/5", ""},
		{[]v1alpha1.Port{{Protocol: proto("UDP")}}, "udp", ""},
		{[]v1alpha1.Port{{Protocol: proto("SCTP"), Port: ptr(int32(7))}}, "sctp/7", ""},
		{[]v1alpha1.Port{{Protocol: proto("ALL")}}, "any", ""},
		{[]v1alpha1.Port{{Protocol: proto("ALL"), Port: ptr(int32(53))}}, "tcp/53,udp/53,sctp/53", ""},
		{[]v1alpha1.Port{{Protocol: proto("ALL"), Port: ptr(int32(1)), EndPort: ptr(int32(2))}}, "tcp/1-2,udp/1-2,sctp/1-2", ""},
		{[]v1alpha1.Port{tcp(80), tcp(443), {Protocol: proto("UDP"), Port: ptr(int32(443))}}, "tcp/80,tcp/443,udp/443", ""},
		{[]v1alpha1.Port{{Protocol: proto("TCP"), Port: ptr(int32(1)), EndPort: ptr(int32(65535))}}, "tcp/1-65535", ""},
		{[]v1alpha1.Port{{Protocol: proto("tcp"), Port: ptr(int32(1))}}, "", `p[0].protocol "tcp" is unknown; write TCP, UDP, SCTP or ALL`},
		{[]v1alpha1.Port{{Port: ptr(int32(-1))}}, "", "p[0].port -1 is no port; write 1 to 65535, or leave it out for every port"},
		{[]v1alpha1.Port{{Port: ptr(int32(1)), EndPort: ptr(int32(65536))}}, "", "p[0].endPort 65536 is no port; write 1 to 65535, or leave it out for every port"},
		{[]v1alpha1.Port{{EndPort: ptr(int32(5))}}, "", "p[0].endPort endPort 5 stands alone; write the first port of the range as port"},
		{[]v1alpha1.Port{{Port: ptr(int32(6)), EndPort: ptr(int32(5))}}, "", "p[0].endPort endPort 5 is below port 6; write the greater one as endPort"},
	} {
		r := &Policy{}
		got := fields.Ports(r.Partly, "p", c.ports, MaxPorts)
		var problems []string
		for _, p := range r.Problems {
			problems = append(problems, p.Path+" "+p.Message)
		}
		if got != c.want || strings.Join(problems, "; ") != c.problems {
			t.Errorf("%+v: %q, %q; want %q, %q", c.ports, got, problems, c.want, c.problems)
		}
	}
}

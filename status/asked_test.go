package status

import (
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes/fake"

	"github.com/namegate/namegate/crds/v1alpha1"
)

// annotated is a policy that says what its companions open.
func annotated(p *v1alpha1.FQDNNetworkPolicy, value string) *v1alpha1.FQDNNetworkPolicy {
	p.Annotations = map[string]string{CompanionAnnotation: value}
	return p
}

func TestCompanionAnnotation(t *testing.T) {
	const unwritten = "-"
	for _, c := range []struct {
		mode              CompanionPorts
		value             string
		ports, none       bool
		reason, saysWrite string
	}{
		{PortsAlways, unwritten, true, false, "", ""},
		{PortsAlways, "Ports", true, false, "", ""},
		{PortsAlways, "DNS", false, false, "", ""},
		{PortsAlways, "None", false, true, "", ""},
		{PortsAlways, "ports", false, false, ReasonCompanionInvalid, "write Ports, DNS or None"},
		{PortsAlways, "", false, false, ReasonCompanionInvalid, "write Ports, DNS or None"},
		{PortsAsked, unwritten, false, false, "", ""},
		{PortsAsked, "Ports", true, false, "", ""},
		{PortsAsked, "DNS", false, false, "", ""},
		{PortsAsked, "None", false, true, "", ""},
		{PortsAsked, "yes", false, false, ReasonCompanionInvalid, "write Ports, DNS or None"},
		{PortsNever, unwritten, false, false, "", ""},
		{PortsNever, "Ports", false, false, ReasonCompanionIgnored, "companion.ports=Asked"},
		{PortsNever, "DNS", false, false, "", ""},
		{PortsNever, "None", false, true, "", ""},
		{"", "Ports", false, false, ReasonCompanionIgnored, "companion.ports=Asked"},
		{"", unwritten, false, false, "", ""},
	} {
		p := aPolicy("shop", "web")
		if c.value != unwritten {
			annotated(p, c.value)
		}
		if got := c.mode.wantsPorts(p); got != c.ports {
			t.Errorf("%q with %q: ports %v", c.mode, c.value, got)
		}
		if got := wantsNone(p); got != c.none {
			t.Errorf("%q with %q: none %v", c.mode, c.value, got)
		}
		reason, message := c.mode.objection(p)
		if reason != c.reason || !strings.Contains(message, c.saysWrite) || (message == "") != (reason == "") {
			t.Errorf("%q with %q: %s %q", c.mode, c.value, reason, message)
		}
	}
}

func TestObjectionIsShort(t *testing.T) {
	_, message := PortsAlways.objection(annotated(aPolicy("shop", "web"), strings.Repeat("ü", 100_000)))
	if len(message) > maxNote {
		t.Errorf("%d bytes", len(message))
	}
}

func TestCompanionPortsCheck(t *testing.T) {
	for value, ok := range map[CompanionPorts]bool{"": true, PortsNever: true, PortsAsked: true, PortsAlways: true, "always": false, "Ports": false} {
		if err := value.Check(); (err == nil) != ok {
			t.Errorf("%q: %v", value, err)
		}
	}
	if _, err := New(Options{Namespace: "namegate", Client: fake.NewClientset(), Dynamic: newPolicyServer(t), Log: silent, CompanionPorts: "x"}); err == nil || !strings.Contains(err.Error(), "Always") {
		t.Errorf("got %v", err)
	}
}

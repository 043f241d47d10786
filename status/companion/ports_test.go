package companion

import (
	"strings"
	"testing"

	"github.com/namegate/namegate/status/event"
	"github.com/namegate/namegate/testkit/statustest"
)

// annotated is a policy with the annotation about its companions' ports.

func TestAnnotation(t *testing.T) {
	const unwritten = "-"
	for _, c := range []struct {
		mode              Ports
		value             string
		ports, none       bool
		reason, saysWrite string
	}{
		{PortsAlways, unwritten, true, false, "", ""},
		{PortsAlways, "Ports", true, false, "", ""},
		{PortsAlways, "DNS", false, false, "", ""},
		{PortsAlways, "None", false, true, "", ""},
		{PortsAlways, "ports", false, false, ReasonInvalid, "write Ports, DNS or None"},
		{PortsAlways, "", false, false, ReasonInvalid, "write Ports, DNS or None"},
		{PortsAsked, unwritten, false, false, "", ""},
		{PortsAsked, "Ports", true, false, "", ""},
		{PortsAsked, "DNS", false, false, "", ""},
		{PortsAsked, "None", false, true, "", ""},
		{PortsAsked, "yes", false, false, ReasonInvalid, "write Ports, DNS or None"},
		{PortsNever, unwritten, false, false, "", ""},
		{PortsNever, "Ports", false, false, ReasonIgnored, "companion.ports=Asked"},
		{PortsNever, "DNS", false, false, "", ""},
		{PortsNever, "None", false, true, "", ""},
		{"", "Ports", false, false, ReasonIgnored, "companion.ports=Asked"},
		{"", unwritten, false, false, "", ""},
	} {
		p := statustest.Policy("shop", "web")
		if c.value != unwritten {
			statustest.Annotated(p, c.value)
		}
		if got := c.mode.requested(p); got != c.ports {
			t.Errorf("%q with %q: ports %v", c.mode, c.value, got)
		}
		if got := unwanted(p); got != c.none {
			t.Errorf("%q with %q: none %v", c.mode, c.value, got)
		}
		reason, message := c.mode.objection(p)
		if reason != c.reason || !strings.Contains(message, c.saysWrite) || (message == "") != (reason == "") {
			t.Errorf("%q with %q: %s %q", c.mode, c.value, reason, message)
		}
	}
}

func TestObjectionIsShort(t *testing.T) {
	_, message := PortsAlways.objection(statustest.Annotated(statustest.Policy("shop", "web"), strings.Repeat("ü", 100_000)))
	if len(message) > event.MaxNote {
		t.Errorf("%d bytes", len(message))
	}
}

func TestPortsCheck(t *testing.T) {
	for value, ok := range map[Ports]bool{"": true, PortsNever: true, PortsAsked: true, PortsAlways: true, "always": false, "Ports": false} {
		if err := value.Check(); (err == nil) != ok {
			t.Errorf("%q: %v", value, err)
		}
	}
}

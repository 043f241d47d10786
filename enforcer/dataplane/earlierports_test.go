package dataplane

import (
	"slices"
	"testing"

	"github.com/namegate/namegate/policy"
)

func TestEarlierPorts(t *testing.T) {
	for ports, want := range map[policy.PortSet]policy.PortSet{
		"any": "any", "": "", "tcp/443": "tcp/443", "tcp/443,udp/443": "tcp/443,udp/443", "tcp": "tcp", "udp/53,sctp/53": "udp/53,sctp/53",
		"tcp/443,udp/443,sctp/443":                               "tcp/443",
		"tcp/443,udp/53,udp/443,sctp/443":                        "tcp/443,udp/53",
		"tcp/80,udp/80-81,sctp/80":                               "tcp/80,udp/81",
		"tcp/80-90,udp/70-100,sctp/80-90":                        "tcp/80-90,udp/70-79,udp/91-100",
		"tcp/1-2,tcp/5-9,udp/1-2,udp/5-9,sctp/1-2,sctp/5-9":      "tcp/1-2,tcp/5-9",
		"tcp/1-2,tcp/5-9,udp/1-65535,sctp/1-2,sctp/5-9":          "tcp/1-2,tcp/5-9,udp/3-4,udp/10-65535",
		"tcp/65535,udp,sctp/65535":                               "tcp/65535,udp/0-65534",
		"tcp/7,tcp/443,udp/443,sctp/443,sctp/1000":               "tcp/7,tcp/443,sctp/1000",
		"tcp,udp/443,sctp/443":                                   "tcp",
		"tcp/1-65535,udp/1-65535,sctp/1-65535":                   "tcp/1-65535",
		"tcp/53,tcp/443-444,udp/53,udp/443-444,sctp/53,sctp/443": "tcp/53,tcp/443-444,udp/444",
	} {
		if got, differs := earlierPorts(ports); got != want || differs != (ports != want) {
			t.Errorf("%s: %s, %v; want %s", ports, got, differs, want)
		}
	}
}

// TestWithEarlierPorts: each port set comes once, and earlier ones only where they left grants.
func TestWithEarlierPorts(t *testing.T) {
	asked := []policy.PortSet{"tcp/443,udp/443,sctp/443", "tcp/80", "tcp/80,udp/80,sctp/80", "tcp/1-2,udp/1-2,sctp/1-2", "tcp/1-2,udp/1,sctp/1"}
	left := func(s policy.PortSet) bool { return s != "tcp/443" }
	if got := WithEarlierPorts(asked, left); !slices.Equal(got, append(slices.Clone(asked), "tcp/1-2")) {
		t.Error(got)
	}
	left = func(policy.PortSet) bool { return false }
	if got := WithEarlierPorts(asked, left); !slices.Equal(got, asked) {
		t.Error(got)
	}
}

package policy

import (
	"math/rand/v2"
	"testing"

	"github.com/namegate/namegate/testkit/diff"
)

func TestNewPortSet(t *testing.T) {
	for _, c := range []struct {
		ranges []PortRange
		want   PortSet
	}{
		{nil, ""},
		{[]PortRange{{}}, AnyPort},
		{[]PortRange{{TCP, 443, 443}}, "tcp/443"},
		{[]PortRange{{TCP, 0, 65535}}, "tcp"},
		{[]PortRange{{SCTP, 0, 65535}, {UDP, 53, 53}, {TCP, 8000, 9000}, {TCP, 443, 443}}, "tcp/443,tcp/8000-9000,udp/53,sctp"},
		{[]PortRange{{TCP, 5, 9}, {TCP, 1, 4}, {TCP, 7, 20}}, "tcp/1-20"},        // touching and overlapping
		{[]PortRange{{TCP, 5, 9}, {TCP, 6, 7}, {TCP, 11, 11}}, "tcp/5-9,tcp/11"}, // one inside another
		{[]PortRange{{TCP, 5, 9}, {UDP, 10, 10}}, "tcp/5-9,udp/10"},              // never across protocols
		{[]PortRange{{TCP, 9, 5}}, ""},
		{[]PortRange{{TCP, 1, 65535}, {TCP, 0, 0}}, "tcp"},
		{[]PortRange{{TCP, 443, 443}, {AnyProtocol, 1, 1}}, AnyPort},
		{[]PortRange{{TCP, 65535, 65535}, {TCP, 65535, 65535}}, "tcp/65535"},
		{[]PortRange{{47, 0, 65535}}, "47"},
	} {
		diff.Equal(t, c.want, NewPortSet(c.ranges...), c.ranges)
	}
}

func TestParsePortSet(t *testing.T) {
	for text, want := range map[string]PortSet{
		"": "", "any": "any", "tcp": "tcp", "udp/53": "udp/53", "tcp/9,tcp/8": "tcp/8-9", "tcp/1-5,any": "any", "sctp/7-7": "sctp/7",
	} {
		got, err := ParsePortSet(text)
		if err != nil || got != want {
			t.Errorf("%q: %q, %v; want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"icmp", "tcp/", "tcp/x", "tcp/5-", "tcp/5-4", "tcp/65536", "any/5", "tcp,", ",", "tcp/-5", "TCP"} {
		if got, err := ParsePortSet(text); err == nil {
			t.Errorf("%q: %q and no error", text, got)
		}
	}
}

// TestPortSetLikeTwin compares with a plain set of all protocols and ports.
func TestPortSetLikeTwin(t *testing.T) {
	type one struct {
		p    Protocol
		port uint16
	}
	r := rand.New(rand.NewPCG(3, 4))
	protocols := []Protocol{TCP, UDP, SCTP}
	for range 500 {
		twin := map[one]bool{}
		var ranges []PortRange
		for range r.IntN(6) {
			x := PortRange{protocols[r.IntN(3)], uint16(r.IntN(30)), uint16(r.IntN(30))}
			ranges = append(ranges, x)
			for port := int(x.First); port <= int(x.Last); port++ {
				twin[one{x.Protocol, uint16(port)}] = true
			}
		}
		set := NewPortSet(ranges...)
		for _, p := range protocols {
			for port := range uint16(31) {
				diff.MustEqual(t, twin[one{p, port}], set.Contains(p, port), ranges, set, "contains", p, "/", port)
			}
		}
		if again, err := ParsePortSet(string(set)); err != nil || again != set {
			t.Fatalf("%q read again is %q, %v", set, again, err)
		}
		diff.MustEqual(t, set, NewPortSet(set.Ranges()...), "made of its ranges")
	}
}

func TestPortSetEdges(t *testing.T) {
	if !AnyPort.Contains(1, 0) || !AnyPort.Contains(TCP, 65535) || PortSet("").Contains(TCP, 0) || PortSet("tcp").Contains(UDP, 1) {
		t.Error("any, none or one protocol")
	}
	if got := PortSet("nonsense").Ranges(); got != nil {
		t.Errorf("ranges of nonsense: %v", got)
	}
	diff.Error(t, []PortRange{{AnyProtocol, 0, 65535}}, AnyPort.Ranges(), "ranges of any")
}

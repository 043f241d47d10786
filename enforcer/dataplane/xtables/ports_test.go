package xtables

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/rulewalk"
)

// taken tells whether one of the matches takes a packet.
func taken(matches []string, proto policy.Protocol, port uint16) bool {
	for _, m := range matches {
		if plain(nil).Matches(m+"-j DROP", &rulewalk.Packet{Protocol: uint8(proto), DstPort: port}) {
			return true
		}
	}
	return false
}

func TestPortMatchesEqualThePortSet(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	protocols := []policy.Protocol{policy.TCP, policy.UDP, policy.SCTP}
	for range 300 {
		var ranges []policy.PortRange
		for range r.IntN(40) {
			first := uint16(r.Uint32())
			last := first
			switch r.IntN(12) {
			case 0:
				first, last = 0, 65535
			case 1, 2, 3:
				last = first + uint16(min(r.Uint32N(300), 65535-uint32(first)))
			}
			ranges = append(ranges, policy.PortRange{Protocol: protocols[r.IntN(3)], First: first, Last: last})
		}
		set := policy.NewPortSet(ranges...)
		matches := portMatches(set)
		for _, m := range matches {
			if cost := len(strings.FieldsFunc(m, func(c rune) bool { return c == ',' || c == ':' })); cost > portsPerRule {
				t.Fatalf("%s: one match takes %d ports: %s", set, cost, m)
			}
		}
		for range 60 {
			port := uint16(r.Uint32())
			if len(ranges) > 0 && r.IntN(4) > 0 {
				// Around the ends is where a range goes wrong.
				pr := ranges[r.IntN(len(ranges))]
				port = []uint16{pr.First, pr.Last, pr.First - 1, pr.Last + 1}[r.IntN(4)]
			}
			proto := append(protocols, 1, 58, 47)[r.IntN(6)]
			if proto == 1 || proto == 58 || proto == 47 {
				port = 0
			}
			if got, want := taken(matches, proto, port), set.Contains(proto, port); got != want {
				t.Fatalf("%s: %s/%d is taken: %v, contained: %v, by %v", set, proto, port, got, want, matches)
			}
		}
	}
}

func TestPortMatches(t *testing.T) {
	tests := []struct {
		set  policy.PortSet
		want []string
	}{
		{"", nil},
		{"any", []string{""}},
		{"tcp", []string{"-p tcp "}},
		{"tcp/443", []string{"-p tcp -m tcp --dport 443 "}},
		{"tcp/443,tcp/8000-9000,udp/53,sctp", []string{"-p tcp -m multiport --dports 443,8000:9000 ", "-p udp -m udp --dport 53 ", "-p sctp "}},
		{"sctp/9,udp", []string{"-p sctp -m multiport --dports 9 ", "-p udp "}},
		{"tcp/1,tcp/3,tcp/5,tcp/7,tcp/9,tcp/11,tcp/13,tcp/15,tcp/17,tcp/19,tcp/21,tcp/23,tcp/25,tcp/27,tcp/29,tcp/31", []string{
			"-p tcp -m multiport --dports 1,3,5,7,9,11,13,15,17,19,21,23,25,27,29 ", "-p tcp -m tcp --dport 31 ",
		}},
		{"tcp/1-2,tcp/4-5,tcp/7-8,tcp/10-11,tcp/13-14,tcp/16-17,tcp/19-20,tcp/22-23", []string{
			"-p tcp -m multiport --dports 1:2,4:5,7:8,10:11,13:14,16:17,19:20 ", "-p tcp -m tcp --dport 22:23 ",
		}},
	}
	for _, test := range tests {
		diff.Error(t, test.want, portMatches(test.set), test.set)
	}
}

package intercept

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/namegate/namegate/policy/netpolicyfor"
	"github.com/namegate/namegate/testkit/policytest"
)

var addr, addrs = netip.MustParseAddr, policytest.Addrs

func TestFreeAddr(t *testing.T) {
	tests := []struct {
		v6    bool
		taken string
		want  string
	}{
		{false, "", "169.254.20.64"},
		{false, "169.254.20.64 169.254.20.66", "169.254.20.65"},
		{true, "", "fd5c:7a1e:93b4::1:0"},
		{true, "fd5c:7a1e:93b4::1:0 169.254.20.64", "fd5c:7a1e:93b4::1:1"},
	}
	for _, test := range tests {
		if got, err := freeAddr(test.v6, addrs(test.taken)); err != nil || got != addr(test.want) {
			t.Errorf("beside %q: %s, %v; want %s", test.taken, got, err, test.want)
		}
	}
	for _, v6 := range []bool{false, true} {
		var taken []netip.Addr
		for {
			a, err := freeAddr(v6, taken)
			if err != nil {
				if !strings.Contains(err.Error(), "remove those of agents that are gone") {
					t.Errorf("the error does not say what to do: %v", err)
				}
				break
			}
			if !InRange(a) || len(taken) > 256 {
				t.Fatalf("%s is no serving address", a)
			}
			taken = append(taken, a)
		}
	}
}

func TestInRange(t *testing.T) {
	for a, want := range map[string]bool{
		"169.254.20.53": false, "169.254.20.63": false, "169.254.20.64": true, "169.254.20.254": true, "169.254.20.255": false,
		"192.0.2.1": false, "fd5c:7a1e:93b4::53": false, "fd5c:7a1e:93b4::1:0": true, "fd5c:7a1e:93b4::1:ff": true, "fd5c:7a1e:93b4::1:100": false, "2001:db8::1": false,
	} {
		if got := InRange(addr(a)); got != want {
			t.Errorf("InRange(%s) = %v", a, got)
		}
	}
}

func prefixes(words ...string) (out []netip.Prefix) {
	for _, w := range words {
		out = append(out, netip.MustParsePrefix(w))
	}
	return out
}

func TestDisjoint(t *testing.T) {
	for _, c := range []struct{ in, want []netip.Prefix }{
		{nil, nil},
		{prefixes("10.1.0.7/24"), prefixes("10.1.0.0/24")},
		{prefixes("10.1.0.0/24", "10.1.0.0/24", "10.0.0.0/8", "10.1.1.0/24"), prefixes("10.0.0.0/8")},
		{prefixes("fd00:1::/64", "10.2.0.0/24", "10.1.0.0/24"), prefixes("10.1.0.0/24", "10.2.0.0/24", "fd00:1::/64")},
	} {
		if d := cmp.Diff(c.want, disjoint(c.in), cmpopts.EquateEmpty(), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); d != "" {
			t.Errorf("%v (-want +got):\n%s", c.in, d)
		}
	}
}

func TestRangesHoldEveryAddress(t *testing.T) {
	for _, a := range []netip.Addr{firstServing4, lastServing4, firstServing6, lastServing6} {
		if !slices.ContainsFunc(netpolicyfor.Endpoint().Prefixes, func(p netip.Prefix) bool { return p.Contains(a) }) {
			t.Errorf("%s is in none of %v", a, netpolicyfor.Endpoint())
		}
	}
}

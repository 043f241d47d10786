package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/proxy/wire"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/policytest"
)

func addresses(list ...string) (addrs []wire.Address) {
	for i, a := range list {
		ttl := 60
		if before, after, found := strings.Cut(a, "@"); found {
			ttl, _ = strconv.Atoi(before)
			a = after
		}
		addrs = append(addrs, wire.Address{Addr: netip.MustParseAddr(a), TTL: uint32(ttl), Record: i})
	}
	return addrs
}

func TestGrants(t *testing.T) {
	d := policy.Decision{Matches: []*policy.Match{
		{Policy: "shop/a", Ports: "tcp/443", TTL: policy.TTL{Min: 30 * time.Second, Max: time.Hour}},
		{Policy: "shop/b", Ports: "udp/53", TTL: policy.TTL{Min: 5 * time.Minute, Max: time.Hour}},
		{Policy: "shop/c", Ports: "any", TTL: policy.TTL{Max: time.Hour}, Audit: true},
	}}
	none := policy.Decision{Matches: d.Matches[2:]}
	pod := policy.PodRef{Namespace: "shop", Name: "web"}
	for _, tt := range []struct {
		name  string
		d     policy.Decision
		addrs []wire.Address
		want  []string
	}{
		{"no address", d, nil, nil},
		{"one TTL", d, addresses("192.0.2.1", "192.0.2.2"), []string{"[192.0.2.1 192.0.2.2] tcp/443 1m0s", "[192.0.2.1 192.0.2.2] udp/53 5m0s"}},
		{"two TTLs", d, addresses("10@192.0.2.1", "600@192.0.2.2", "10@192.0.2.3"), []string{
			"[192.0.2.1 192.0.2.3] tcp/443 30s", "[192.0.2.1 192.0.2.3] udp/53 5m0s", "[192.0.2.2] tcp/443 10m0s", "[192.0.2.2] udp/53 10m0s"}},
		{"audit opens nothing", none, addresses("192.0.2.1"), nil},
	} {
		view := &policy.View{Pod: policy.Pod{PodRef: pod}}
		var of granted
		made(&of, view, policytest.Name("www.example.org"), tt.d, tt.addrs)
		var got []string
		for _, g := range of.grants {
			if g.Pod != pod || g.View != view || g.Name.String() != "www.example.org" {
				t.Errorf("%s: %+v", tt.name, g)
			}
			got = append(got, fmt.Sprintf("%v %s %v", g.Addrs, g.Ports, g.Deadline.Sub(noon)))
		}
		equal(t, tt.name, got, tt.want)
		for i := range tt.addrs {
			if wants := len(tt.want) > 0; (len(of.answers[i].Openings) == 2) != wants {
				t.Errorf("%s: address %d opened %v", tt.name, i, of.answers[i].Openings)
			}
		}
	}
}

// TestEveryGrantOutlivesTheTTL: the TTL in the reply never outlasts any port set.
func TestEveryGrantOutlivesTheTTL(t *testing.T) {
	second := func(n int) time.Duration { return time.Duration(n) * time.Second }
	for _, tt := range []struct {
		ttls []policy.TTL
		want uint32
	}{
		{[]policy.TTL{{Max: second(3600)}}, 3600},
		{[]policy.TTL{{Max: second(3600)}, {Max: second(60)}}, 60}, // of other ports
		{[]policy.TTL{{Max: 0}}, 0},
	} {
		var d policy.Decision
		for i, ttl := range tt.ttls {
			d.Matches = append(d.Matches, &policy.Match{Ports: policy.PortSet(fmt.Sprintf("tcp/%d", i+1)), TTL: ttl})
		}
		if got := longestTTL(&d); got != tt.want {
			t.Errorf("%v: %d, want %d", tt.ttls, got, tt.want)
		}
		for _, o := range d.Openings(1 << 30) {
			if o.Lifetime < second(int(longestTTL(&d))) {
				t.Errorf("%v: %v is shorter than the TTL", tt.ttls, o)
			}
		}
	}
	same := policy.Decision{Matches: []*policy.Match{
		{Ports: "any", TTL: policy.TTL{Max: second(60)}}, {Ports: "any", TTL: policy.TTL{Max: second(600)}},
		{Ports: "any", TTL: policy.TTL{Max: second(9000)}, Audit: true},
	}}
	if got := longestTTL(&same); got != 600 {
		t.Errorf("the longest of one port set: %d", got)
	}
}

func TestFakeGranter(t *testing.T) {
	var f FakeGranter
	pod := policy.PodRef{Namespace: "shop", Name: "web"}
	a, b := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	addrs := []netip.Addr{a}
	fatal.If(t, f.Grant(context.Background(), []policy.Grant{{Pod: pod, Addrs: addrs}}))
	addrs[0] = b // the caller may use its slice again
	if !f.Granted(pod, a) || f.Granted(pod, b) || f.Granted(policy.PodRef{Name: "other"}, a) || len(f.Grants()) != 1 {
		t.Errorf("grants %v", f.Grants())
	}
	over, cancel := context.WithCancel(context.Background())
	cancel()
	if err := f.Grant(over, []policy.Grant{{Pod: pod, Addrs: addrs}}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	f.Err = func(context.Context, []policy.Grant) error { return errNotServing }
	if err := f.Grant(context.Background(), nil); !errors.Is(err, errNotServing) || len(f.Grants()) != 1 {
		t.Errorf("error %v, grants %v", err, f.Grants())
	}
}

// TestOpenAddressesNeedNoWrite: while it hangs, a kept answer that is open is given,
// also without the packet cache.
func TestOpenAddressesNeedNoWrite(t *testing.T) {
	l := newCacheLab(t, map[string][]string{"www.example.org A": {"www.example.org. 60 IN A 192.0.2.1"}})
	for range 2 {
		l.ask("10.1.0.4", "www.example.org", dns.TypeA)
		l.pass(time.Millisecond)
	}
	calls := l.kernel.calls
	if r := l.ask("10.1.0.4", "www.example.org", dns.TypeA); len(r.Answer) != 1 || l.kernel.calls != calls {
		t.Errorf("%v, after %d more calls", r, l.kernel.calls-calls)
	}
}

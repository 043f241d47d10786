package main

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/policy/compile"
)

// Every pod of the cluster is selected, and a change makes another snapshot of the
// pods that it is for, of those alone.
func TestCluster(t *testing.T) {
	for _, namespaces := range spaces {
		in, c := cluster(maxPolicies/20, namespaces), compile.New()
		before := c.Compile(in)
		if err := selects(before, maxPods); err != nil {
			t.Error(err)
		}
		if len(before.Problems) > 0 {
			t.Errorf("%d namespaces: %+v", namespaces, before.Problems[0])
		}
		for turn := range 2 {
			after := c.Compile(changed(in, turn, true))
			differ := 0
			for i, v := range after.Views {
				if v != before.Views[i] {
					differ++
				}
			}
			if want := maxPods / namespaces / groups; differ != want {
				t.Errorf("%d namespaces, turn %d: %d views differ, want %d", namespaces, turn, differ, want)
			}
			before = after
		}
	}
	if err := selects(compile.New().Compile(compile.Input{}), 1); err == nil {
		t.Error("no pod is selected, and that is right")
	}
}

// Names that differ have addresses that differ, nearly always.
func TestScattered(t *testing.T) {
	for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA} {
		seen := map[netip.Addr]bool{}
		for i := range 1000 {
			q := new(dns.Msg).SetQuestion(strings.Repeat("n", i%50+1)+string(rune('a'+i%26))+".set-1.bench.test.", qtype)
			r := scattered(q)
			if len(r.Answer) != 1 || !r.Response || r.Id != q.Id {
				t.Fatalf("%v", r)
			}
			var a netip.Addr
			switch rr := r.Answer[0].(type) {
			case *dns.A:
				a, _ = netip.AddrFromSlice(rr.A.To4())
				if !netip.MustParsePrefix("198.18.0.0/15").Contains(a) {
					t.Fatalf("%s is not an address of the lab's world", a)
				}
			case *dns.AAAA:
				a, _ = netip.AddrFromSlice(rr.AAAA)
				if !netip.MustParsePrefix("2001:db8::/32").Contains(a) {
					t.Fatalf("%s is not an address of the lab's world", a)
				}
			}
			seen[a] = true
		}
		if len(seen) < 600 {
			t.Errorf("only %d addresses", len(seen))
		}
	}
}

// The manifests are read as the pods and policies that they are meant to be.
func TestManifests(t *testing.T) {
	files := manifests(chosen(3))
	if n := strings.Count(files["pods.yaml"], "kind: Pod"); n != maxPods {
		t.Errorf("%d pods", n)
	}
	if n := strings.Count(files["pods.yaml"], `selected: "true"`); n != 3 {
		t.Errorf("%d pods have the label", n)
	}
	if n := strings.Count(files["policies.yaml"], "kind: FQDNNetworkPolicy"); n != portSets {
		t.Errorf("%d policies", n)
	}
}

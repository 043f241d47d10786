package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

func TestOpeningsOfHandMadeMatches(t *testing.T) {
	p, err := fqdn.ParsePattern("*.test")
	fatal.If(t, err)
	d := Decision{Matches: []*Match{{Rule: &Rule{Policy: "shop/p", Ports: AnyPort}, Pattern: p}}}
	if got := d.Openings(0); len(got) != 1 || got[0].By[0] != "shop/p *.test" {
		t.Errorf("%v", got)
	}
}

// TestOpeningsOfMany equals a plain loop.
func TestOpeningsOfMany(t *testing.T) {
	for _, many := range []int{7, 33, 128} {
		var d Decision
		by := map[PortSet][]string{}
		for i := range many {
			p, err := fqdn.ParsePattern([]string{"*.test", "**.test", "a.b.test"}[i%3])
			fatal.If(t, err)
			m := &Match{Pattern: p, Rule: &Rule{Policy: fmt.Sprintf("shop/p%d", i/5), Ports: PortSet([]string{"any", "tcp/443", "udp", "tcp/80"}[i%4]), Audit: i%7 == 0,
				TTL: TTL{Min: time.Second, Max: time.Hour, Grace: time.Duration(i%11+1) * time.Second}}}
			d.Matches = append(d.Matches, m)
			if !m.Audit && !slices.Contains(by[m.Ports], m.By()) {
				by[m.Ports] = append(by[m.Ports], m.By())
			}
		}
		open := d.Openings(60)
		if len(open) != len(by) || !slices.IsSortedFunc(open, func(a, b Opening) int { return strings.Compare(string(a.Ports), string(b.Ports)) }) {
			t.Fatalf("%d openings for %d port sets", len(open), len(by))
		}
		for _, o := range open {
			slices.Sort(by[o.Ports])
			diff.Error(t, by[o.Ports], o.By, many, "matches", o.Ports)
			for _, m := range d.Matches {
				if !m.Audit && m.Ports == o.Ports && m.TTL.Lifetime(60) > o.Lifetime {
					t.Errorf("%s is open for %v, %s says %v", o.Ports, o.Lifetime, m.By(), m.TTL.Lifetime(60))
				}
			}
		}
	}
}

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

// TestChecks: rules in order, with the ports of each.
func TestChecks(t *testing.T) {
	for _, c := range []struct {
		rules string // tier, action or "check", ports
		want  bool
	}{
		{"", false},
		{"N Accept any", false},
		{"N check tcp/443", true},
		{"N check tcp/443; N Accept tcp/443", false}, // a union
		{"N check tcp/443; N Accept tcp/80", true},
		{"N check tcp/80,tcp/443; N Accept tcp/443", true},
		{"N check tcp/80-90; N Accept tcp/80-85; N Accept tcp/86-90", true}, // none has all of them
		{"N check tcp/80-90; N Accept tcp/1-100", false},
		{"N check tcp/443; N Accept udp/443", true},
		{"N check tcp/443; N Accept any", false},
		{"N check tcp/443; N audited any", true},
		{"N Accept any; N audited-check tcp/443", false},
		{"A check tcp/443; N Accept any", true},
		{"A Accept tcp/443; N check tcp/443", false},
		{"A Accept tcp; A check tcp/443", false},
		{"A check tcp/443; A Accept tcp", true},
		{"A Pass any; A check tcp/443", true},
		{"A Accept tcp/443; A check tcp/443; N check tcp/8443", true},
	} {
		var d Decision
		for _, text := range strings.FieldsFunc(c.rules, func(r rune) bool { return r == ';' }) {
			words := strings.Fields(text)
			r := &Rule{Tier: map[string]Tier{"A": Admin, "N": Namespace}[words[0]], Ports: PortSet(words[2])}
			r.ServerName, r.Audit = strings.HasSuffix(words[1], "check"), strings.HasPrefix(words[1], "audited")
			if words[1] == "Pass" {
				r.Action = Pass
			}
			d.Matches = append(d.Matches, &Match{Rule: r})
		}
		diff.Equal(t, c.want, d.Checks(), c.rules)
	}
}

package policy_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/policytest"
)

// TestOpeningsNameWhatTheyCover: on random policies of all kinds, each opening has the matches
// of one rule or one port set that cover its name by themselves, and each match that counts is
// in one opening. An alias opens for rules that deny alone.
func TestOpeningsNameWhatTheyCover(t *testing.T) {
	random := rand.New(rand.NewPCG(16, 4))
	aliases, via, longest := 0, 0, 0
	for n := range 5000 {
		w := randomWorld(random)
		view, _, _ := w.view(t)
		for r := range view.Rules.All() {
			for i, m := range r.Matches {
				m.TTL = policy.TTL{Max: time.Duration(1+(len(r.Path)+i)%3) * time.Hour, Reuse: 30 * time.Hour}
			}
			if r.Tier != policy.Namespace && !r.Broken {
				r.ID = r.NewID()
			}
		}
		q := w.question(t, w.query())
		d := policy.Decide(view, q)
		in := map[*policy.Match]int{}
		least := time.Duration(1 << 62)
		for _, o := range d.Openings(1 << 30) {
			names := append([]fqdn.Name{q.Name}, q.Via...)
			if o.Rule.Lasting() {
				names = append(names, q.Aliases...)
			}
			at := slices.Index(names, o.Name)
			if at < 0 {
				t.Fatalf("%d: %+v opens for %s", n, q, o.Name)
			}
			longestOf := time.Duration(0)
			for _, m := range d.Matches {
				if m.Audit || m.Ports != o.Ports || m.Rule.ID != o.Rule || !m.Pattern.Matches(o.Name) || slices.ContainsFunc(names[:at], m.Pattern.Matches) {
					continue
				}
				in[m]++
				longestOf = max(longestOf, m.TTL.Max)
				if !slices.Contains(o.By, m.By()) {
					t.Errorf("%d: %q lacks %s", n, o.By, m.By())
				}
			}
			if o.Rule.Lasting() {
				longestOf += 30 * time.Hour
			} else {
				least = min(least, longestOf)
			}
			diff.Equal(t, longestOf, o.Lifetime, n, o, "for")
			switch {
			case o.Name != q.Name && slices.Contains(q.Via, o.Name):
				via++
			case o.Name != q.Name:
				aliases++
			}
		}
		for _, m := range d.Matches {
			if want := map[bool]int{false: 1}[m.Audit]; in[m] != want {
				t.Errorf("%d: %+v: %s is in %d openings", n, q, m.By(), in[m])
			}
		}
		if got := d.LongestTTL(); got > least && d.Allowed() && len(q.Via) == 0 {
			t.Errorf("%d: %v may be told, and an opening ends after %v", n, got, least)
		} else if got == least {
			longest++
		}
		covered := map[*policy.Match]bool{}
		for _, l := range d.Leads(policytest.Name("elsewhere.invalid"), 10) {
			lasting, accepted, most := false, false, time.Duration(0)
			for _, m := range d.Matches {
				if covers := m.Pattern.Matches(l.Name) && !(l.Alias && m.Accepts()); covers && !m.Audit {
					covered[m] = true
					lasting, accepted, most = lasting || !m.Accepts(), accepted || m.Accepts(), max(most, m.TTL.Max)
				}
			}
			if l.Alias != (l.Name != q.Name && !slices.Contains(q.Via, l.Name)) || l.Lasting && !lasting || l.Lifetime < 10*time.Second || l.Lifetime > most || !accepted && !l.Lasting {
				t.Errorf("%d: %+v leads by %+v", n, q, l)
			}
		}
		diff.Equal(t, len(in), len(covered), n, q, "matches that lead")
		diff.Equal(t, len(in) > 0, d.Counts(), n, "counts")
		if by := d.CountsFor(); len(in) > 0 && by != q.Name && !slices.Contains(q.Via, by) && (d.Allowed() || !slices.Contains(q.Aliases, by)) {
			t.Errorf("%d: %+v counts for %s", n, q, by)
		}
	}
	if aliases < 100 || via < 100 || longest < 100 {
		t.Errorf("%d openings for aliases, %d for names that led to others, %d longest TTLs", aliases, via, longest)
	}
}

// TestLastingLeads: of names that rules deny and that lead to one that these do not cover by
// themselves. They lead no longer than resolvers keep a record.
func TestLastingLeads(t *testing.T) {
	r := &policy.Rule{Tier: policy.Admin, Action: policy.Deny, Ports: "tcp/25", TTL: policy.TTL{Min: time.Second, Max: time.Minute}}
	for _, text := range []string{"**.test", "mx.other.test"} {
		p, err := fqdn.ParsePattern(text)
		fatal.If(t, err)
		r.Matches = append(r.Matches, &policy.Match{Pattern: p, Rule: r})
	}
	d := policy.Decision{Query: policy.Query{Name: policytest.Name("mx.other.test")}, Matches: r.Matches}
	for to, lasting := range map[string]bool{"mx.test": true, "mx.other.test": false, "mx.example": true} {
		leads := d.Leads(policytest.Name(to), 1<<31-1)
		if len(leads) != 1 || leads[0].Lifetime != 7*24*time.Hour || leads[0].Lasting != lasting {
			t.Errorf("%s: %+v", to, leads)
		}
	}
}

package policy_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
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
		for _, r := range view.Rules {
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
			names := []fqdn.Name{q.Name}
			if q.Via != "" {
				names = append(names, q.Via)
			}
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
			if o.Lifetime != longestOf {
				t.Errorf("%d: %v for %v, want %v", n, o, o.Lifetime, longestOf)
			}
			switch {
			case q.Via != "" && o.Name == q.Via && q.Name != q.Via:
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
		if got := d.LongestTTL(); got > least && d.Allowed() && q.Via == "" {
			t.Errorf("%d: %v may be told, and an opening ends after %v", n, got, least)
		} else if got == least {
			longest++
		}
		if d.Counts() != (len(in) > 0) {
			t.Errorf("%d: counts %v", n, d.Counts())
		}
		if by := d.CountsFor(); len(in) > 0 && by != q.Name && by != q.Via && (d.Allowed() || !slices.Contains(q.Aliases, by)) {
			t.Errorf("%d: %+v counts for %s", n, q, by)
		}
	}
	if aliases < 100 || via < 100 || longest < 100 {
		t.Errorf("%d openings for aliases, %d for names that led to others, %d longest TTLs", aliases, via, longest)
	}
}

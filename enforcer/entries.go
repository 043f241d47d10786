package enforcer

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/enforcer/dataplane/entries"
	"github.com/namegate/namegate/enforcer/grants"
	"github.com/namegate/namegate/kernel/nft"
	"github.com/namegate/namegate/policy"
)

// rulesOf returns the rules for which addresses may be granted to subjects, sorted.
func rulesOf(subjects dataplane.Subjects) []policy.RuleID {
	var all []policy.RuleID
	seen := map[*policy.RuleID]bool{}
	for _, p := range subjects {
		if len(p.Entries) == 0 || seen[&p.Entries[0]] {
			continue // many share their entries
		}
		seen[&p.Entries[0]] = true
		all = dataplane.UnionOf(all, p.Entries)
	}
	return slices.Clone(all)
}

func entrySets(rules []policy.RuleID, life time.Duration) (out []nft.EntrySet) {
	for _, id := range rules {
		out = append(out, entries.Set(id, life))
	}
	return out
}

// longestLife is for how long the kernel may keep an address open, of all grants.
type longestLife struct {
	views map[*policy.View]time.Duration // of the last state
	is    time.Duration                  // by the views of any state since
	since time.Time                      // when views with so long a life went, zero while there is one
}

// longestLife returns for how long an answer may have opened an address to one of the subjects
// that have ordered rules, with the hold; 0 if none opens any. What was granted by views that are
// gone ends before it falls, which it does only with other views.
func (e *Enforcer) longestLife(subjects dataplane.Subjects) time.Duration {
	l, views, longest, left, others := &e.life, map[*policy.View]time.Duration{}, time.Duration(0), time.Duration(0), false
	for ref, p := range subjects {
		if len(p.Entries) == 0 {
			continue
		}
		if e.snapshot == nil { // an earlier agent granted by views that are not known
			left = max(left, e.grants.LongestLeft(ref))
		}
		for _, v := range p.Views {
			life, known := l.views[v]
			if !known {
				life, others = v.LongestLife(), true
			}
			views[v] = life
			longest = max(longest, life)
		}
	}
	if left > longest {
		longest = left.Truncate(time.Minute) + time.Minute
	}
	if l.views = views; longest > 0 {
		longest += e.cfg.Hold + grants.LifeMargin
	}
	switch now := e.now(); {
	case longest >= l.is, others && !l.since.IsZero() && now.Sub(l.since) > l.is:
		l.is, l.since = longest, time.Time{}
	case l.since.IsZero():
		l.since = now
	}
	return l.is
}

// lifeID is a part of the ID of rules whose entry sets have a renewal by life, "" for others.
func lifeID(rules []policy.RuleID, life time.Duration) string {
	if slices.ContainsFunc(rules, func(id policy.RuleID) bool { return id.Lasting() && id.Reuse() < life }) {
		return strconv.FormatInt(int64(life/time.Second), 16)
	}
	return ""
}

// prepareEntries makes the entry sets that subjects need, before grants by a coming snapshot
// need them, and takes in what an earlier agent left in them. Until that succeeds nothing is
// granted, and what is in the kernel is in force.
func (e *Enforcer) prepareEntries(ctx context.Context, subjects dataplane.Subjects, coming *policy.Snapshot) error {
	rules := rulesOf(subjects)
	if err := e.k.Tables.AddEntrySets(ctx, entrySets(rules, 0)); err != nil {
		return err
	}
	fresh := slices.DeleteFunc(rules, func(id policy.RuleID) bool { return e.entered[id] })
	if err := e.entries.Recover(fresh, coming.View, e.grants); err != nil {
		return fmt.Errorf("recover the entries of ordered rules: %w", err)
	}
	for _, id := range fresh {
		e.entered[id] = true
	}
	return nil
}

// forgetEntries forgets the rules whose entry sets the tables have no more.
func (e *Enforcer) forgetEntries() {
	rules := rulesOf(e.inForce())
	maps.DeleteFunc(e.entered, func(id policy.RuleID, _ bool) bool {
		_, still := slices.BinarySearch(rules, id)
		return !still
	})
}

package xtables

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/kernel/iptables"
)

// table is one table of a family.
type table struct {
	family iptables.Family
	name   string
	// have is what is ours in the kernel, as it was read or written last; nil: it has to be read.
	have iptables.Chains
	// want is what was written last, nil before.
	want iptables.Chains
	// fingerprint was taken before the table was read or written; "" where it could not be taken.
	fingerprint string
	unverified  bool // written and not compared since
}

func (t *table) String() string { return fmt.Sprintf("%v %s chains", t.family, t.name) }

// wanted is what the rules of all tables are made of.
type wanted struct {
	subjects dataplane.Subjects
	refused  map[string]error // by the names of grant sets, which no rule asks
}

// rules is our chains in all tables, and the jumps to them.
type rules struct {
	chains iptables.Interface
	// other is the other variant of iptables, nil where the node has none or it has nothing of an
	// earlier agent: nothing is written there, and the chains that are left there are removed.
	other iptables.Interface
	owner dataplane.Owner

	tables      []*table  // in the order in which they are written
	nextReading time.Time // when unverified ones may be read, so that reading takes a bounded share of a core
	last        wanted    // the last write was made of it
	kept        map[podFamily]podRules

	surveyed time.Time // by readVariants
	follows  bool      // an earlier agent has chains here, as readVariants found, until a state is in force
}

const (
	// surveyFresh is how long a survey is as good as a new one: thousands of rules take
	// a good part of what a restart may. Verify finds soon what changed since.
	surveyFresh = 3 * time.Second
	// readingShare is how much longer than a reading of tables the pause after it is, and
	// readingPause the longest pause.
	readingShare = 40
	readingPause = 5 * time.Second
)

// newRules returns rules of which nothing is written.
func newRules(chains, other iptables.Interface, owner dataplane.Owner) *rules {
	r := &rules{chains: chains, other: other, owner: owner, kept: map[podFamily]podRules{}}
	for _, name := range tables {
		for _, f := range families {
			r.tables = append(r.tables, &table{family: f, name: name})
		}
	}
	return r
}

// variants are the places in which our chains may be, the one to write to last.
func (r *rules) variants() []iptables.Interface {
	return slices.DeleteFunc([]iptables.Interface{r.other, r.chains}, func(in iptables.Interface) bool { return in == nil })
}

// readVariants reads all chains of each variant of iptables.
func (r *rules) readVariants(ctx context.Context) (variants []iptables.Everything, err error) {
	began, follows := r.owner.Now(), false
	for _, t := range r.tables {
		t.note(r.chains)
	}
	for _, in := range r.variants() {
		all, err := in.SaveAll(ctx)
		if err != nil {
			return nil, err
		}
		for _, byName := range all {
			for _, saved := range byName {
				follows = follows || len(ours(saved)) > 0
			}
		}
		variants = append(variants, all)
	}
	for _, t := range r.tables {
		t.have = ours(variants[len(variants)-1][t.family][t.name])
	}
	r.surveyed, r.follows = began, follows
	return variants, nil
}

// write makes our chains hold what is wanted. Only chains that differ from the last write
// are written; each table changes as one.
func (r *rules) write(ctx context.Context, w wanted) error {
	if r.hold(w) {
		return nil
	}
	if first := r.tables[0].want == nil; first && r.owner.Now().Sub(r.surveyed) > surveyFresh {
		if _, err := r.readVariants(ctx); err != nil {
			return err
		}
	}
	r.last = wanted{}
	want := r.render(w)
	for _, t := range r.tables {
		if err := r.writeTable(ctx, t, want[t.family][t.name]); err != nil {
			return err
		}
	}
	r.last = wanted{w.subjects, maps.Clone(w.refused)}
	return nil
}

// hold tells whether the last write was of the same rules, and nothing changed them since.
func (r *rules) hold(w wanted) bool {
	return r.last.subjects != nil && !slices.ContainsFunc(r.tables, func(t *table) bool { return t.have == nil }) &&
		maps.EqualFunc(w.subjects, r.last.subjects, (*dataplane.Subject).SameRules) && maps.EqualFunc(w.refused, r.last.refused, func(_, _ error) bool { return true })
}

// render renders what is wanted, by family and table.
func (r *rules) render(w wanted) map[iptables.Family]map[string]iptables.Chains {
	out, subjects := map[iptables.Family]map[string]iptables.Chains{}, w.subjects.Sorted()
	maps.DeleteFunc(r.kept, func(of podFamily, _ podRules) bool { return w.subjects[of.pod] == nil })
	for _, f := range families {
		out[f] = ruleset{family: f, mark: r.owner.Mark, candidate: r.owner.Candidate, subjects: subjects, kept: r.kept, refused: w.refused}.render()
	}
	return out
}

// writeTable writes one table. If that fails it is tried once more with what the kernel has then, which another
// program may have changed.
func (r *rules) writeTable(ctx context.Context, t *table, want iptables.Chains) error {
	for {
		read := t.have == nil
		if read {
			if err := r.read(ctx, t); err != nil {
				return err
			}
		}
		tx := t.change(want)
		err := r.chains.Restore(ctx, tx)
		if err == nil && !tx.Empty() {
			// Where the kernel does not tell of changes, another program's may have come between
			// the write and the fingerprint: the table is compared soon.
			t.note(r.chains)
			t.unverified = t.unverified || t.fingerprint != ""
		}
		if err == nil {
			t.have, t.want = want, want
			return nil
		}
		if t.have = nil; read {
			return err
		}
	}
}

// read reads what the kernel has of a table.
func (r *rules) read(ctx context.Context, t *table) error {
	t.note(r.chains)
	saved, err := r.chains.Save(ctx, t.family, t.name)
	if err == nil {
		t.have = ours(saved)
	}
	return err
}

// note notes the fingerprint of the table before it is read: later changes show.
func (t *table) note(in iptables.Interface) {
	t.fingerprint, _ = in.Fingerprint(t.family, t.name)
}

// ours picks our chains of a table, and of other chains the rules that lead to ours.
func ours(saved iptables.Chains) iptables.Chains {
	out := iptables.Chains{}
	for name, rules := range saved {
		if ownChain(name) {
			out[name] = rules
			continue
		}
		for _, rule := range rules {
			if ownChain(iptables.Target(rule)) {
				out[name] = append(out[name], rule)
			}
		}
	}
	return out
}

func ownChain(name string) bool { return strings.HasPrefix(name, ChainPrefix) }

// change returns what turns what the kernel has into what is wanted: nothing of other chains but the jumps
// to ours that are wanted, and the rules that lead to chains of ours that are not.
func (t *table) change(want iptables.Chains) *iptables.Transaction {
	tx := iptables.NewTransaction(t.family, t.name)
	for _, name := range slices.Sorted(maps.Keys(want)) {
		rules, there := t.have[name]
		added, only := inserted(rules, want[name])
		switch {
		case !ownChain(name):
			for _, jump := range want[name] {
				if !slices.Contains(rules, jump) {
					tx.Insert(name, jump)
				}
			}
		case there && only:
			for _, i := range added {
				tx.InsertAt(name, i+1, want[name][i])
			}
		default:
			tx.Replace(name, want[name]...)
		}
	}
	gone := func(chain string) bool { _, wanted := want[chain]; return !wanted }
	for _, name := range slices.Sorted(maps.Keys(t.have)) {
		if ownChain(name) && gone(name) {
			tx.Delete(name)
		}
		for _, rule := range t.have[name] {
			if !ownChain(name) && gone(iptables.Target(rule)) {
				tx.Remove(name, rule)
			}
		}
	}
	return tx
}

// inserted returns which rules of a chain that is wanted are to be inserted into one that is
// there, from the top down, and whether nothing else differs. After a transaction that removes
// a rule from nftables, iptables-restore waits for RCU grace periods of the kernel.
func inserted(there, want []string) (added []int, only bool) {
	same := 0
	for i, rule := range want {
		if same < len(there) && there[same] == rule {
			same++
		} else {
			added = append(added, i)
		}
	}
	return added, same == len(there)
}

// suspects returns the tables whose fingerprint has changed, and at times those that were
// written and not compared since: a change right after a write shows in no fingerprint.
func (r *rules) suspects() (out []*table) {
	unverifiedToo := !time.Now().Before(r.nextReading)
	for _, t := range r.tables {
		now, err := r.chains.Fingerprint(t.family, t.name)
		if t.want != nil && (err == nil && now != t.fingerprint || unverifiedToo && t.unverified) {
			out = append(out, t)
		}
	}
	return out
}

// verify reads the tables that may have been changed, or all, and returns those of which
// something of ours is not as written. The next write of such a table starts from what is there then.
func (r *rules) verify(ctx context.Context, all bool) (out []*table, err error) {
	read := r.suspects()
	if all {
		read = slices.DeleteFunc(slices.Clone(r.tables), func(t *table) bool { return t.want == nil })
	}
	if len(read) == 0 {
		return nil, nil
	}
	began := time.Now()
	for _, t := range read {
		if err := r.read(ctx, t); err != nil {
			return out, err
		}
		if t.unverified = !t.change(t.want).Empty(); t.unverified {
			t.have = nil
			out = append(out, t)
		}
	}
	r.nextReading = time.Now().Add(min(readingShare*time.Since(began), readingPause))
	return out, nil
}

// The chains that an earlier agent wrote by the other variant of iptables stay in force until
// this agent's rules are, and are removed then: two agents' rules together deny what either
// denies.

// removeStale removes the chains of the other variant. Until it has succeeded once, the sets of
// these chains cannot be destroyed.
func (r *rules) removeStale(ctx context.Context) error {
	if r.other == nil {
		return nil
	}
	err := removeFrom(ctx, r.other)
	if err == nil {
		r.other = nil
	}
	return err
}

// removeAll removes our chains, and the jumps to them, from all tables of each variant.
// It continues after an error and returns the first.
func (r *rules) removeAll(ctx context.Context) (first error) {
	for _, in := range r.variants() {
		if err := removeFrom(ctx, in); err != nil && first == nil {
			first = err
		}
	}
	return first
}

func removeFrom(ctx context.Context, in iptables.Interface) error {
	all, err := in.SaveAll(ctx)
	if err != nil {
		return err
	}
	for _, f := range families {
		for _, name := range slices.Sorted(maps.Keys(all[f])) {
			t := table{family: f, name: name, have: ours(all[f][name])}
			if err := in.Restore(ctx, t.change(nil)); err != nil {
				return err
			}
		}
	}
	return nil
}

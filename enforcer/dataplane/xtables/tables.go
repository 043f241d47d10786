package xtables

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/kernel/iptables"
	"github.com/namegate/namegate/policy"
)

// Table is one table of a family.
type Table struct {
	Family iptables.Family
	Name   string
}

func (t Table) String() string { return fmt.Sprintf("%v %s chains", t.Family, t.Name) }

// wanted is what the rules of all tables are made of.
type wanted struct {
	subjects dataplane.Subjects
	// refused are the port sets whose grant set the kernel does not take: no rule asks them.
	refused map[policy.PodRef]map[policy.PortSet]bool
}

// rules is our chains in all tables, and the jumps to them.
type rules struct {
	chains iptables.Interface
	// other is the other variant of iptables, nil where the node has none: nothing is
	// written there, and the chains that an earlier agent left there are removed.
	other iptables.Interface
	// mark and candidate are the bits that Owner has.
	mark, candidate uint32
	now             func() time.Time

	written  map[Table]iptables.Chains // as wanted when last written
	expected map[Table]iptables.Chains // as the kernel is to print them, with the jumps to them
	// fingerprints of the tables were taken before the tables were read or written.
	fingerprints map[Table]string
	unverified   map[Table]bool // written and not compared since
	nextReading  time.Time      // when these may be read, so that reading takes a bounded share of a core
	// last is what written was made of; rendered are its rules by subject.
	last     wanted
	rendered map[iptables.Family]map[policy.PodRef]subjectRules

	survey  survey // by readVariants, until the first write
	follows bool   // an earlier agent has chains here, as readVariants found
	removed bool   // the other variant has nothing of an earlier agent
}

// survey is the chains of each variant of iptables, the one that is written last.
type survey struct {
	at     time.Time
	chains []iptables.Everything
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
	return &rules{
		chains: chains, other: other, mark: owner.Mark, candidate: owner.Candidate, now: owner.Now,
		written: map[Table]iptables.Chains{}, expected: map[Table]iptables.Chains{}, fingerprints: map[Table]string{}, unverified: map[Table]bool{},
		rendered: map[iptables.Family]map[policy.PodRef]subjectRules{iptables.IPv4: {}, iptables.IPv6: {}},
	}
}

// variants are the places in which our chains may be, the one to write to last.
func (r *rules) variants() []iptables.Interface {
	return slices.DeleteFunc([]iptables.Interface{r.other, r.chains}, func(in iptables.Interface) bool { return in == nil })
}

// readVariants reads all chains of each variant of iptables.
func (r *rules) readVariants(ctx context.Context) (_ []iptables.Everything, err error) {
	r.survey, err = r.readAll(ctx)
	r.follows = slices.ContainsFunc(r.survey.chains, holdOurs)
	return r.survey.chains, err
}

func (r *rules) readAll(ctx context.Context) (survey, error) {
	found := survey{at: r.now()}
	for _, name := range tables {
		for _, f := range families {
			r.noteFingerprint(Table{f, name})
		}
	}
	for _, in := range r.variants() {
		all, err := in.SaveAll(ctx)
		if err != nil {
			return survey{}, err
		}
		found.chains = append(found.chains, all)
	}
	return found, nil
}

// write makes our chains hold what is wanted. Only chains that differ from the last write
// are written; each table changes as one.
func (r *rules) write(ctx context.Context, w wanted) error {
	if r.hold(w) {
		return nil
	}
	r.last = wanted{}
	want := r.render(w)
	there := iptables.Everything{}
	if len(r.written) == 0 {
		var err error
		if there, err = r.surveyed(ctx); err != nil {
			return err
		}
	}
	for _, name := range tables {
		for _, f := range families {
			t := Table{f, name}
			if err := r.writeTable(ctx, t, want[t], there[f]); err != nil {
				return err
			}
		}
	}
	r.last = wanted{dataplane.Subjects{}, maps.Clone(w.refused)}
	for ref, s := range w.subjects {
		was := *s
		r.last.subjects[ref] = &was
	}
	return nil
}

// hold tells whether the last write was of the same rules.
func (r *rules) hold(w wanted) bool {
	if len(r.written) < len(tables)*len(families) || r.last.subjects == nil || len(w.subjects) != len(r.last.subjects) ||
		!maps.EqualFunc(w.refused, r.last.refused, maps.Equal) {
		return false
	}
	for ref, s := range w.subjects {
		if was := r.last.subjects[ref]; was == nil || !s.SameRules(was) {
			return false
		}
	}
	return true
}

// render renders what is wanted.
func (r *rules) render(w wanted) map[Table]iptables.Chains {
	out := map[Table]iptables.Chains{}
	subjects := w.subjects.Sorted()
	for _, f := range families {
		kept := r.rendered[f]
		maps.DeleteFunc(kept, func(ref policy.PodRef, _ subjectRules) bool { return w.subjects[ref] == nil })
		set := ruleset{family: f, mark: r.mark, candidate: r.candidate, subjects: subjects, kept: kept, missing: w.refused}
		for name, chains := range set.render() {
			out[Table{f, name}] = chains
		}
	}
	return out
}

// surveyed returns the chains of every table, from readVariants where that is fresh.
func (r *rules) surveyed(ctx context.Context) (iptables.Everything, error) {
	last := r.survey
	r.survey = survey{}
	if last.chains == nil || r.now().Sub(last.at) > surveyFresh {
		var err error
		if last, err = r.readAll(ctx); err != nil {
			return nil, err
		}
	}
	return last.chains[len(last.chains)-1], nil
}

// writeTable writes one table; there are the chains of the family's tables, nil if they have
// not been read just now.
func (r *rules) writeTable(ctx context.Context, t Table, want iptables.Chains, there map[string]iptables.Chains) error {
	written, known := r.written[t]
	if !known {
		written = there[t.Name]
		if there == nil {
			r.noteFingerprint(t)
			var err error
			if written, err = r.chains.Save(ctx, t.Family, t.Name); err != nil {
				return err
			}
		}
	}
	tx := iptables.NewTransaction(t.Family, t.Name)
	for _, name := range slices.Sorted(maps.Keys(want)) {
		rules, there := written[name]
		added, only := inserted(rules, want[name])
		if !there || !only || !known && len(added) > 0 {
			tx.Replace(name, want[name]...)
			continue
		}
		for _, i := range added {
			tx.InsertAt(name, i+1, want[name][i])
		}
	}
	if known {
		for _, name := range slices.Sorted(maps.Keys(written)) {
			if _, keep := want[name]; !keep {
				tx.Delete(name)
			}
		}
	} else {
		missing(tx, t, want, written)
	}
	if tx.Empty() {
		if !known {
			r.wrote(t, want)
		}
		return nil
	}
	if err := r.chains.Restore(ctx, tx); err != nil {
		delete(r.written, t)
		if known || there != nil { // another program may have changed what was there
			return r.writeTable(ctx, t, want, nil)
		}
		return err
	}
	r.noteFingerprint(t)
	r.wrote(t, want)
	return nil
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

// wrote notes what a table holds now. Where the kernel does not tell of changes, another
// program's may have come between the write and the fingerprint: the table is compared soon.
func (r *rules) wrote(t Table, want iptables.Chains) {
	r.written[t], r.expected[t] = want, printed(t, want)
	if last, noted := r.fingerprints[t]; !noted || last != "" {
		r.unverified[t] = true
	}
}

// noteFingerprint notes the fingerprint of a table before it is read: later changes show.
func (r *rules) noteFingerprint(t Table) {
	fingerprint, err := r.chains.Fingerprint(t.Family, t.Name)
	if err != nil {
		delete(r.fingerprints, t)
		return
	}
	r.fingerprints[t] = fingerprint
}

// suspects returns the tables whose fingerprint has changed, and at times those that were
// written and not compared since: a change right after a write shows in no fingerprint.
func (r *rules) suspects() (out []Table) {
	unverifiedToo := !time.Now().Before(r.nextReading)
	for t := range r.expected {
		was, noted := r.fingerprints[t]
		now, err := r.chains.Fingerprint(t.Family, t.Name)
		if err == nil && noted && now != was || unverifiedToo && r.unverified[t] {
			out = append(out, t)
		}
	}
	return out
}

// verify reads the tables that may have been changed, or all, and returns those whose
// chains of ours, or jumps to them, are not as written. The next Write of such a table
// starts from what is there then.
func (r *rules) verify(ctx context.Context, all bool) (out []Table, err error) {
	read := r.suspects()
	if all {
		read = slices.Collect(maps.Keys(r.expected))
	}
	if len(read) == 0 {
		return nil, nil
	}
	began := time.Now()
	slices.SortFunc(read, func(a, b Table) int {
		return cmp.Or(int(a.Family)-int(b.Family), strings.Compare(a.Name, b.Name))
	})
	for _, t := range read {
		r.noteFingerprint(t)
		saved, err := r.chains.Save(ctx, t.Family, t.Name)
		if err != nil {
			return out, err
		}
		if maps.EqualFunc(ours(t, saved), r.expected[t], slices.Equal) {
			delete(r.unverified, t)
			continue
		}
		r.unverified[t] = true
		delete(r.written, t)
		out = append(out, t)
	}
	r.nextReading = time.Now().Add(min(readingShare*time.Since(began), readingPause))
	return out, nil
}

// printed is how the kernel is to print a table's chains, and the jumps to them: as they
// were written, which is so with every iptables that was tried.
func printed(t Table, want iptables.Chains) iptables.Chains {
	out := maps.Clone(want)
	for _, h := range hooks {
		if h.table == t.Name {
			out[h.chain] = append(out[h.chain], "-j "+h.to)
		}
	}
	return out
}

// missing adds to a transaction what a table needs of which nothing is known:
// the jumps to our chains, and the end of chains of ours that are not wanted and of the
// rules that lead to them.
func missing(tx *iptables.Transaction, t Table, want, there iptables.Chains) {
	remove(tx, there, func(chain string) bool { _, keep := want[chain]; return keep })
	for _, h := range hooks {
		if h.table == t.Name && !slices.Contains(there[h.chain], "-j "+h.to) {
			tx.Insert(h.chain, "-j "+h.to)
		}
	}
}

// ours picks our chains of a table, and of built-in chains the jumps to them.
func ours(t Table, all iptables.Chains) iptables.Chains {
	out := iptables.Chains{}
	for name, rules := range all {
		if strings.HasPrefix(name, ChainPrefix) {
			out[name] = rules
		}
	}
	for _, h := range hooks {
		if jump := "-j " + h.to; h.table == t.Name && slices.Contains(all[h.chain], jump) {
			out[h.chain] = append(out[h.chain], jump)
		}
	}
	return out
}

package enforcer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/enforcer/plan"
	"github.com/namegate/namegate/kernel/ipset"
	"github.com/namegate/namegate/kernel/iptables"
	"github.com/namegate/namegate/policy"
)

// Prepare makes the kernel ready for a snapshot without denying or taking back
// anything yet: the sets and chains of every pod of the last snapshot and of
// this one are in force, and grants of either are taken. Between Prepare and
// Commit the caller lets the proxy decide by the new snapshot. On an error the
// kernel holds a part of it; Prepare may be called again, with any snapshot.
func (e *Enforcer) Prepare(ctx context.Context, s *policy.Snapshot) error {
	e.apply.Lock()
	defer e.apply.Unlock()
	abandoned := e.coming
	e.coming = s
	if e.preparePeers(s) {
		return nil
	}
	e.whole = false
	e.findHomes(s)
	e.lists.Prune()
	next := e.planOf(s)
	another := abandoned != e.snapshot && abandoned != s
	if another {
		e.abandon(e.planOf(abandoned), next)
	}
	subjects := plan.Union(e.plan, next, e.closed)
	if err := e.readySets(subjects); err != nil {
		return e.close(ctx, next, fmt.Errorf("prepare sets: %w", err))
	}
	// The first snapshot of this agent: the chains of an earlier one stay in force
	// until Commit replaces them, table by table.
	if e.snapshot != nil || !e.follows {
		if err := errors.Join(e.writeStatic(subjects, ahead), e.writeChains(ctx, subjects)); err != nil {
			return e.close(ctx, next, fmt.Errorf("prepare chains: %w", err))
		}
	}
	if another {
		e.destroyPeers(subjects)
	}
	if err := e.carryOver(s); err != nil {
		return e.close(ctx, next, fmt.Errorf("prepare grants: %w", err))
	}
	return nil
}

// abandon notes what a snapshot allowed that was prepared and never came into force: what
// was opened by that, and the next does not allow, is taken back with it.
func (e *Enforcer) abandon(subjects, next dataplane.Subjects) {
	e.gone = append(e.gone, plan.Gone(subjects, next)...)
	for ref, p := range subjects {
		if n := next[ref]; n != nil && !p.Peers.Within(n.Peers) {
			e.rejudge[ref] = true
		}
	}
}

// close brings into force who is default-deny in a coming plan, and nothing else
// of it: its pods must not stay open for as long as it cannot be prepared or committed.
// They stay closed until a Commit brings their part of a snapshot into force. It returns
// the reason, with what failed in closing.
func (e *Enforcer) close(ctx context.Context, next dataplane.Subjects, reason error) error {
	e.doubtful = true
	for ref := range next {
		e.closed[ref] = true
	}
	subjects := plan.Union(e.plan, next, e.closed)
	return errors.Join(reason, e.writeStatic(subjects, beforeChains), e.k.Tables.Apply(ctx, e.tablesState(subjects)))
}

// Commit brings the prepared snapshot into force: first who is default-deny and
// where it is at home, then what each pod may do, then interception; at last it
// takes back what the snapshot does not allow any more and cuts what that had
// opened.
func (e *Enforcer) Commit(ctx context.Context) error {
	_, err := e.CommitPart(ctx, nil)
	return err
}

// CommitPart is Commit, after which pods of waiting that were not default-deny before are
// not yet: what is prepared for them stays ready, and the next Commit may bring it into
// force. It returns the snapshot that is in force, nil before the first; nobody waits
// for that one, since an earlier agent may have isolated the pods already.
func (e *Enforcer) CommitPart(ctx context.Context, waiting map[policy.PodRef]bool) (*policy.Snapshot, error) {
	e.apply.Lock()
	defer e.apply.Unlock()
	s := e.coming
	if e.snapshot != nil {
		s = s.Defer(e.snapshot, waiting)
	}
	err := e.commit(ctx, s)
	return e.snapshot, err
}

// commit brings a snapshot into force: what is coming, or a part of that.
func (e *Enforcer) commit(ctx context.Context, s *policy.Snapshot) error {
	if e.alone {
		e.alone, e.whole = false, false
		return e.commitPeers()
	}
	written, err := e.bringIntoForce(ctx, s)
	if err != nil {
		return e.close(ctx, e.planOf(e.coming), err)
	}
	if err := e.leave(ctx); err != nil {
		return fmt.Errorf("remove what an earlier agent left elsewhere: %w", err)
	}
	if err := e.dropSets(written); err != nil {
		return err
	}
	if err := e.dropPeers(written); err != nil {
		return err
	}
	if err := e.destroyFound(); err != nil {
		return err
	}
	err = e.settleDebts()
	e.whole = e.whole && s == e.coming
	return err
}

// bringIntoForce is commit but for the rights and sets that are taken back at last. It
// returns what was written: the plan, and what Prepare made ready beside it. After an
// error the last snapshot is in force still.
func (e *Enforcer) bringIntoForce(ctx context.Context, s *policy.Snapshot) (dataplane.Subjects, error) {
	last := e.plan
	e.findHomes(e.coming)
	subjects := e.planOf(s)
	if err := e.forgetStrangers(subjects); err != nil {
		return nil, err
	}
	if err := e.admitOpen(last, subjects); err != nil {
		return nil, err
	}
	gone := plan.Gone(last, subjects)
	e.rejudgeLess(last, subjects)
	e.rejudgeLeft(subjects)
	written := e.beside(s, subjects)
	if err := e.owe(slices.Concat(gone, e.gone, e.rejudgedAddrs(written))); err != nil {
		return nil, err
	}
	e.known = plan.Known(s)
	if err := e.write(ctx, written); err != nil {
		return nil, err
	}
	e.gone = append(e.gone, gone...)
	e.snapshot, e.plan, e.inherited = s, subjects, inheritance{}
	// Pods that a failure closed stay closed until they are committed too.
	maps.DeleteFunc(e.closed, func(ref policy.PodRef, _ bool) bool {
		return s == e.coming || subjects[ref] != nil && subjects[ref].Isolated
	})
	return written, nil
}

// write makes sets, nets, chains and interception hold a plan.
func (e *Enforcer) write(ctx context.Context, plan dataplane.Subjects) (err error) {
	defer func() { e.doubtful = e.doubtful || err != nil }()
	if err := e.readySets(plan); err != nil {
		return fmt.Errorf("write sets: %w", err)
	}
	if err := e.writeStatic(plan, beforeChains); err != nil {
		return fmt.Errorf("write sets: %w", err)
	}
	if err := e.writeChains(ctx, plan); err != nil {
		return errors.Join(fmt.Errorf("write chains: %w", err), e.k.Tables.Apply(ctx, e.tablesState(plan)))
	}
	if err := e.writeStatic(plan, afterChains); err != nil {
		return fmt.Errorf("write sets: %w", err)
	}
	return e.k.Tables.Apply(ctx, e.tablesState(plan))
}

// phase is when the sets that are always there are written.
type phase uint8

const (
	ahead phase = iota // while a snapshot is prepared
	beforeChains
	afterChains
)

// due tells what of a set is written in a phase: where an address is at home is
// known before the chains that ask, and for as long as they do; who is judged by them
// before any answer by a snapshot leaves, which its pod may use before it is selected.
func (p phase) due(set string) (add, remove bool) {
	if p == ahead {
		return strings.HasSuffix(set, setJudged), false
	}
	if strings.HasSuffix(set, setHome) {
		return p == beforeChains, p == afterChains
	}
	return p == beforeChains, p == beforeChains
}

// writeStatic makes the sets that are always there hold a plan, as a delta to
// what the kernel says they hold.
func (e *Enforcer) writeStatic(plan dataplane.Subjects, now phase) error {
	e.noteResolvers()
	for name, want := range e.staticEntries(plan) {
		add, remove := now.due(name)
		if !add && !remove {
			continue
		}
		delete(e.holds, name)
		have, err := e.k.Sets.List(name)
		if err != nil {
			return err
		}
		surplus := map[ipset.Entry]bool{}
		for _, h := range have {
			surplus[h.Key()] = true
		}
		var missing []ipset.Entry
		wanted := map[ipset.Entry]bool{}
		for _, w := range want {
			wanted[w.Key()] = true
			if !surplus[w.Key()] {
				missing = append(missing, w)
			}
			delete(surplus, w.Key())
		}
		if add {
			if err := e.k.Sets.Add(name, missing...); err != nil {
				return err
			}
		}
		if remove {
			if err := e.k.Sets.Delete(name, slices.Collect(maps.Keys(surplus))...); err != nil {
				return err
			}
			e.holds[name] = len(wanted)
		}
	}
	return nil
}

// writeChains makes our chains hold a plan. Only chains that differ from what
// was last written are written; each table changes as one.
func (e *Enforcer) writeChains(ctx context.Context, plan dataplane.Subjects) error {
	if e.chainsHold(plan) {
		return nil
	}
	clear(e.chained)
	wanted := e.wantedChains(plan)
	there := iptables.Everything{}
	if len(e.chains) == 0 {
		var err error
		if there, err = e.allChains(ctx); err != nil {
			return err
		}
		e.strays = stray(there)
	}
	for _, table := range tables {
		for _, f := range ipVersions {
			key := chainsKey{f, table}
			if err := e.writeTable(ctx, key, wanted[key], there[f]); err != nil {
				return err
			}
		}
	}
	for ref, p := range plan {
		e.chained[ref] = *p
	}
	e.chainedRefused, e.chainedMissing = maps.Clone(e.refusedPeers), maps.Clone(e.missing)
	return nil
}

// chainsHold tells whether the chains that were written last are a plan's: nearly always
// where only the members of peers changed.
func (e *Enforcer) chainsHold(plan dataplane.Subjects) bool {
	if len(e.chains) < len(tables)*len(ipVersions) || len(plan) != len(e.chained) || !maps.Equal(e.refusedPeers, e.chainedRefused) || !maps.EqualFunc(e.missing, e.chainedMissing, maps.Equal) {
		return false
	}
	for ref, p := range plan {
		if was, there := e.chained[ref]; !there || !p.SameRules(&was) {
			return false
		}
	}
	return true
}

// allChains reads every table, unless that was done a moment ago.
func (e *Enforcer) allChains(ctx context.Context) (iptables.Everything, error) {
	last := e.surveyed
	e.surveyed = surveyed{}
	if last.chains == nil || e.now().Sub(last.at) > surveyFresh {
		var err error
		if last, err = e.survey(ctx); err != nil {
			return nil, err
		}
	}
	return last.chains[len(last.chains)-1], nil
}

// writeTable writes one table; there are the chains of the family's tables, nil if
// they have not been read just now.
func (e *Enforcer) writeTable(ctx context.Context, key chainsKey, want iptables.Chains, there map[string]iptables.Chains) error {
	written, known := e.chains[key]
	if !known {
		written = there[key.table]
		if there == nil {
			e.noteFingerprint(key)
			var err error
			if written, err = e.k.Chains.Save(ctx, key.family, key.table); err != nil {
				return err
			}
		}
	}
	tx := iptables.NewTransaction(key.family, key.table)
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if rules, there := written[name]; !there || !slices.Equal(rules, want[name]) {
			tx.Replace(name, want[name]...)
		}
	}
	if known {
		for _, name := range slices.Sorted(maps.Keys(written)) {
			if _, keep := want[name]; !keep {
				tx.Delete(name)
			}
		}
	} else {
		missing(tx, key, want, written)
	}
	if tx.Empty() {
		if !known {
			e.wrote(key, want)
		}
		return nil
	}
	if err := e.k.Chains.Restore(ctx, tx); err != nil {
		delete(e.chains, key)
		if known || there != nil { // another program may have changed what was there
			return e.writeTable(ctx, key, want, nil)
		}
		return err
	}
	e.noteFingerprint(key)
	e.wrote(key, want)
	return nil
}

// wrote notes what a table holds now. Where the kernel does not tell of changes, another
// program's may have come between the write and the fingerprint: the table is compared soon.
func (e *Enforcer) wrote(key chainsKey, want iptables.Chains) {
	e.chains[key], e.expected[key] = want, printed(key, want)
	if last, noted := e.fingerprints[key]; !noted || last != "" {
		e.unverified[key] = true
	}
}

// printed is how the kernel is to print a table's chains, and the jumps to them: as they
// were written, which is so with every iptables that was tried.
func printed(key chainsKey, want iptables.Chains) iptables.Chains {
	out := maps.Clone(want)
	for _, h := range hooks {
		if h.table == key.table {
			out[h.chain] = append(out[h.chain], "-j "+h.to)
		}
	}
	return out
}

func sameChains(a, b iptables.Chains) bool { return maps.EqualFunc(a, b, slices.Equal) }

// noteFingerprint notes the fingerprint of a table before it is read: later changes show.
func (e *Enforcer) noteFingerprint(key chainsKey) {
	fingerprint, err := e.k.Chains.Fingerprint(key.family, key.table)
	if err != nil {
		delete(e.fingerprints, key)
		return
	}
	e.fingerprints[key] = fingerprint
}

// missing adds to a transaction what a table needs of which nothing is known:
// the jumps to our chains, and the end of chains of ours that nobody wants and of what
// leads to them.
func missing(tx *iptables.Transaction, key chainsKey, want, there iptables.Chains) {
	remove(tx, there, func(chain string) bool { _, keep := want[chain]; return keep })
	for _, h := range hooks {
		if h.table == key.table && !slices.Contains(there[h.chain], "-j "+h.to) {
			tx.Insert(h.chain, "-j "+h.to)
		}
	}
}

// ours picks our chains of a table, and of built-in chains the jumps to them.
func ours(key chainsKey, all iptables.Chains) iptables.Chains {
	out := iptables.Chains{}
	for name, rules := range all {
		if strings.HasPrefix(name, chainPrefix) {
			out[name] = rules
		}
	}
	for _, h := range hooks {
		if jump := "-j " + h.to; h.table == key.table && slices.Contains(all[h.chain], jump) {
			out[h.chain] = append(out[h.chain], jump)
		}
	}
	return out
}

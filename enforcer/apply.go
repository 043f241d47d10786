package enforcer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/namegate/namegate/enforcer/ipset"
	"github.com/namegate/namegate/enforcer/iptables"
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
	e.coming = s
	e.findHomes(s)
	next := planOf(s, e.homes, e.unseen)
	plan := union(e.plan, next, false)
	err := e.readySets(plan)
	if err != nil {
		return e.close(ctx, next, fmt.Errorf("prepare sets: %w", err))
	}
	if e.snapshot == nil {
		// The first snapshot of this agent: the chains of an earlier one stay
		// in force until Commit replaces them, table by table.
		return e.carryOver(s)
	}
	if err := e.writeChains(ctx, plan); err != nil {
		return e.close(ctx, next, fmt.Errorf("prepare chains: %w", err))
	}
	e.closing = false
	return e.carryOver(s)
}

// close brings into force who is default-deny in a coming plan, and nothing else
// of it: its pods must not stay open for as long as it cannot be prepared. It
// returns the reason, with what failed in closing.
func (e *Enforcer) close(ctx context.Context, next map[policy.PodRef]*podPlan, reason error) error {
	e.closing = true
	plan := union(e.plan, next, true)
	return errors.Join(reason, e.writeStatic(plan, beforeChains), e.k.Tables.Apply(ctx, e.tablesState(plan)))
}

// Commit brings the prepared snapshot into force: first who is default-deny and
// where it is at home, then what each pod may do, then interception; at last it
// takes back what the snapshot does not allow any more and cuts what that had
// opened.
func (e *Enforcer) Commit(ctx context.Context) error {
	e.apply.Lock()
	defer e.apply.Unlock()
	last := e.plan
	e.findHomes(e.coming)
	plan := planOf(e.coming, e.homes, e.unseen)
	e.known = knownAddrs(e.coming)
	if err := e.forgetStrangers(plan); err != nil {
		return err
	}
	if err := e.admitOpen(last, plan); err != nil {
		return err
	}
	if err := e.write(ctx, plan); err != nil {
		return err
	}
	e.gone = append(e.gone, goneAddrs(last, plan)...)
	e.snapshot, e.plan, e.inherited = e.coming, plan, inheritance{}
	if err := e.dropSets(plan); err != nil {
		return err
	}
	if err := e.cut(e.rejudge); err != nil {
		return err
	}
	clear(e.rejudge)
	if err := e.forget(e.gone); err != nil {
		return err
	}
	e.gone = nil
	return nil
}

// write makes sets, nets, chains and interception hold a plan.
func (e *Enforcer) write(ctx context.Context, plan map[policy.PodRef]*podPlan) error {
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

func knownAddrs(s *policy.Snapshot) []netip.Addr {
	var out []netip.Addr
	for _, p := range s.Pods() {
		if p.Local() && !p.HostNetwork {
			out = append(out, p.IPs...)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}

// phase is when the sets that are always there are written.
type phase uint8

const (
	beforeChains phase = iota
	afterChains
)

// due tells what of a set is written in a phase: where an address is at home is
// known before the chains that ask, and for as long as they do.
func (p phase) due(set string) (add, remove bool) {
	if strings.HasSuffix(set, setHome) {
		return p == beforeChains, p == afterChains
	}
	return p == beforeChains, p == beforeChains
}

// writeStatic makes the sets that are always there hold a plan, as a delta to
// what the kernel says they hold.
func (e *Enforcer) writeStatic(plan map[policy.PodRef]*podPlan, now phase) error {
	for name, want := range e.staticEntries(plan) {
		add, remove := now.due(name)
		if !add && !remove {
			continue
		}
		have, err := e.k.Sets.List(name)
		if err != nil {
			return err
		}
		surplus := map[ipset.Entry]bool{}
		for _, h := range have {
			surplus[h.Key()] = true
		}
		var missing []ipset.Entry
		for _, w := range want {
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
		}
	}
	return nil
}

// writeChains makes our chains hold a plan. Only chains that differ from what
// was last written are written; each table changes as one.
func (e *Enforcer) writeChains(ctx context.Context, plan map[policy.PodRef]*podPlan) error {
	wanted := e.wantedChains(plan)
	for _, table := range tables {
		for _, f := range ipVersions {
			key := chainsKey{f, table}
			if err := e.writeTable(ctx, key, wanted[key]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (e *Enforcer) writeTable(ctx context.Context, key chainsKey, want iptables.Chains) error {
	written, known := e.chains[key]
	var there iptables.Chains
	if !known {
		var err error
		if there, err = e.k.Chains.Save(ctx, key.family, key.table); err != nil {
			return err
		}
	}
	tx := iptables.NewTransaction(key.family, key.table)
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if rules, same := written[name]; !same || !slices.Equal(rules, want[name]) {
			tx.Replace(name, want[name]...)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(written)) {
		if _, keep := want[name]; !keep {
			tx.Delete(name)
		}
	}
	if !known {
		missing(tx, key, want, there)
	}
	if tx.Empty() {
		return nil
	}
	if err := e.k.Chains.Restore(ctx, tx); err != nil {
		delete(e.chains, key)
		return err
	}
	e.glanceAt(key)
	saved, err := e.k.Chains.Save(ctx, key.family, key.table)
	if err != nil {
		return err
	}
	e.chains[key], e.seen[key] = want, ours(key, saved)
	return nil
}

// glanceAt notes how a table looks before it is read: what is changed after shows.
func (e *Enforcer) glanceAt(key chainsKey) {
	look, err := e.k.Chains.Glance(key.family, key.table)
	if err != nil {
		delete(e.glances, key)
		return
	}
	e.glances[key] = look
}

// missing adds to a transaction what a table needs of which nothing is known:
// the jumps to our chains, and the end of chains of ours that nobody wants.
func missing(tx *iptables.Transaction, key chainsKey, want, there iptables.Chains) {
	for _, name := range slices.Sorted(maps.Keys(there)) {
		if _, keep := want[name]; !keep && strings.HasPrefix(name, chainPrefix) {
			tx.Delete(name)
		}
	}
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

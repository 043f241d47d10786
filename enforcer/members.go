package enforcer

import (
	"maps"
	"slices"
	"time"

	"github.com/namegate/namegate/enforcer/dataplane/xtables"
	"github.com/namegate/namegate/kernel/ipset"
)

// membersDiffer compares the members of the sets whose turn it is, and notes those that
// deviate: a member that was exchanged for another shows in no size. How many sets have
// their turn depends on how long they take.
func (e *Enforcer) membersDiffer() bool {
	began := time.Now()
	e.turns.begin(e)
	var static, peers, grants int
	plan := e.inForce()
	wanted := map[string][]ipset.Entry(nil)
	for range e.turns.each {
		switch {
		case len(e.turns.static) > 0:
			if wanted == nil {
				wanted = e.staticEntries(plan)
			}
			s := e.turns.static[0]
			e.turns.static = e.turns.static[1:]
			if d, err := e.compareStatic(s, wanted[s.Name]); err == nil && d.any() {
				static++
			}
		case len(e.turns.peers) > 0:
			s := e.turns.peers[0]
			e.turns.peers = e.turns.peers[1:]
			if e.peers[s.key] != s || s.refused {
				continue
			}
			if d, err := e.comparePeers(s); err == nil && d.any() {
				e.differing.peers[s], peers = true, peers+1
			}
		case len(e.turns.grants) > 0:
			s := e.turns.grants[0]
			e.turns.grants = e.turns.grants[1:]
			if d, err := e.compareGrants(s); err == nil && d.any() {
				e.differing.grants[s], grants = true, grants+1
			}
		}
	}
	e.turns.took(began, time.Since(began))
	return static+peers+grants > 0
}

// turns are the sets whose members are still to be compared in this round, how many are
// at a time, and when the next ones are.
type turns struct {
	static []ipset.Set
	peers  []*peerSet
	grants []*grantSet
	each   int
	next   time.Time
}

// turnsLeast and turnsMost bound how many sets are compared at a glance. turnsPause
// bounds the pause until the next one.
const (
	turnsLeast = 4
	turnsMost  = 1024
	turnsPause = time.Second
)

// begin starts a round when the last one is over.
func (t *turns) begin(e *Enforcer) {
	t.each = max(t.each, turnsLeast)
	if len(t.static)+len(t.peers)+len(t.grants) > 0 {
		return
	}
	t.static = xtables.StaticSets()
	t.peers = slices.AppendSeq(t.peers, maps.Values(e.peers))
	for _, p := range *e.grants.pods.Load() {
		t.grants = slices.AppendSeq(t.grants, p.all())
	}
}

// took adapts how many sets are compared at a glance, so that glances take about one part
// in glanceShare of a core. After a few sets that take long, as large ones do, there is a
// pause.
func (t *turns) took(began time.Time, d time.Duration) {
	t.next = time.Time{}
	if d > glanceEvery/glanceShare && t.each <= turnsLeast {
		t.next = began.Add(min(glanceShare*d, turnsPause))
	}
	switch share := glanceEvery / glanceShare; {
	case d > share:
		t.each = max(t.each/2, turnsLeast)
	case d < share/2:
		t.each = min(t.each*2, turnsMost)
	}
}

// differing are sets whose members a glance showed to deviate.
type differing struct {
	peers  map[*peerSet]bool
	grants map[*grantSet]bool
}

// compareStatic compares one of these sets. While a plan is being written it may hold
// more than that wants.
func (e *Enforcer) compareStatic(s ipset.Set, want []ipset.Entry) (memberDifference, error) {
	_, complete := e.holds[s.Name]
	return e.compareSet(s, want, func(ipset.Entry) bool { return complete })
}

// compareSet compares the header and the members of a set; strange tells which of the
// members that are not wanted are surplus.
func (e *Enforcer) compareSet(header ipset.Set, want []ipset.Entry, strange func(ipset.Entry) bool) (memberDifference, error) {
	is, have, err := e.k.Sets.Read(header.Name)
	if ipset.IsNotFound(err) {
		return memberDifference{gone: true, missing: want}, nil
	}
	if err != nil {
		return memberDifference{}, err
	}
	d := difference(have, want, strange)
	d.foreign = is.Type != header.Type || is.IPv6 != header.IPv6 || is.Timeout != header.Timeout || is.Comment != header.Comment
	return d, nil
}

// memberDifference is how a set in the kernel differs from the wanted one.
type memberDifference struct {
	gone    bool          // there is no such set
	foreign bool          // it has another header, as after a swap
	missing []ipset.Entry // as they are to be added
	changed []ipset.Entry // with another comment, as they are to be
	surplus []ipset.Entry
}

func (d *memberDifference) any() bool {
	return d.gone || d.foreign || len(d.missing)+len(d.changed)+len(d.surplus) > 0
}

// difference compares members and their comments. What is there and not wanted is surplus
// if strange says so.
func difference(have, want []ipset.Entry, strange func(ipset.Entry) bool) (d memberDifference) {
	there := map[ipset.Entry]string{}
	for _, h := range have {
		there[h.Key()] = h.Comment
	}
	wanted := map[ipset.Entry]bool{}
	for _, w := range want {
		wanted[w.Key()] = true
		switch comment, ok := there[w.Key()]; {
		case !ok:
			d.missing = append(d.missing, w)
		case comment != w.Comment:
			d.changed = append(d.changed, w)
		}
	}
	for h := range there {
		if !wanted[h] && strange(h) {
			d.surplus = append(d.surplus, h)
		}
	}
	return d
}

// mendSet writes a difference. A set with another header takes no members of ours: it is
// made anew with all of them, and rules go on asking it by its name.
func (e *Enforcer) mendSet(header ipset.Set, d memberDifference, all []ipset.Entry) error {
	if d.foreign {
		return e.k.Sets.Replace(header, all...)
	}
	if d.gone {
		if err := e.k.Sets.Ensure(header); err != nil {
			return err
		}
	}
	if err := e.k.Sets.Delete(header.Name, d.surplus...); err != nil {
		return err
	}
	return e.k.Sets.Add(header.Name, append(d.missing, d.changed...)...)
}

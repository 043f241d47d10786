package xtables

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/namegate/namegate/enforcer/dataplane"
)

// The kernel tells nobody when a program flushes a set, destroys it or takes an entry out.
// So how many entries there are is read again and again: often of the static sets, without
// which all isolated pods are cut off, and of the others as often as their number allows.

func (x *packetFilter) Verify(ctx context.Context, st dataplane.State, all bool) (objects []string, err error) {
	var d deviating
	x.found = d
	if d.static, err = x.static.verify(st); err != nil {
		return nil, err
	}
	x.membersDiffer(st)
	if d.peers, d.grants, err = x.verifySets(st); err != nil {
		return nil, err
	}
	if d.tables, err = x.rules.verify(ctx, all || len(d.static) > 0); err != nil {
		return nil, err
	}
	x.found = d
	for _, t := range d.tables {
		objects = append(objects, t.String())
	}
	for _, name := range d.static {
		objects = append(objects, "set "+name)
	}
	for _, s := range d.peers {
		objects = append(objects, "set "+s.name)
	}
	for _, s := range d.grants {
		objects = append(objects, "set "+s.Name)
	}
	return objects, nil
}

func (x *packetFilter) Repair(st dataplane.State) error {
	d := x.found
	x.found = deviating{}
	if len(d.static) > 0 {
		x.owner.Repaired("sets " + strings.Join(d.static, ", "))
		if err := x.static.repair(st, d.static); err != nil {
			return err
		}
	}
	if err := x.repairSets(st, d); err != nil {
		return err
	}
	for _, t := range d.tables {
		x.owner.Repaired(t.String())
	}
	return nil
}

// repairSets repairs peer sets, and counts that as one repair, and grant sets likewise.
func (x *packetFilter) repairSets(st dataplane.State, d deviating) error {
	if len(d.peers) > 0 {
		x.owner.Repaired(fmt.Sprintf("peers %q, %d sets in all", d.peers[0].key.peer.Key, len(d.peers)))
	}
	if err := x.peers.repair(d.peers); err != nil {
		return err
	}
	var repaired []dataplane.GrantSet
	for _, s := range d.grants {
		deviated, err := x.grants.repair(st.Grants, s)
		if err != nil {
			return err
		}
		if deviated {
			repaired = append(repaired, s)
		}
	}
	if len(repaired) > 0 {
		first := repaired[0]
		x.owner.Repaired(fmt.Sprintf("grants of pod %s on %s, %d sets in all", first.Pod, first.Ports, len(repaired)))
	}
	return nil
}

// restore creates and fills the sets again that another program destroyed before any rule
// asked them: without them every write fails.
func (x *packetFilter) restore(st dataplane.State) (err error) {
	if err := x.static.restore(); err != nil {
		return err
	}
	var d deviating
	if d.peers, d.grants, err = x.verifySets(st); err != nil {
		return err
	}
	return x.repairSets(st, d)
}

// verifySets returns the sets of peers and of grants that deviate.
func (x *packetFilter) verifySets(st dataplane.State) (peers []*peerSet, grants []dataplane.GrantSet, err error) {
	sizes, err := x.readSizes(st)
	if err != nil {
		return nil, nil, err
	}
	if peers, err = x.peers.verify(sizes); err != nil {
		return nil, nil, err
	}
	grants, err = x.grants.verify(st.Grants, sizes)
	return peers, grants, err
}

// readSizes reads how many entries the sets have, unless there are none of peers and of
// grants.
func (x *packetFilter) readSizes(st dataplane.State) (map[string]int, error) {
	if len(x.peers.all) > 0 {
		return x.cfg.Sets.Sizes()
	}
	for range st.Grants.Bounds() {
		return x.cfg.Sets.Sizes()
	}
	return nil, nil
}

func (x *packetFilter) Suspect(st dataplane.State) bool {
	if len(x.rules.suspects()) > 0 {
		return true
	}
	if differ, err := x.static.countsDiffer(); err == nil && differ {
		return true
	}
	now := time.Now()
	return !now.Before(x.sizes) && x.sizesDiffer(st) || !now.Before(x.turns.next) && x.membersDiffer(st)
}

// sizesDiffer tells whether a set of peers or of grants has another number of entries than
// it should.
func (x *packetFilter) sizesDiffer(st dataplane.State) bool {
	began := time.Now()
	sizes, err := x.readSizes(st)
	if err != nil {
		return false
	}
	wrong, err := x.grants.outside(st.Grants, sizes)
	x.sizes = began.Add(pause(time.Since(began), sizesPause))
	return err == nil && (len(wrong) > 0 || len(x.peers.outside(sizes)) > 0)
}

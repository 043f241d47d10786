package xtables

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/namegate/namegate/enforcer/dataplane"
)

// The kernel sends no event when a program flushes a set, destroys it or removes an
// entry. So the numbers of entries are read periodically: often for the static sets,
// without which all isolated pods are cut off, and for the others as often as their
// number allows.

func (x *packetFilter) Verify(ctx context.Context, st dataplane.State, all bool) (objects []string, err error) {
	var d deviating
	x.found = d
	if d.static, err = x.static.verify(st); err != nil {
		return nil, err
	}
	x.membersDiffer(st)
	if d.sets, err = x.verifySets(st); err != nil {
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
	for _, s := range d.sets {
		objects = append(objects, "set "+s.set.Name)
	}
	return objects, nil
}

// repairFound repairs the sets that the last Verify found. The rules are written by Apply.
func (x *packetFilter) repairFound(st dataplane.State) error {
	d := x.found
	x.found = deviating{}
	if len(d.static) > 0 {
		x.owner.Repaired("sets " + strings.Join(d.static, ", "))
		if err := x.static.repair(st, d.static); err != nil {
			return err
		}
	}
	if err := x.repairSets(d.sets); err != nil {
		return err
	}
	for _, t := range d.tables {
		x.owner.Repaired(t.String())
	}
	return nil
}

// repairSets repairs sets, which counts as one repair.
func (x *packetFilter) repairSets(wrong []*mirror) (err error) {
	var repaired []*mirror
	for _, s := range wrong {
		var deviated bool
		if deviated, err = x.mirrors.repair(s); err != nil {
			break
		}
		if deviated {
			repaired = append(repaired, s)
		}
	}
	if len(repaired) > 0 {
		x.owner.Repaired(fmt.Sprintf("%s, %d sets in all", repaired[0], len(repaired)))
	}
	return err
}

// restore creates and fills the sets again that another program destroyed before any rule
// asked them: without them every write fails.
func (x *packetFilter) restore(st dataplane.State) error {
	if err := x.static.restore(); err != nil {
		return err
	}
	wrong, err := x.verifySets(st)
	if err != nil {
		return err
	}
	return x.repairSets(wrong)
}

// verifySets returns the sets of grants that deviate.
func (x *packetFilter) verifySets(st dataplane.State) ([]*mirror, error) {
	sizes, err := x.readSizes(st)
	if err != nil {
		return nil, err
	}
	return x.mirrors.verify(st.Grants, sizes)
}

// readSizes reads how many entries the sets have, unless there are none of grants.
func (x *packetFilter) readSizes(st dataplane.State) (map[string]int, error) {
	for range st.Grants.Bounds() {
		return x.cfg.Sets.Sizes()
	}
	return nil, nil
}

// Changed implements dataplane.Poller.
func (x *packetFilter) Changed(st dataplane.State) bool {
	if len(x.rules.suspects()) > 0 {
		return true
	}
	if differ, err := x.static.countsDiffer(); err == nil && differ {
		return true
	}
	now := time.Now()
	return !now.Before(x.sizes) && x.sizesDiffer(st) || !now.Before(x.turns.next) && x.membersDiffer(st)
}

// sizesDiffer tells whether a set of grants has another number of entries than it should.
func (x *packetFilter) sizesDiffer(st dataplane.State) bool {
	began := time.Now()
	sizes, err := x.readSizes(st)
	if err != nil {
		return false
	}
	wrong, err := x.mirrors.wrongSizes(st.Grants, sizes)
	x.sizes = began.Add(pause(time.Since(began)))
	return err == nil && len(wrong) > 0
}

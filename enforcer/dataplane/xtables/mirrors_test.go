package xtables

import (
	"testing"
	"time"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/kernel/ipset"
	"github.com/namegate/namegate/testkit/fatal"
)

// busyGrants are grants to which one is added after each look at them.
type busyGrants struct {
	fakeGrants
	t   *testing.T
	set dataplane.GrantSet
	add func()
}

func (b *busyGrants) Members(set dataplane.GrantSet) []dataplane.Frozen {
	defer b.add()
	return b.fakeGrants.Members(set)
}

func (b *busyGrants) Freeze(dataplane.GrantSet, func([]dataplane.Frozen)) {
	b.t.Error("grants wait for a comparison")
}

// Grants that come while a set is compared are no deviation and do not wait for the comparison, and
// what another program did to the set is found beside them.
func TestGrantsComeDuringAComparison(t *testing.T) {
	web := grantSetOf("web", false)
	for _, exchanged := range []bool{false, true} {
		g, fake := fakeGrantSets(t, web)
		busy := &busyGrants{fakeGrants{web: {certain: granted("192.0.2.1")}}, t, web, nil}
		busy.add = func() {
			is := busy.fakeGrants[web]
			come := granted("198.51.100." + string(rune('0'+len(is.certain))))
			is.certain = append(is.certain, come...)
			busy.fakeGrants[web] = is
			g.apply([]dataplane.GrantOp{{Set: web, Grants: come}})
		}
		g.apply([]dataplane.GrantOp{{Set: web, Grants: granted("192.0.2.1")}})
		if exchanged {
			fatal.If(t, fake.Delete(web.Name, ipset.Entry{Addr: addr("192.0.2.1")}))
			fatal.If(t, fake.Add(web.Name, ipset.Entry{Addr: addr("203.0.113.9"), Timeout: time.Hour}))
		}
		m := newMirrors(fake, func() bool { return false })
		differs, err := m.differs(&mirror{name: web.Name, grants: busy, set: web})
		if err != nil || differs != exchanged || len(busy.fakeGrants[web].certain) != 3 {
			t.Errorf("exchanged %t: differs %t, %v, grants %v", exchanged, differs, err, busy.fakeGrants[web].certain)
		}
	}
}

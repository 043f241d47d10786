package grants

import (
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestInPlace: a later deadline leaves the comment as it is, and another agent takes the
// deadlines from what the kernel keeps.
func TestInPlace(t *testing.T) {
	w, p := web(t)
	w.inPlace = true
	w.restart()
	w.table.cfg.SetMax = 3
	w.apply([]policy.Pod{p}, pol("allow", "tcp/443 www.example.org *.example.net"))
	w.answer(p, "www.example.org", 60, "192.0.2.1")
	w.Pass(30 * time.Second)
	w.sets.writes = nil
	w.answer(p, "www.example.org", 60, "192.0.2.1")
	w.answer(p, "www.example.org", 60, "192.0.2.2")
	first, second := w.sets.writes[0][0].Grants[0], w.sets.writes[1][0].Grants[0]
	if first.Held != dataplane.SameComment || second.Held != dataplane.Absent || first.Comment != second.Comment || strings.Contains(first.Comment, untilWord) {
		t.Errorf("written: %+v, %+v", first, second)
	}
	w.answer(p, "a.example.net", 600, "192.0.2.1")
	if g := w.sets.writes[2][0].Grants[0]; g.Held != dataplane.Unknown {
		t.Errorf("another name: %+v", g)
	}
	// What the kernel keeps is all that the next agent has.
	key := grantSet(p.PodRef, https, false)
	at := w.table.cfg.Clock.read()
	fatal.If(t, w.sets.ListGrants([]dataplane.GrantSet{key}, func(_ dataplane.GrantSet, part []dataplane.Grant) {
		for i := range part {
			s := w.table.get(key)
			reasons, _, _ := w.table.readGrant(s, nil, &part[i], at)
			for _, r := range reasons {
				want := s.at(part[i].Addr).until()
				if d := time.Duration(r.until - want); d < -time.Second || d > time.Second {
					t.Errorf("%s by %s: %v from the deadline", part[i].Addr, r.name, d)
				}
			}
		}
	}))
	w.answer(p, "www.example.org", 60, "192.0.2.3 192.0.2.4")
	if w.table.Figures().Evicted == 0 || w.table.Figures().Grants > 3 {
		t.Errorf("over the bound: %d evicted, %d grants", w.table.Figures().Evicted, w.table.Figures().Grants)
	}
}

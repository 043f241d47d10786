package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/proxy/counters"
	"github.com/namegate/namegate/proxy/warm"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/policytest"
)

// useLab is a lab whose names in use are kept by a fake.
type useLab struct {
	*lab
	mu   sync.Mutex
	kept []string // the calls
}

func newUseLab(t testing.TB, table map[string][]string) *useLab {
	l := &useLab{lab: newLab(t, table)}
	l.s.InUse = warm.NewInUse(l.s.errands(), func(n *policy.NameInUse, left []netip.Addr, answered bool) (kept []policy.GrantInfo) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.kept = append(l.kept, fmt.Sprintf("%s %s %v answered %v", n.Pod.Name, n.Name, left, answered))
		for _, a := range left {
			kept = append(kept, policy.GrantInfo{Pod: n.Pod, Addr: a, Ports: "tcp/443", Name: n.Name, Until: noon.Add(time.Minute)})
		}
		return kept
	})
	return l
}

// renew asks for names in use, and waits until all are over.
func (l *useLab) renew(names ...policy.NameInUse) {
	l.t.Helper()
	l.s.RenewNames(names)
	fatal.Await(l.t, "queries for names in use do not end", func() bool { inFlight, _ := l.s.InUse.State(); return inFlight == 0 })
}

func inUse(pod int, name, held, due string) policy.NameInUse {
	return policy.NameInUse{Pod: labPods[pod].PodRef, Name: policytest.Name(name), Held: policytest.Addrs(held), Due: policytest.Addrs(due)}
}

// TestNamesInUse: what the answer holds of the addresses that are open is granted, and nothing
// else; what it lacks is left to Keep, unless the guard blocks it or no policy allows the name.
func TestNamesInUse(t *testing.T) {
	const www = "www.example.org"
	for what, c := range map[string]struct {
		table   map[string][]string
		name    policy.NameInUse
		granted []string
		kept    []string
		logged  []string
	}{
		"the answer holds it, among others": {
			table:   map[string][]string{"www.example.org A": {"www.example.org. 60 IN A 192.0.2.1", "www.example.org. 60 IN A 192.0.2.2", "www.example.org. 60 IN A 192.0.2.3"}},
			name:    inUse(0, www, "192.0.2.1 192.0.2.2 192.0.2.9", "192.0.2.1"),
			granted: []string{"web www.example.org [192.0.2.1 192.0.2.2] tcp/443 +2m0s"},
			logged:  []string{"renewed answer 192.0.2.1 192.0.2.2 192.0.2.3"},
		},
		"another one": {
			table:  map[string][]string{"www.example.org A": {"www.example.org. 60 IN A 192.0.2.3"}},
			name:   inUse(0, www, "192.0.2.1", "192.0.2.1"),
			kept:   []string{"web www.example.org [192.0.2.1] answered true"},
			logged: []string{"renewed connection 192.0.2.1"},
		},
		"a part": {
			table:   map[string][]string{"www.example.org A": {"www.example.org. 60 IN A 192.0.2.2"}},
			name:    inUse(0, www, "192.0.2.1 192.0.2.2", "192.0.2.1 192.0.2.2"),
			granted: []string{"web www.example.org [192.0.2.2] tcp/443 +2m0s"},
			kept:    []string{"web www.example.org [192.0.2.1] answered true"},
			logged:  []string{"renewed answer 192.0.2.2", "renewed connection 192.0.2.1"},
		},
		"both families, of which one is silent": {
			table:   map[string][]string{"www.example.org A": {"www.example.org. 60 IN A 192.0.2.1"}, "www.example.org AAAA": {"error"}},
			name:    inUse(0, www, "192.0.2.1 2001:db8:9::1", "192.0.2.1 2001:db8:9::1"),
			granted: []string{"web www.example.org [192.0.2.1] tcp/443 +2m0s"},
			kept:    []string{"web www.example.org [2001:db8:9::1] answered false"},
			logged:  []string{"renewed answer 192.0.2.1", "renewed unanswered 2001:db8:9::1"},
		},
		"the name is gone": {
			table:  map[string][]string{"www.example.org A": {"NXDOMAIN"}},
			name:   inUse(0, www, "192.0.2.1", "192.0.2.1"),
			kept:   []string{"web www.example.org [192.0.2.1] answered true"},
			logged: []string{"renewed connection 192.0.2.1"},
		},
		"no resolver answers, and the guard blocks the address by now": {
			table: map[string][]string{"www.example.org A": {"SERVFAIL"}},
			name:  inUse(0, www, "10.1.0.99", "10.1.0.99"),
		},
		"the answer holds what the guard blocks": {
			table: map[string][]string{"www.example.org A": {"www.example.org. 60 IN A 10.1.0.99"}},
			name:  inUse(0, www, "10.1.0.99", "10.1.0.99"),
		},
		"the answer for a name of the cluster holds what the guard blocks for an outside name": {
			table: map[string][]string{"db.shop.svc.cluster.local A": {"db.shop.svc.cluster.local. 60 IN CNAME db.partner.test.", "db.partner.test. 60 IN A 10.1.0.99"}},
			name:  inUse(0, "db.shop.svc.cluster.local", "10.1.0.99", "10.1.0.99"),
		},
		"no policy allows the name": {
			table: map[string][]string{"other.test A": {"other.test. 60 IN A 192.0.2.1"}},
			name:  inUse(0, "other.test", "192.0.2.1", "192.0.2.1"),
		},
		"the pod is gone": {
			table: map[string][]string{"www.example.org A": {"www.example.org. 60 IN A 192.0.2.1"}},
			name:  policy.NameInUse{Pod: policy.PodRef{Namespace: "shop", Name: "gone"}, Name: policytest.Name(www), Held: policytest.Addrs("192.0.2.1"), Due: policytest.Addrs("192.0.2.1")},
		},
		"a pod that is only audited": {
			table: map[string][]string{"www.example.org A": {"www.example.org. 60 IN A 192.0.2.1"}},
			name:  inUse(3, www, "192.0.2.1", "192.0.2.1"),
		},
	} {
		t.Run(what, func(t *testing.T) {
			l := newUseLab(t, c.table)
			l.renew(c.name)
			equal(t, "grants", l.granted(), c.granted)
			equal(t, "kept", l.kept, c.kept)
			var logged []string
			for _, r := range l.log.recs {
				line := r.Verdict.String() + " " + r.Renewed
				for _, a := range r.Answers {
					line += " " + a.Addr.String()
				}
				logged = append(logged, line)
			}
			slices.Sort(logged)
			slices.Sort(c.logged)
			equal(t, "log", logged, c.logged)
			if st := l.s.Stats(); st.Queries != 0 || st.Allowed != 0 {
				t.Errorf("counted as a pod's: %+v", st)
			} else if n := renewed(&st); n != len(logged) {
				t.Errorf("%d verdicts counted, %d logged", n, len(logged))
			}
		})
	}
}

// renewed counts the verdicts renewed of all types.
func renewed(st *counters.Stats) (n int) {
	for _, of := range st.Types {
		n += int(of.Renewed)
	}
	return n
}

// TestInUseBeforeTheFirstSnapshot: what is in use before the first snapshot, as after a restart, is
// left to Keep, which knows what the policies allow.
func TestInUseBeforeTheFirstSnapshot(t *testing.T) {
	l := newUseLab(t, map[string][]string{"www.example.org A": {"www.example.org. 60 IN A 192.0.2.1"}})
	l.s.snapshot.Store(nil)
	l.renew(inUse(0, "www.example.org", "192.0.2.1", "192.0.2.1"))
	equal(t, "kept", l.kept, []string{"web www.example.org [192.0.2.1] answered false"})
	if len(l.up.asked) > 0 || len(l.log.recs) != 1 || l.log.recs[0].Pod != labPods[0].PodRef {
		t.Errorf("asked %v, logged %+v", l.up.asked, l.log.recs)
	}
}

// TestClosedServerKeepsNothing: after Close no name is asked, and the end of a query keeps nothing:
// the next agent has the grants.
func TestClosedServerKeepsNothing(t *testing.T) {
	l := newUseLab(t, nil)
	block := l.gate("")
	var names []policy.NameInUse
	for i := range 2 * warm.InFlight.Each {
		names = append(names, inUse(0, fmt.Sprintf("n%d.wild.test", i), "192.0.2.1", "192.0.2.1"))
	}
	l.s.RenewNames(names)
	block.reaches(t, warm.InFlight.Each)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_ = l.s.Close(ctx)
	block.release()
	l.renew(names...)
	if len(l.up.asked) > warm.InFlight.Each || len(l.kept) > 0 {
		t.Errorf("%d names asked, kept %d", len(l.up.asked), len(l.kept))
	}
}

// TestRefusedRenewal: where the kernel does not take the renewal, the addresses are left as
// without an answer.
func TestRefusedRenewal(t *testing.T) {
	l := newUseLab(t, map[string][]string{"www.example.org A": {"www.example.org. 60 IN A 192.0.2.1"}})
	l.granter.Err = func(context.Context, []policy.Grant) error { return errors.New("refused") }
	l.renew(inUse(0, "www.example.org", "192.0.2.1", "192.0.2.1"))
	equal(t, "kept", l.kept, []string{"web www.example.org [192.0.2.1] answered false"})
}

// TestNamesInUseAreBounded: of many names of a pod a bounded number is asked at a time, and one that
// waits for too long counts as unanswered. Another pod's names have places beside them.
func TestNamesInUseAreBounded(t *testing.T) {
	l := newUseLab(t, nil)
	block := l.gate("")
	var names []policy.NameInUse
	for i := range 3 * warm.InFlight.Each {
		names = append(names, inUse(0, fmt.Sprintf("n%d.wild.test", i), "192.0.2.1", "192.0.2.1"))
	}
	l.s.RenewNames(names)
	block.reaches(t, warm.InFlight.Each)
	l.s.RenewNames([]policy.NameInUse{inUse(1, "www.example.org", "192.0.2.2", "192.0.2.2")})
	block.reaches(t, warm.InFlight.Each+1) // another pod's name does not wait for these
	l.s.started = l.s.started.Add(-warm.Patience - time.Second)
	block.release()
	l.renew()
	if _, n := block.counts(); n != warm.InFlight.Each+1 {
		t.Errorf("%d queries at a time", n)
	}
	asked, unanswered := len(l.up.asked), 0
	for _, k := range l.kept {
		if strings.Contains(k, "answered false") {
			unanswered++
		}
	}
	if asked != warm.InFlight.Each+1 || len(l.kept) != len(names)+1 || unanswered < 2*warm.InFlight.Each {
		t.Errorf("%d names asked, %d of %d left, %d without an answer", asked, len(l.kept), len(names), unanswered)
	}
}

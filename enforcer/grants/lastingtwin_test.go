package grants

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/granttest"
)

// entered is an entry of a lasting rule that was acknowledged.
type entered struct {
	set  dataplane.GrantSet
	addr netip.Addr
}

// TestDenialsOutlastOpenings: whatever comes, an address that a name of a lasting rule entered keeps
// that entry for as long as an entry that opens it. Entries of lasting rules open nothing.
func TestDenialsOutlastOpenings(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for round := range 12 {
		r := rand.New(rand.NewPCG(seed, uint64(round)))
		l := &lastingLife{node: newNode(t), r: r, entered: map[entered]map[fqdn.Name]bool{}}
		l.change()
		for range 150 {
			l.step()
			l.check()
			if t.Failed() {
				t.Fatalf("round %d", round)
			}
		}
		if l.shadowed == 0 {
			t.Errorf("round %d: no entry shadowed another: the test does not see them", round)
		}
	}
}

type lastingLife struct {
	*node
	r        *rand.Rand
	pods     []policy.Pod
	entered  map[entered]map[fqdn.Name]bool
	shadowed int
}

func (l *lastingLife) step() {
	names := []string{"a.example.net", "b.example.net", "c.example.net"}
	switch l.r.IntN(10) {
	case 0:
		l.change()
	case 1:
		l.handOver()
	case 2, 3:
		for range l.r.IntN(400) {
			l.Pass(time.Second)
			if err := l.table.Expire(); err != nil && !errors.Is(err, errInjected) {
				l.t.Error(err)
			}
		}
	case 4:
		l.sets.fail(1+l.r.IntN(3), l.r.IntN(2) == 0)
	default:
		p := l.pods[l.r.IntN(len(l.pods))]
		var aliases []fqdn.Name
		if l.r.IntN(2) == 0 {
			aliases = append(aliases, dns(names[l.r.IntN(3)]))
		}
		for e := range l.entered {
			if l.left(e.set, e.addr) < dataplane.LastingMargin {
				l.entered[e] = map[fqdn.Name]bool{} // its names have ended
			}
		}
		gs := l.decided(p.PodRef, names[l.r.IntN(3)], uint32(l.r.IntN(900)), fmt.Sprintf("192.0.2.%d", l.r.IntN(3)), aliases...)
		err := granttest.Grant(context.Background(), l.table, gs)
		for i := range gs {
			g := &gs[i]
			if err != nil || !g.Rule.Lasting() {
				continue
			}
			e := entered{dataplane.GrantSet{Pod: g.Pod, Ports: g.Ports, Rule: g.Rule, Subject: p.IPs[0]}, g.Addrs[0]}
			if l.entered[e] == nil {
				l.entered[e] = map[fqdn.Name]bool{}
			}
			l.entered[e][g.Name] = true
		}
	}
	if l.r.IntN(3) == 0 {
		l.sets.instead = nil
	}
}

// change brings other policies into force.
func (l *lastingLife) change() {
	l.sets.instead = nil
	if l.pods == nil {
		for i := range 2 {
			p := pod(fmt.Sprint("p", i), "allow")
			p.IPs = addrs(fmt.Sprintf("10.1.0.%d", i))
			l.pods = append(l.pods, p)
		}
	}
	l.cluster = nil
	for i := range 2 {
		var rules []string
		for range 1 + l.r.IntN(3) {
			rules = append(rules, fmt.Sprintf("{action: %s, matches: [{name: %c.example.net}, {name: %c.example.net}], ports: [{protocol: TCP, port: %d}]}",
				[]string{"Accept", "Deny", "Deny", "Pass"}[l.r.IntN(4)], 'a'+l.r.IntN(3), 'a'+l.r.IntN(3), 443+l.r.IntN(2)))
		}
		l.cluster = append(l.cluster, cluster(l.t, fmt.Sprint("c", i), fmt.Sprintf("tier: Admin, priority: %d, ttl: {reuseSeconds: %d}, egress: [%s]",
			l.r.IntN(3), []int{1, 30, 300}[l.r.IntN(3)], strings.Join(rules, ", "))))
	}
	l.apply(l.pods, pol("allow", "tcp/443 *.example.net"))
	for e, names := range l.entered {
		v := l.snap.ViewOf(e.set.Pod)
		for n := range names {
			if !v.Covers(n, e.set.Rule, e.set.Ports) {
				delete(names, n)
			}
		}
		if len(names) == 0 {
			delete(l.entered, e)
		}
	}
}

// handOver lets another agent follow after a while.
func (l *lastingLife) handOver() {
	l.sets.instead = nil
	var rules []policy.RuleID
	for s := range l.table.all() {
		if s.key.Rule != "" {
			rules = append(rules, s.key.Rule)
		}
	}
	slices.Sort(rules)
	before := l.snap
	l.Pass(time.Duration(l.r.IntN(3)) * time.Second)
	l.restart()
	fatal.If(l.t, l.table.Recover(slices.Compact(rules), before.View, false))
	l.apply(l.pods, pol("allow", "tcp/443 *.example.net"))
	l.tick(6)
}

// check compares the kernel with what was entered.
func (l *lastingLife) check() {
	l.t.Helper()
	for e := range l.entered {
		if l.left(e.set, e.addr) > 0 {
			for _, s := range l.table.pod(e.set.Pod).all() {
				if s.key != e.set && l.left(s.key, e.addr) > 0 {
					l.shadowed++
				}
			}
			continue
		}
		for _, s := range l.table.pod(e.set.Pod).all() {
			if left := l.left(s.key, e.addr); left > 0 && !s.key.Rule.Lasting() {
				l.t.Errorf("%s has ended for %s, and %s %s lives on for %v", e.set.Rule, e.addr, s.key.Rule, s.key.Ports, left)
			}
		}
		delete(l.entered, e)
	}
}

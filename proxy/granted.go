package proxy

import (
	"net/netip"
	"time"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/proxy/wire"
)

// granted is what an answer opens, in slices that are used again and again.
type granted struct {
	grants   []policy.Grant
	answers  []audit.Answer
	addrs    []netip.Addr
	openings []policy.Opening
	opened   []audit.Opened
}

// make fills in the grants of an answer, and what the log says of it. Nearly always
// all addresses share one TTL, and so one grant a port set.
func (g *granted) make(v *policy.View, n fqdn.Name, d policy.Decision, addrs []wire.Address, now time.Time) {
	g.reset()
	for _, a := range addrs {
		g.answers = append(g.answers, audit.Answer{Addr: a.Addr, TTL: a.TTL})
		if a.TTL != addrs[0].TTL {
			g.mixed(v, n, d, addrs, now)
			return
		}
		g.addrs = append(g.addrs, a.Addr)
	}
	g.openings = d.AppendOpenings(g.openings, addrs[0].TTL)
	for _, o := range g.openings {
		if o.Lifetime <= 0 {
			continue
		}
		until := now.Add(o.Lifetime)
		g.grants = append(g.grants, policy.Grant{Pod: v.Pod.PodRef, Name: n, Addrs: g.addrs, Ports: o.Ports, Deadline: until, By: o.By, View: v})
		g.opened = append(g.opened, audit.Opened{Ports: o.Ports, Until: until})
	}
	for i := range g.answers {
		g.answers[i].Openings = g.opened
	}
}

func (g *granted) mixed(v *policy.View, n fqdn.Name, d policy.Decision, addrs []wire.Address, now time.Time) {
	grants, opened := grantsOf(v, n, d, addrs, now)
	g.reset()
	g.grants = append(g.grants, grants...)
	for i, a := range addrs {
		g.answers = append(g.answers, audit.Answer{Addr: a.Addr, TTL: a.TTL, Openings: opened[i]})
	}
}

// reset empties the slices and lets go of what they pointed at.
func (g *granted) reset() {
	clear(g.grants)
	clear(g.answers)
	clear(g.openings)
	g.grants, g.answers, g.addrs, g.openings, g.opened = g.grants[:0], g.answers[:0], g.addrs[:0], g.openings[:0], g.opened[:0]
}

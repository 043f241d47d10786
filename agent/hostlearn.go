package agent

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
)

// learnWait bounds how long an answer with new addresses of a failsafe waits for them to be in force.
// Programs send a query again after 5 s (resolv.conf(5)).
const learnWait = time.Second

// hostLearned are the answers of the node's own queries for names of failsafes that wait; the lock of hostNode.
type hostLearned struct {
	inForce *policy.Node // nil: no policy selects the node
	waiting []*hostAnswer
}

// hostAnswer are the failsafes that an answer has to wait for.
type hostAnswer struct {
	needs []policy.Failsafe
	then  func()
}

// learn takes over the addresses that a query of the node itself is answered with, and calls then when
// they are in force as failsafes, at the latest after learnWait: the answer tells a name that the node needs.
func (h *hostNode) learn(n fqdn.Name, addrs []netip.Addr, then func()) {
	a := &hostAnswer{then: sync.OnceFunc(then)}
	h.mu.Lock()
	if h.list != nil {
		for _, t := range h.list.Queries[n] {
			for _, at := range addrs {
				a.needs = append(a.needs, t.At(at).Failsafe)
			}
		}
	}
	if h.learned.has(a) {
		h.mu.Unlock()
		then()
		return
	}
	h.learned.waiting = append(h.learned.waiting, a)
	targets := h.list.Queries[n]
	h.mu.Unlock()
	time.AfterFunc(learnWait, func() {
		h.mu.Lock()
		h.learned.waiting = slices.DeleteFunc(h.learned.waiting, func(o *hostAnswer) bool { return o == a })
		h.mu.Unlock()
		a.then()
	})
	for _, t := range targets {
		h.keeper.Learn(t.Host, addrs)
	}
}

// inForce takes over the view of the node that the kernel has, and has the answers leave that waited for it.
func (h *hostNode) inForce(v *policy.View) {
	h.mu.Lock()
	h.learned.inForce = nil
	if v != nil {
		h.learned.inForce = v.Node
	}
	var ready []*hostAnswer
	h.learned.waiting = slices.DeleteFunc(h.learned.waiting, func(a *hostAnswer) bool {
		has := h.learned.has(a)
		if has {
			ready = append(ready, a)
		}
		return has
	})
	h.mu.Unlock()
	for _, a := range ready {
		a.then()
	}
}

// has tells whether the failsafes of an answer are in force, or no policy selects the node.
func (l *hostLearned) has(a *hostAnswer) bool {
	return l.inForce == nil || !slices.ContainsFunc(a.needs, func(f policy.Failsafe) bool {
		return !slices.ContainsFunc(l.inForce.Failsafes, func(o policy.Failsafe) bool { return o.Prefix == f.Prefix && o.Ports == f.Ports })
	})
}

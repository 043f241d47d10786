package enforcer

import "net/netip"

// noteResolvers keeps who is asked for DNS for those that do not hold apply, who does.
func (e *Enforcer) noteResolvers() {
	asked := map[netip.Addr]bool{}
	for dialled, serving := range e.serving {
		asked[dialled], asked[serving] = true, true
	}
	for serving := range e.predecessor.Addrs() {
		asked[serving] = true
	}
	e.asked.Store(&asked)
}

// Resolves tells whether pods ask for DNS at an address: a resolver's that is
// intercepted, an endpoint's, or one that an agent serves on.
func (e *Enforcer) Resolves(at netip.AddrPort) bool {
	asked := e.asked.Load()
	return asked != nil && at.Port() == 53 && (*asked)[at.Addr()]
}

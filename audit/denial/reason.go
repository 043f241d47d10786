package denial

import (
	"net/netip"
	"slices"
	"time"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/audit/recent"
	"github.com/namegate/namegate/kernel/nflog"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
)

// maxNames bounds the names that a flow tells of.
const maxNames = 8

// maxConsidered bounds the names that are looked at for a flow: an address of many
// names, open to many pods, is not worth the agent's time.
const maxConsidered = 128

// dnsPort is that of RFC 1035 §4.2.
const dnsPort = 53

// evaluate evaluates a connection that leads to reached, zero for unknown: by the enforcing
// policies or, with would, as if the Audit policies enforced as well.
func (d *Denials) evaluate(snap *policy.Snapshot, v *policy.View, p nflog.Packet, reached netip.AddrPort, would bool) (verdict policy.Verdict, by *policy.Rule) {
	if v == nil {
		return policy.AllowFlow, nil
	}
	f := policy.Flow{Protocol: policy.Protocol(p.Protocol), Dialled: p.Destination, Reached: reached, Would: would}
	dns := f.Dialled.Port() == dnsPort && (f.Protocol == policy.UDP || f.Protocol == policy.TCP)
	f.Implied = dns && d.o.Resolves(f.Dialled)
	f.ByName = !d.led(p, reached)
	if v.Node != nil && (p.Prefix == nflog.PrefixDenied || reached == p.Destination) { // one that begins may be translated to another interface
		f.Out = interfaceName(p.Out)
	}
	d.enter(&f, v, p.Time)
	allowed, by := policy.Evaluate(v, snap, &f)
	return policy.VerdictOf(allowed, by), by
}

// led tells whether a connection leads to where names do not count for it.
func (d *Denials) led(p nflog.Packet, reached netip.AddrPort) bool {
	return reached.IsValid() && reached != p.Destination && !d.o.CountsByName(p.Destination, reached)
}

// enter adds the entries of the dialled address: the grants or, if Audit policies count, the
// entries that the names of the address would have. For rules with Deny and Pass a name counts
// for as long as it is known.
func (d *Denials) enter(f *policy.Flow, v *policy.View, at time.Time) {
	seen := d.o.Memory.Seen(v.Pod.PodRef, f.Dialled.Addr())
	outside := func(n fqdn.Name) bool {
		return slices.ContainsFunc(seen, func(s recent.Sighting) bool { return s.Name == n && s.Blocked == audit.BlockedOutside })
	}
	for _, g := range d.o.Granted(v.Pod.PodRef, f.Dialled.Addr()) {
		live := at.Before(g.Until)
		if live && !f.Would {
			f.EnterGrant(v, &g)
		}
		enterName(f, v, g.Name, outside(g.Name), func(*policy.Match) bool { return live && f.Would })
	}
	for _, s := range seen {
		enterName(f, v, s.Name, outside(s.Name), func(m *policy.Match) bool { return m.Audit && s.OpenAt(m, at) })
	}
}

// enterName adds the entries of one name, those that accept if they are open. outside: the name
// counts for rules that deny alone.
func enterName(f *policy.Flow, v *policy.View, n fqdn.Name, outside bool, open func(*policy.Match) bool) {
	for _, m := range policy.Decide(v, policy.Query{Name: n, Outside: outside, Would: f.Would}).Matches {
		if !m.Accepts() || open(m) {
			f.Enter(m)
		}
	}
}

// explain returns the names of a destination and why connections to it are denied, if that
// is not by the rule of a cluster policy.
func (d *Denials) explain(v *policy.View, at key, by *policy.Rule) ([]audit.FlowName, audit.FlowReason) {
	addr := at.dialled.Addr()
	own := names(d.o.Memory.Seen(at.pod, addr), d.o.Granted(at.pod, addr))
	if len(own) > 0 {
		return d.matched(v, at, by, own)
	}
	out, _ := d.matched(v, at, by, names(d.o.Memory.SeenByAnybody(addr), d.o.GrantedToAnybody(addr)))
	for i := range out {
		if out[i].Pod == at.pod { // asked a moment ago
			out[i].Pod = policy.PodRef{}
		}
	}
	if len(out) > 0 {
		return out, audit.ReasonAnother
	}
	return nil, audit.ReasonAddress
}

// names merges sightings and grants, each name of a pod once: first the former grants,
// whose query time is unknown, then the sightings, the newest first.
func names(seen []recent.Sighting, granted []policy.GrantInfo) []recent.Sighting {
	var out []recent.Sighting
	add := func(s recent.Sighting) {
		i := slices.IndexFunc(out, func(o recent.Sighting) bool { return o.Name == s.Name && o.Pod == s.Pod })
		switch {
		case i < 0 && len(out) == maxConsidered:
		case i < 0:
			out = append(out, s)
		case out[i].Asked.IsZero():
			// The later answer did not open it.
			out[i].Asked, out[i].TTL, out[i].Blocked = s.Asked, s.TTL, s.Blocked
		}
	}
	for _, g := range granted {
		add(recent.Sighting{Pod: g.Pod, Name: g.Name})
	}
	for _, s := range seen {
		add(s)
	}
	return out
}

// matched says of names of the pod's own which match covers them, and why that does
// not allow the connection.
func (d *Denials) matched(v *policy.View, at key, by *policy.Rule, seen []recent.Sighting) ([]audit.FlowName, audit.FlowReason) {
	var out []audit.FlowName
	covered, open, free, inside := false, false, false, false
	for i := range seen {
		s := &seen[i]
		n := audit.FlowName{Name: s.Name, Asked: s.Asked}
		if s.Pod != at.pod {
			n.Pod = s.Pod
		}
		onPort := false
		n.Match, onPort = cover(v, at, by, s.Name)
		covered = covered || n.Match != nil
		open = open || onPort
		free = free || onPort && s.Blocked == ""
		inside = inside || onPort && s.Blocked == audit.BlockedInside
		out = append(out, n)
	}
	// Those that a match covers say more than others.
	slices.SortStableFunc(out, func(a, b audit.FlowName) int {
		switch {
		case (a.Match != nil) == (b.Match != nil):
			return 0
		case a.Match != nil:
			return -1
		}
		return 1
	})
	out = out[:min(len(out), maxNames)]
	switch {
	case covered && !open:
		return out, audit.ReasonPorts
	case free:
		return out, audit.ReasonExpired
	case inside:
		return out, audit.ReasonUnchecked
	case open:
		return out, audit.ReasonBlocked
	}
	return out, audit.ReasonUnmatched
}

// cover returns the match that covers a name, if there is one, and whether it opens the
// dialled port: a match of the rule that decides, or else on that port, is preferred.
func cover(v *policy.View, at key, decides *policy.Rule, n fqdn.Name) (best *policy.Match, opens bool) {
	if v == nil {
		return nil, false
	}
	f := policy.Flow{Protocol: at.protocol, Dialled: at.dialled, Would: at.verdict != audit.Denied}
	matches := policy.Decide(v, policy.Query{Name: n, Would: f.Would}).Matches
	f.Enter(matches...)
	allowed, by := policy.Evaluate(v, nil, &f)
	for _, m := range matches {
		if m.Audit && !f.Would {
			continue
		}
		if m.Rule == decides && decides != nil {
			return m, decides.Action == policy.Accept
		}
		if by != nil && policy.VerdictOf(allowed, by) != policy.DenyFlow && m.Ports.Contains(at.protocol, at.dialled.Port()) {
			return m, true
		}
		if best == nil {
			best = m
		}
	}
	return best, false
}

// key identifies a flow.
type key struct {
	pod      policy.PodRef
	source   netip.Addr // of connections to the pod or the node, and of what the node forwards
	dialled  netip.AddrPort
	protocol policy.Protocol
	verdict  audit.FlowVerdict
	owner    audit.Owner // of the node's socket
	// serverName is claimed in a connection that the agent denied.
	serverName string
}

package enforcer

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/namegate/namegate/enforcer/dataplane/xtables"
	"github.com/namegate/namegate/kernel/conntrack"
	"github.com/namegate/namegate/kernel/iptables"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
)

// takeBack is what the model makes of a snapshot that is in force.
func (l *life) takeBack(s *policy.Snapshot) {
	gone := func(a answered, _ bool) bool {
		v := s.ViewOf(a.pod)
		return v == nil || !v.Decide(dns(a.name)).Allowed()
	}
	maps.DeleteFunc(l.ever, gone)
	maps.DeleteFunc(l.hazy, gone)
	maps.DeleteFunc(l.deadlines, func(a answered, _ time.Time) bool { return gone(a, true) })
}

// until is the model: when an address of a set ends, zero if it is not open.
func (l *life) until(v *policy.View, ports policy.PortSet, addr string) time.Time {
	var t time.Time
	for a, d := range l.deadlines {
		if a.pod == v.Pod.PodRef && a.addr == addr && d.After(l.clock.Now()) && d.After(t) && opens(v, dns(a.name), ports) {
			t = d
		}
	}
	return t
}

// opens tells whether a view opens ports for a name.
func opens(v *policy.View, name fqdn.Name, ports policy.PortSet) bool {
	return v != nil && slices.ContainsFunc(v.Decide(name).Openings(0), func(o policy.Opening) bool { return o.Ports == ports })
}

// may tells by the model whether a pod may open a connection now.
func (l *life) may(v *policy.View, addr string, proto policy.Protocol, port uint16) bool {
	to := netip.AddrPortFrom(netip.MustParseAddr(addr), port)
	return l.peers(v, conntrack.Flow{Protocol: uint8(proto), Dst: to}) ||
		slices.ContainsFunc(v.PortSets(), func(s policy.PortSet) bool { return s.Contains(proto, port) && !l.until(v, s, addr).IsZero() })
}

// might is the same of answers that have ended.
func (l *life) might(v *policy.View, f conntrack.Flow, told map[answered]bool) bool {
	for a := range told {
		if a.pod != v.Pod.PodRef || a.addr != f.Dst.Addr().String() {
			continue
		}
		for _, s := range v.PortSets() {
			if s.Contains(policy.Protocol(f.Protocol), f.Dst.Port()) && opens(v, dns(a.name), s) {
				return true
			}
		}
	}
	return false
}

// forget is what the model makes of an agent that knows what the kernel does.
func (l *life) forget() {
	for i, f := range l.flows {
		if v := l.snap.ViewOf(f.pod.PodRef); v != nil && !l.may(v, f.Dst.Addr().String(), policy.Protocol(f.Protocol), f.Dst.Port()) {
			l.flows[i].remembered = false
		}
	}
	for a := range l.ever {
		if !l.deadlines[a].After(l.clock.Now()) {
			delete(l.ever, a)
			delete(l.deadlines, a)
			l.hazy[a] = true
		}
	}
}

// check compares the kernel with the model.
func (l *life) check() {
	want := map[string]bool{}
	for _, s := range xtables.StaticSets() {
		want[s.Name] = true
	}
	for _, v := range l.snap.Views {
		for _, ports := range v.PortSets() {
			for _, f := range ipVersions {
				want[xtables.GrantSetName(v.Pod.PodRef, ports, f)] = true
				l.checkSet(v, ports, f)
			}
		}
	}
	l.checkPeers()
	if names, got := l.setNames(), slices.Sorted(maps.Keys(want)); !slices.Equal(names, got) {
		l.t.Fatalf("after %s: sets %v, want %v", l.last, names, got)
	}
	l.coverages("at the end")
	l.checkFlows()
}

// checkFlows compares the admission of connections with the model, and forgets those that
// were cut.
func (l *life) checkFlows() {
	l.flows = slices.DeleteFunc(l.flows, func(f opened) bool {
		v := l.snap.ViewOf(f.pod.PodRef)
		own := v != nil && slices.Contains(v.Pod.IPs, f.Src.Addr())
		stays := own && (l.might(v, f.Flow, l.ever) || l.peers(v, f.Flow))
		if admitted := l.admitted(f.Flow); admitted == stays || f.early && !admitted || own && (!f.remembered || l.might(v, f.Flow, l.hazy)) {
			return !admitted
		}
		l.t.Fatalf("after %s: %s %s to %s is admitted: %v, want %v", l.last, f.pod.PodRef, f.Src, f.Dst, !stays, stays)
		return false
	})
}

func (l *life) checkSet(v *policy.View, ports policy.PortSet, f iptables.Family) {
	got := map[string]time.Duration{}
	for _, e := range l.entries(v.Pod, ports, f) {
		got[e.Addr.String()] = e.Timeout
	}
	for _, a := range lifeAddrs {
		if versionOf(addr(a)) != f {
			continue
		}
		until, left := l.until(v, ports, a), got[a]
		if until.IsZero() != (left == 0) || left != 0 && !near(left, until.Sub(l.clock.Now())) {
			l.t.Fatalf("after %s: %s on %s to %s: the kernel has %v, the deadline is in %v", l.last, v.Pod.PodRef, ports, a, left, until.Sub(l.clock.Now()))
		}
	}
}

package enforcer

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/knftables"

	"github.com/namegate/namegate/kernel/conntrack"
	"github.com/namegate/namegate/kernel/iptables"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// lifeEgress are rules of NetworkPolicies.
var lifeEgress = []string{
	"any", "tcp/443", "tcp/443 db", "any db", "tcp/http web", "any web db", "udp/1-100 192.0.2.0/31", "any 10.2.0.0/16 !10.2.0.2/31 2001:db8:2::/64",
	"tcp/25,udp/53 0.0.0.0/0 ::/0", "tcp/http 10.2.0.0/30", "tcp/80 a", "any 192.0.2.3/32 2001:db8::/127",
}

// peerInput changes one thing of the NetworkPolicies or of the pods of other nodes.
func (l *life) peerInput() {
	switch name := pick(l.r, []string{"a", "b", "c"}); l.r.IntN(6) {
	case 0:
		l.netpols = slices.DeleteFunc(slices.Clone(l.netpols), func(n *networkingv1.NetworkPolicy) bool { return n.Name == name })
	case 1, 2:
		var rules []string
		for range l.r.IntN(4) {
			rules = append(rules, pick(l.r, lifeEgress))
		}
		l.netpols = slices.DeleteFunc(slices.Clone(l.netpols), func(n *networkingv1.NetworkPolicy) bool { return n.Name == name })
		l.netpols = append(l.netpols, netpol(name, rules...))
	default:
		n := 1 + l.r.IntN(4)
		name := fmt.Sprint("far", n)
		l.remote = slices.DeleteFunc(slices.Clone(l.remote), func(p *policy.Pod) bool { return p.Name == name })
		if l.r.IntN(4) == 0 {
			return
		}
		p := far(name, fmt.Sprintf("10.2.0.%d 2001:db8:2::%d", n, n), pick(l.r, []string{"db", "web", "none"}))
		p.Ports = []policy.NamedPort{{Name: "http", Protocol: policy.TCP, Port: pick(l.r, []uint16{443, 80})}}
		l.remote = append(l.remote, p)
	}
}

// abandon has a snapshot prepared that never comes into force, or in part, and
// connections to its peers begin meanwhile.
func (l *life) abandon() {
	change := func() { pick(l.r, []func(){l.input, l.peerInput})() }
	change()
	part := l.r.IntN(2) == 0
	var becomes policy.PodRef // isolated, if there is a policy
	if part && len(l.pods) > 0 {
		becomes = l.turnIsolated(pick(l.r, slices.Sorted(maps.Keys(l.pods))))
	}
	s := l.next()
	fatal.If(l.t, l.e.Prepare(context.Background(), s))
	if part {
		l.part(s, becomes)
	}
	for range 8 {
		if len(s.Views) == 0 {
			break
		}
		v, dst := pick(l.r, s.Views), addr(l.destination())
		src := v.Pod.IPs[0]
		if dst.Is6() {
			src = v.Pod.IPs[1]
		}
		p := &packet{Src: src, Dst: dst, Protocol: uint8(policy.TCP), DstPort: pick(l.r, []uint16{443, 80})}
		l.place(p)
		if l.passes(p) && p.Conn&DefaultMark != 0 {
			l.serial++
			f := conntrack.Flow{Protocol: p.Protocol, Src: netip.AddrPortFrom(src, uint16(l.serial)), Dst: netip.AddrPortFrom(dst, p.DstPort), Mark: p.Conn}
			l.world.flows.Track(f)
			l.flows = append(l.flows, opened{f, v.Pod, true, true})
		}
	}
	if l.r.IntN(2) == 0 {
		change()
	}
	l.roll(false)
}

// turnIsolated has no policy select a pod, and then all that there are.
func (l *life) turnIsolated(name string) policy.PodRef {
	p := l.pods[name]
	p.Labels = map[string]string{}
	l.pods[name] = p
	l.roll(false)
	l.checkFlows()
	p.Labels = map[string]string{"a": "yes", "b": "yes", "c": "yes"}
	l.pods[name] = p
	return p.PodRef
}

// part brings what is prepared into force for some pods, of which one waits in any case.
func (l *life) part(s *policy.Snapshot, waits policy.PodRef) {
	waiting := map[policy.PodRef]bool{}
	for _, v := range s.Views {
		waiting[v.Pod.PodRef] = v.Pod.PodRef == waits || l.r.IntN(2) == 0
	}
	maps.DeleteFunc(waiting, func(_ policy.PodRef, waits bool) bool { return !waits })
	last := l.snap
	part, err := l.e.CommitPart(context.Background(), waiting)
	fatal.If(l.t, err)
	l.snap = part
	l.takeBack(part)
	l.checkFlows()
	for _, v := range s.Views {
		was, is := last.Isolates(v.Pod.PodRef), part.Isolates(v.Pod.PodRef)
		if was && !is || !is && !waiting[v.Pod.PodRef] {
			l.t.Fatalf("%s was isolated %v, waits %v, is isolated %v", v.Pod.PodRef, was, waiting[v.Pod.PodRef], is)
		}
		if is {
			l.parted++
		} else {
			l.waited++
		}
		p := &packet{Src: v.Pod.IPs[0], Dst: addr("192.0.2.99"), Protocol: uint8(policy.TCP), DstPort: 443}
		l.place(p)
		if passes := l.passes(p); passes == is && !l.peers(v, conntrack.Flow{Protocol: 6, Dst: netip.AddrPortFrom(p.Dst, p.DstPort)}) {
			l.t.Fatalf("after a part: %s passes %v, is isolated %v", v.Pod.PodRef, passes, is)
		}
	}
}

// destination is something to dial.
func (l *life) destination() string {
	if l.r.IntN(2) == 0 {
		return pick(l.r, lifeAddrs)
	}
	if l.r.IntN(4) == 0 && len(l.pods) > 0 {
		return l.pods[pick(l.r, slices.Sorted(maps.Keys(l.pods)))].IPs[l.r.IntN(2)].String()
	}
	return fmt.Sprintf(pick(l.r, []string{"10.2.0.%d", "2001:db8:2::%d"}), 1+l.r.IntN(4))
}

// peers tells by the snapshot whether NetworkPolicies allow a connection.
func (l *life) peers(v *policy.View, f conntrack.Flow) bool {
	allowed, _ := policy.Evaluate(v, l.snap, &policy.Flow{Protocol: policy.Protocol(f.Protocol), Dialled: f.Dst, Reached: f.Dst, Would: true})
	return allowed
}

// checkPeers compares the sets of peers with the snapshot's, and the networks of all sets with the snapshot's.
func (l *life) checkPeers() {
	want, got, networks := map[string][]string{}, l.peerSets(), map[netip.Prefix]bool{}
	for _, v := range l.snap.Views {
		all := slices.ContainsFunc(v.PeerRules(), func(r *policy.Rule) bool { return r.Peer == policy.Peer{} && r.Ports == policy.AnyPort })
		for _, r := range v.PeerRules() {
			switch {
			case !v.Enforced || all || r.Peer.Kind == policy.PeerAnywhere:
			case r.Peer.Kind == policy.PeerNetworks:
				for _, n := range l.snap.PeerSet(r.Peer).Networks {
					networks[n] = false
				}
			default:
				for _, f := range ipVersions {
					want[peerSetName(r.Peer, f)] = membersOf(l.snap.PeerSet(r.Peer), f)
				}
			}
		}
	}
	for name, members := range got {
		if !slices.Contains(l.inet.Table.Sets[name].Flags, knftables.IntervalFlag) {
			continue
		}
		delete(got, name)
		for _, text := range members {
			n, err := netip.ParsePrefix(text)
			if err != nil {
				n = netip.PrefixFrom(addr(text), addr(text).BitLen())
			}
			if _, wanted := networks[n]; !wanted {
				l.t.Fatalf("after %s: the set %s has the network %s", l.last, name, n)
			}
			for other := range networks {
				networks[other] = networks[other] || n.Overlaps(other) && n.Bits() <= other.Bits()
			}
		}
	}
	for n, there := range networks {
		if !there {
			l.t.Fatalf("after %s: no set has the network %s", l.last, n)
		}
	}
	diff.Fatal(l.t, want, got, "after", l.last, "sets of peers")
}

// membersOf is what the kernel is to hold of a set of pods or ports, sorted.
func membersOf(s *policy.PeerSet, f iptables.Family) []string {
	out := []string{}
	add := func(of netip.Addr, text string) {
		if versionOf(of) == f {
			out = append(out, text)
		}
	}
	for _, a := range s.Addrs {
		add(a, a.String())
	}
	for _, p := range s.Ports {
		add(p.Addr, fmt.Sprintf("%s %s %d", p.Addr, p.Protocol, p.Port))
	}
	slices.Sort(out)
	return out
}

package dataplane

import (
	"slices"

	"github.com/namegate/namegate/policy"
)

// WithEarlierPorts returns port sets, and those of an agent of the previous release for the
// same rules that left grants: they are taken in, and package grants moves them on.
func WithEarlierPorts(asked []policy.PortSet, left func(policy.PortSet) bool) []policy.PortSet {
	all := asked
	for _, ports := range asked {
		if was, differs := earlierPorts(ports); differs && !slices.Contains(all, was) && left(was) {
			all = append(slices.Clip(all), was)
		}
	}
	return all
}

// earlierPorts returns the port set that an agent of the previous release made of the ports
// that a set was read from: a port without a protocol was one of TCP alone there. Ports with
// all three protocols are taken for such ones. It tells whether that is another set.
func earlierPorts(s policy.PortSet) (earlier policy.PortSet, differs bool) {
	of := map[policy.Protocol][]policy.PortRange{}
	for _, r := range s.Ranges() {
		of[r.Protocol] = append(of[r.Protocol], r)
	}
	all := common(common(of[policy.TCP], of[policy.UDP]), of[policy.SCTP])
	if len(all) == 0 {
		return s, false
	}
	left := of[policy.TCP]
	for _, p := range []policy.Protocol{policy.UDP, policy.SCTP} {
		left = append(left, without(of[p], all)...)
	}
	return policy.NewPortSet(left...), true
}

// common returns the ports that are in both lists, as ranges of the first one's protocol.
func common(a, b []policy.PortRange) (out []policy.PortRange) {
	for _, x := range a {
		for _, y := range b {
			if first, last := max(x.First, y.First), min(x.Last, y.Last); first <= last {
				out = append(out, policy.PortRange{Protocol: x.Protocol, First: first, Last: last})
			}
		}
	}
	return out
}

// without returns the ranges without the ports of others, which are sorted.
func without(ranges, others []policy.PortRange) (out []policy.PortRange) {
	for _, r := range ranges {
		first, last := int(r.First), int(r.Last)
		add := func(to int) {
			if first <= to {
				out = append(out, policy.PortRange{Protocol: r.Protocol, First: uint16(first), Last: uint16(to)})
			}
		}
		for _, o := range others {
			if int(o.Last) < first || int(o.First) > last {
				continue
			}
			add(int(o.First) - 1)
			first = int(o.Last) + 1
		}
		add(last)
	}
	return out
}

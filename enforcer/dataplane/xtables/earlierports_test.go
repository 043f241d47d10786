package xtables

import (
	"maps"
	"testing"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/kernel/iptables"
	"github.com/namegate/namegate/policy"
)

// noGrants are grants without a set.
type noGrants struct{ dataplane.Grants }

func (noGrants) Holds(dataplane.GrantSet) bool { return false }

// TestEarlierPortsAreTakenIn: where agents of earlier releases left sets of the TCP ports that
// are ports of every protocol now, these are read, in either layout.
func TestEarlierPortsAreTakenIn(t *testing.T) {
	pod := policy.PodRef{Namespace: "shop", Name: "web", UID: "u"}
	const all, tcp policy.PortSet = "tcp/443,udp/443,sctp/443", "tcp/443"
	const ranges, tcpRange policy.PortSet = "tcp/1-9,udp/1-9,sctp/1-9", "tcp/1-9"
	shared, own := GrantSetName(pod, tcp, iptables.IPv4), ownSetName(pod, tcp, iptables.IPv4)
	st := dataplane.State{Grants: noGrants{}, Subjects: dataplane.Subjects{pod: {Pod: pod, Grants: []policy.PortSet{all, ranges}}}}
	of := func(ports policy.PortSet, name string) dataplane.GrantSet {
		return dataplane.GrantSet{Pod: pod, Ports: ports, Name: name}
	}
	for name, c := range map[string]struct {
		stale         string
		left, earlier map[string]dataplane.GrantSet
	}{
		"none":                    {"NG4-x", map[string]dataplane.GrantSet{}, map[string]dataplane.GrantSet{}},
		"the set of single ports": {shared, map[string]dataplane.GrantSet{shared: of(tcp, shared)}, map[string]dataplane.GrantSet{}},
		"a set of the port":       {own, map[string]dataplane.GrantSet{}, map[string]dataplane.GrantSet{own: of(tcp, shared)}},
		"a set of a range": {GrantSetName(pod, tcpRange, iptables.IPv4),
			map[string]dataplane.GrantSet{GrantSetName(pod, tcpRange, iptables.IPv4): of(tcpRange, GrantSetName(pod, tcpRange, iptables.IPv4))}, map[string]dataplane.GrantSet{}},
	} {
		sets, left, earlier := missingGrants(st, map[string]bool{c.stale: true})
		if !maps.Equal(left, c.left) {
			t.Errorf("%s: left %v", name, left)
		}
		if !maps.Equal(earlier, c.earlier) {
			t.Errorf("%s: earlier %v", name, earlier)
		}
		if want := 4 + len(c.left) + len(c.earlier); len(sets) != want {
			t.Errorf("%s: %d sets, want %d", name, len(sets), want)
		}
	}
}

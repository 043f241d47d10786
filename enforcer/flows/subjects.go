package flows

import (
	"net/netip"
	"slices"

	"github.com/namegate/namegate/kernel/conntrack"
)

// Reason says why connections of a pod address are judged again, and which. Of two
// reasons the greater counts.
type Reason uint8

const (
	// PeersLost says that the pod may not reach some peers any more. Its connections to lost peers
	// are judged.
	PeersLost Reason = iota + 1
	// Released says that no rule denies connections of the pod any more. Those of them stay admitted that rules for
	// ingress ask for.
	Released
	// PolicyChanged says that the pod may do less than before. All its connections are judged.
	PolicyChanged
	// RulesLost says that another program took rules away, by which the pod may have opened what
	// they deny. All its connections are judged, as new ones.
	RulesLost
	// PodRemoved says that the pod does not have the address any more. No connection of the address
	// stays admitted: a pod that gets it later inherits none.
	PodRemoved
)

// subjects are pod addresses whose connections are to be judged again.
type subjects struct {
	why map[netip.Addr]Reason
	// lost are the peers that pods of PeersLost lost, with these pods, one set for each
	// Recheck. A connection to a peer that another pod lost is not judged: the grant that
	// allowed it may have ended and be forgotten.
	lost map[netip.Addr][]map[netip.Addr]bool
}

func newSubjects() subjects {
	return subjects{map[netip.Addr]Reason{}, map[netip.Addr][]map[netip.Addr]bool{}}
}

// merge adds other subjects, with at most a reason.
func (s *subjects) merge(o subjects, most Reason) {
	for a, why := range o.why {
		s.why[a] = max(s.why[a], min(why, most))
	}
	for peer, pods := range o.lost {
		s.lost[peer] = append(s.lost[peer], pods...)
	}
}

// peersAlone tells whether only connections to lost peers are judged.
func (s *subjects) peersAlone() bool {
	for _, why := range s.why {
		if why != PeersLost {
			return false
		}
	}
	return true
}

// concern tells whether a connection from one of the addresses is to be judged.
func (s *subjects) concern(f conntrack.Flow) bool {
	return s.why[f.Src.Addr()] != PeersLost ||
		slices.ContainsFunc(s.lost[f.Peer.Addr()], func(pods map[netip.Addr]bool) bool { return pods[f.Src.Addr()] })
}

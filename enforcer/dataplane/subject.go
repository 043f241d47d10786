package dataplane

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/namegate/namegate/kernel/link"
	"github.com/namegate/namegate/policy"
)

// Subjects are the subjects of a node, by pod.
type Subjects map[policy.PodRef]*Subject

// Sorted returns the subjects in the order of their pods.
func (s Subjects) Sorted() []*Subject {
	return slices.SortedFunc(maps.Values(s), func(a, b *Subject) int {
		return cmp.Or(strings.Compare(a.Pod.Namespace, b.Pod.Namespace), strings.Compare(a.Pod.Name, b.Pod.Name), strings.Compare(a.Pod.UID, b.Pod.UID))
	})
}

// Subject is the wanted state of one pod, or of the node.
type Subject struct {
	Pod   policy.PodRef
	Addrs []netip.Addr
	// Judged are the addresses whose packets the rules of the subject judge: Addrs or, between two
	// snapshots, also those of the coming subject, and none that another coming subject has.
	Judged []netip.Addr
	// Grants are the port sets on which the subject may reach its granted addresses.
	Grants []policy.PortSet
	// Peers are the rules about actual destinations, nil for none.
	Peers *RuleList
	// Tiers are the rules before and behind those of the Namespace tier, nil for none.
	Tiers *Tiers
	// Ingress are the rules for connections to the subject, nil if none judges these.
	Ingress *Tiers
	// Confirmed are the tiers of the node without the rules of policies that wait for
	// confirmation, nil if none waits.
	Confirmed *Tiers
	// Would are tiers of the node that deny what its Audit policies would deny, nil for none.
	Would *Tiers
	// Entries are the rules of tiers, sorted, for which addresses may be granted to it.
	Entries []policy.RuleID
	// Views are the views in force that isolate the subject: between two snapshots both.
	// Snapshot has their peers.
	Views    []*policy.View
	Snapshot *policy.Snapshot
	Homes    map[netip.Addr]link.Home
	// Homeless are addresses whose home is still to come: a packet that has one is forged.
	Homeless []netip.Addr
	// Isolated subjects are default-deny. The sets and rules of others are only made ready.
	Isolated bool
	// Staged subjects are isolated, or about to be: their rules already exist, so that
	// connections opened meanwhile continue.
	Staged bool
	// Audited subjects have connections logged that Audit policies could deny.
	Audited bool
	// Node is set if the subject is the node, and its rules are in force. It has no addresses, and
	// is neither isolated nor staged. A node with Audit policies alone is a subject without Node.
	Node      *policy.Node
	Drop      bool // deny without an answer
	Intercept bool // DNS
	// BridgesUnseen: netfilter does not see what crosses bridges, so that bridge ports
	// cannot be told apart.
	BridgesUnseen bool
}

// SameRules tells whether two values of a subject have the same homes and rules about names.
func (s *Subject) SameRules(o *Subject) bool {
	return slices.Equal(s.Addrs, o.Addrs) && slices.Equal(s.Judged, o.Judged) &&
		slices.Equal(s.Grants, o.Grants) && maps.Equal(s.Homes, o.Homes) && slices.Equal(s.Homeless, o.Homeless) &&
		s.BridgesUnseen == o.BridgesUnseen && (s.Ingress == nil) == (o.Ingress == nil) && s.Isolated == o.Isolated
}

// SameButNames tells whether a change from one value to the other leaves what the dataplane holds as it is, but for
// grants, and needs nothing in the tables before it is in force. Entries are of Tiers.
func (s Subjects) SameButNames(o Subjects) bool {
	return maps.EqualFunc(s, o, func(a, b *Subject) bool {
		return a.SameRules(b) && a.Tiers.Same(b.Tiers) && a.Ingress.Same(b.Ingress) && a.Confirmed.Same(b.Confirmed) && a.Would.Same(b.Would) &&
			a.Peers.Within(b.Peers) && b.Peers.Within(a.Peers) &&
			a.Staged == b.Staged && a.Audited == b.Audited && a.Node == b.Node && a.Drop == b.Drop && a.Intercept == b.Intercept
	})
}

// Asks tells whether the subject's rules ask a set of its grants.
func (s *Subject) Asks(set GrantSet) bool {
	switch {
	case s == nil:
		return false
	case set.Rule == "":
		return slices.Contains(s.Grants, set.Ports)
	}
	_, asked := slices.BinarySearch(s.Entries, set.Rule)
	return asked && (s.Node != nil || slices.Contains(s.Addrs, set.Subject))
}

// PodID is a short, stable name of a pod in the names of objects in the kernel: the first 12
// hex digits of SHA-256 over its reference. Two pods of one node share one with a
// probability of about n²/2⁴⁹.
func PodID(r policy.PodRef) string {
	sum := sha256.Sum256([]byte(r.Namespace + "\x00" + r.Name + "\x00" + r.UID))
	return hex.EncodeToString(sum[:])[:PodIDLen]
}

// PodIDLen is the length of a PodID.
const PodIDLen = 12

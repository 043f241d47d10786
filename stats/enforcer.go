package stats

import (
	"net/netip"
	"time"
)

// Enforcer is the enforcer's state and its totals since its start.
type Enforcer struct {
	Selected int `json:"selected"`
	Grants   int `json:"grants"`
	// Homeless are addresses of selected pods that no interface leads to: their
	// source is not checked.
	Homeless []netip.Addr `json:"homeless,omitempty"`
	// HomeRefused are addresses of selected pods on bridges that no port of their own
	// leads to: nothing is accepted from them.
	HomeRefused []netip.Addr `json:"homeRefused,omitempty"`
	// Unseen are addresses of selected pods on bridges whose packets netfilter
	// does not see: nothing is enforced between pods of one bridge.
	Unseen []netip.Addr `json:"unseen,omitempty"`
	// Switched are addresses of selected pods behind a switch that is no bridge of the
	// kernel, each with the interface by which its packets leave the switch: nothing is enforced
	// inside it, and sources are not checked.
	Switched map[netip.Addr]string     `json:"switched,omitempty"`
	Serving  map[netip.Addr]netip.Addr `json:"serving"`
	Repairs  uint64                    `json:"repairs"`
	// Deviations are what has not been as wanted for more than a second.
	Deviations []Deviation `json:"deviations,omitempty"`
	Refused    uint64      `json:"refusedGrants"`
	// Evicted counts grants that ended before their deadline because their pod
	// had too many.
	Evicted uint64 `json:"evictedGrants"`
	// AtBound are the pods that hold as many grants as they may, as "namespace/name".
	AtBound []string `json:"podsAtGrantLimit,omitempty"`
	// FullestRule is the number of entries of the rule of a cluster policy that has most.
	FullestRule int `json:"fullestRuleEntries"`
	// Intercepting: DNS packets of selected pods come to this agent now.
	Intercepting bool `json:"intercepting"`
	// PeerSets is the number of sets of peers of NetworkPolicies in the kernel, one for
	// each family; PeerEntries is the number of all their entries.
	PeerSets    int `json:"peerSets"`
	PeerEntries int `json:"peerEntries"`
	// Bypassing are pods that sent DNS straight to a pod behind a resolver lately: a load
	// balancer of eBPF leads it past interception.
	Bypassing []netip.Addr `json:"bypassing,omitempty"`
	// DroppedTCP are pods with connections of DNS over TCP that were dropped lately, because the
	// pod or all pods together opened too many.
	DroppedTCP []netip.Addr `json:"droppedTCP,omitempty"`
	// NotCut are connections without admission whose packets a flow table of another program may still
	// forward, at most 16 of them.
	NotCut []string `json:"notCut,omitempty"`
	// Offloading has the flow tables of other programs that have an interface of a selected pod, by the
	// pod's address.
	Offloading map[netip.Addr]string `json:"offloading,omitempty"`
	// UnreadTables are nft tables of other programs that the start could not read, with the reason:
	// it is unknown whether their rules use the mark bits.
	UnreadTables []string `json:"unreadTables,omitempty"`
}

// Deviation is an object in the kernel, or a duty of the agent, that is not as wanted.
type Deviation struct {
	// Object is for example "nft chain inet namegate judge", "IPv4 mangle chains",
	// "heartbeat" or "write".
	Object string `json:"object"`
	// Since is when the deviation was noticed.
	Since time.Time `json:"since"`
	// Error is why it could not be repaired, "" where a repair is still to come.
	Error string `json:"error,omitempty"`
}

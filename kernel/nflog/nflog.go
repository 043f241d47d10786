package nflog

import (
	"context"
	"net/netip"
	"time"
)

// Interface yields the packets that netfilter logs to one group of its own.
type Interface interface {
	// Packets calls each with every packet of the group, in their order and from one
	// goroutine, until ctx ends, which is no error. While each works packets wait in a
	// bounded room of the kernel's; what does not fit is lost and counted. While
	// another program has the group it waits for it, and when it returns it has let go.
	// The error says why nothing can come any more. It is called once.
	Packets(ctx context.Context, each func(Packet)) error
	// Lost returns how often packets were lost: each time it was one or more.
	Lost() uint64
}

// The prefixes by which the kernel's rules say why they log a packet.
const (
	// PrefixDenied is of packets that are denied.
	PrefixDenied = "namegate denied "
	// PrefixReached is of packets that are denied, as they were translated. The packet as it was
	// dialled follows.
	PrefixReached = "namegate reached "
	// PrefixIngress is of packets that the rules for ingress of their destination deny.
	PrefixIngress = "namegate ingress "
	// PrefixNode is of packets that rules of the node deny, but for what its sockets send. The traffic, as
	// policy.Traffic writes it, and ingress or egress follow.
	PrefixNode = "namegate node "
	// PrefixNodeAudited is of packets that Audit policies of the node would deny, in the same way.
	PrefixNodeAudited = "namegate node-audited "
	// PrefixAudited is of packets that begin a connection of an audited pod.
	PrefixAudited = "namegate audited "
)

// Packet is a logged packet.
type Packet struct {
	// Prefix is the rule's.
	Prefix string
	// Time is when the agent received it.
	Time   time.Time
	Source netip.Addr
	// SourcePort is 0 where Destination has the port 0.
	SourcePort uint16
	// Destination has the port 0 where the protocol has none, or where it could not be
	// read.
	Destination netip.AddrPort
	// Protocol is what IPv6's extension headers lead to.
	Protocol uint8
	// Type is that of an ICMP message, 0 for other protocols.
	Type uint8
	// In and Out are the indexes of the interfaces by which it came and leaves, 0 for none.
	In, Out int
	// Owner is the owner of the socket of this machine that sent the packet; nil where the kernel
	// names none: the packet is forwarded, or it has no socket of a process.
	Owner *Owner
}

// Owner is the user and the group that a socket was made by, as the user namespace of its network
// namespace numbers them.
type Owner struct{ UID, GID uint32 }

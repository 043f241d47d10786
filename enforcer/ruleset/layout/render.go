package layout

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/namegate/namegate/kernel/nft"
)

// TableName is the name of the tables of both families.
const TableName = "namegate"

// NetTableName is the name of the second net's table.
const NetTableName = "namegate-net"

// The tables.
var (
	Inet   = nft.ID{Family: "inet", Name: TableName}
	Bridge = nft.ID{Family: "bridge", Name: TableName}
	Net    = nft.ID{Family: "inet", Name: NetTableName}
)

// LogGroup is the NFLOG group that packets are sent to before they are denied.
const LogGroup = 64

// dnsPort is the port that is intercepted and served (RFC 1035 §4.2).
const dnsPort = "53"

// Mode is how the tables find the Namespace tier's answers about what was dialled.
type Mode struct {
	Bits
	// Candidates: rules outside of these tables make candidates, which are asked.
	Candidates bool
	// HasGrants: subjects have sets of grants, and there is a second net.
	HasGrants bool
}

// All are the tables, in the order in which they are made.
var All = []nft.ID{Inet, Bridge, Net}

// Open opens the tables in the kernel.
func Open() (*nft.Tables, error) { return nft.Open(All...) }

// Memo is what the last rendering made, of which the next has what is the same. An empty one is as good.
type Memo struct {
	mode    Mode
	layouts []*nft.Layout
	objects objects
	members map[string]members
}

// members are those of a set of peers, as elements.
type members struct {
	PeerSet
	nft.Elements
}

// Layouts are the tables without a state.
func (memo *Memo) Layouts(m Mode) (out []nft.Table) {
	if memo.layouts == nil || memo.mode != m {
		memo.mode, memo.layouts = m, []*nft.Layout{inetLayout(m), bridgeLayout()}
		if m.HasGrants {
			memo.layouts = append(memo.layouts, netLayout(m.Bits))
		}
	}
	for _, l := range memo.layouts {
		out = append(out, nft.Table{Layout: l})
	}
	return out
}

// Render returns the tables that hold a state.
func (memo *Memo) Render(m Mode, s State) []nft.Table {
	out := memo.Layouts(m)
	memo.objects = s.objects(memo.objects)
	out[0].Chains, out[0].Sets, out[0].Elements = memo.objects.chains, memo.objects.sets, s.inet(memo.objects)
	kept := map[string]members{}
	for _, p := range memo.objects.peers {
		m := memo.members[p.Name]
		if m.Elements == nil || !reflect.DeepEqual(m.PeerSet, p) {
			m = members{p, peerElements(&p)}
		}
		kept[p.Name] = m
		maps.Copy(out[0].Elements, m.Elements)
	}
	memo.members = kept
	out[1].Elements = s.bridge()
	if m.HasGrants {
		out[2].Elements = s.net()
	}
	return out
}

// Concerns tells whether a change of an object of a table, and of an element of a set, is to be looked at: the tables of
// ours, and those of iptables in nftables that hold chains of ours. The dead-man switch, and the sets that the kernel
// fills, change all the time.
func Concerns(table, set string) bool {
	switch {
	case set == "":
		return table == TableName || table == NetTableName || slices.Contains(iptablesTables, table)
	case table == TableName:
		return set != alive.Name && !slices.ContainsFunc(inetSets(), func(s *nft.Set) bool { return s.Name == set && s.Fill > nft.Renewed })
	}
	return table == NetTableName
}

// iptablesTables are the tables of iptables in nftables that hold chains of ours.
var iptablesTables = []string{"raw", "mangle", "security"}

// HeartbeatTimeout is how long interception stays on after the last heartbeat: the
// dead-man switch of the design.
const HeartbeatTimeout = 3 * time.Second

// Heartbeat keeps interception on for another HeartbeatTimeout.
func (k InForce) Heartbeat(ctx context.Context) error { return k.Tables.Renew(ctx, alive) }

// Disable switches interception off at once.
func (k InForce) Disable(ctx context.Context) error { return k.Tables.Empty(ctx, alive) }

// Denied returns the number of packets that were denied since the tables were made, including unlogged ones.
func (k InForce) Denied() (uint64, error) { return k.Tables.Packets(Inet, deniedCounter) }

package limit

import (
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/share"
)

// Clients are the known clients by address, and one for all unknown sources. The zero
// value has no client.
type Clients struct {
	Watchdog Watchdog // of the queries with a slot

	mu          sync.RWMutex
	byAddr      map[netip.Addr]*Client
	unknown     Client
	queries     atomic.Int64
	connections atomic.Int64
}

// Client is one source address: its queries in flight, and its token buckets.
type Client struct {
	Queries TokenBucket
	Errors  TokenBucket // of the error replies to queries beyond a limit

	queries     atomic.Int32
	connections atomic.Int32
}

// Slot is the share of the limits that an admitted query has until Release. The zero
// value is none.
type Slot struct {
	client *Client
	epoch  uint32
}

// Taken tells whether there is a slot to release.
func (s Slot) Taken() bool { return s.client != nil }

// Result tells which limit a query reaches.
type Result uint8

// The results of Admit.
const (
	Admitted Result = iota
	ClientFull
	AllFull
)

// Of returns the client with the address.
func (c *Clients) Of(a netip.Addr) *Client {
	c.mu.RLock()
	of := c.byAddr[a]
	c.mu.RUnlock()
	if of != nil {
		return of
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if of = c.byAddr[a]; of == nil {
		if c.byAddr == nil {
			c.byAddr = map[netip.Addr]*Client{}
		}
		of = new(Client)
		c.byAddr[a] = of
	}
	return of
}

// Unknown returns the client that all unknown sources share: they cost no memory.
func (c *Clients) Unknown() *Client { return &c.unknown }

// Sweep drops the clients with nothing in flight whose address is not known any more.
func (c *Clients) Sweep(known func(netip.Addr) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for a, of := range c.byAddr {
		if !known(a) && of.queries.Load() == 0 && of.connections.Load() == 0 {
			delete(c.byAddr, a)
		}
	}
}

func queriesInFlight(l *corefile.Limits) share.Bound {
	return share.Bound{Resource: "queries in flight", Least: least(l.QueriesPerPod, l.Queries), Each: l.QueriesPerPod, All: l.Queries}
}

func tcpConnections(l *corefile.Limits) share.Bound {
	return share.Bound{Resource: "TCP connections", Least: least(l.ConnectionsPerPod, l.Connections), Each: l.ConnectionsPerPod, All: l.Connections}
}

// least returns what each client may have, whatever the others have.
func least(each, all int) int { return min(16, each, all/64) }

// Admit takes a slot for one query of the client. Exempt queries, the node's own, do
// not count against the limit of all, so that a flood cannot make the agent take itself
// for dead.
func (c *Clients) Admit(of *Client, l *corefile.Limits, exempt bool) (Slot, Result) {
	own, all := int(of.queries.Add(1)), int(c.queries.Add(1))
	if own > l.QueriesPerPod || !exempt && queriesInFlight(l).Room(own-1, all-1) < 1 {
		of.queries.Add(-1)
		c.queries.Add(-1)
		if own > l.QueriesPerPod {
			return Slot{}, ClientFull
		}
		return Slot{}, AllFull
	}
	return Slot{of, c.Watchdog.Begin()}, Admitted
}

// Release gives a slot back.
func (c *Clients) Release(s Slot) {
	s.client.queries.Add(-1)
	c.queries.Add(-1)
	c.Watchdog.End(s.epoch)
}

// Connect counts a connection of the client until Disconnect, and tells whether it is
// within the limits. An exempt one is within that of all.
func (c *Clients) Connect(of *Client, l *corefile.Limits, exempt bool) bool {
	own, all := int(of.connections.Add(1)), int(c.connections.Add(1))
	return own <= l.ConnectionsPerPod && (exempt || tcpConnections(l).Room(own-1, all-1) > 0)
}

// Disconnect ends what Connect began, whatever it said.
func (c *Clients) Disconnect(of *Client) {
	of.connections.Add(-1)
	c.connections.Add(-1)
}

// InFlight returns how many queries have a slot.
func (c *Clients) InFlight() int64 { return c.queries.Load() }

// Connections returns how many connections there are.
func (c *Clients) Connections() int64 { return c.connections.Load() }

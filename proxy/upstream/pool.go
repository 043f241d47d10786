package upstream

import (
	"errors"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/proxy/mmsg"
)

// ErrFault ends a query in which the package panicked.
var ErrFault = errors.New("a fault of the proxy")

// PacketBytes is the length of the buffer for a reply over UDP. A longer reply counts as
// truncated.
const PacketBytes = mmsg.PacketBytes

// Batch collects queries for upstreams and sends them together. It belongs to one
// goroutine. The zero value is empty.
type Batch = mmsg.SendBatch[*udpSocket]

// Options are the parameters of a Pool. The zero value is complete.
type Options struct {
	// Fault takes a recovered panic, with where it happened. Nil: a panic is not
	// recovered.
	Fault func(what string, r any)
	// Step is called at the steps of a query. Tests let a fault happen in it.
	Step func(name string)
}

// Forward is a zone and its upstreams of the moment.
type Forward struct {
	Zone *corefile.Zone
	// For is a resolver of the host: the zone takes the node's own queries to it alone. The zero
	// address: the zone takes the others.
	For   netip.Addr
	First []netip.AddrPort
	// Last are asked when none of First has answered.
	Last []netip.AddrPort
}

// Pool is the upstreams of all zones. Its methods may be called from any goroutine.
type Pool struct {
	options Options
	stats   Counters
	zones   atomic.Pointer[[]*Zone] // longest name first
	mu      sync.Mutex              // of changes
	ups     map[netip.AddrPort]*upstream
	mark    atomic.Uint32
}

// New returns a pool without zones.
func New(o Options) *Pool { return &Pool{options: o} }

// Counters are the running totals of a pool.
type Counters struct {
	Queries      atomic.Uint64 // sent, tries counted
	TCP          atomic.Uint64 // sent over TCP, of all
	Failures     atomic.Uint64 // tries without a reply
	WrongReplies atomic.Uint64 // replies that answer something else
	Shed         atomic.Uint64 // queries beyond max_concurrent of their zone
}

// Counters returns the totals.
func (p *Pool) Counters() *Counters { return &p.stats }

// Configure replaces the zones, and returns them in their order. They come longest name first, those
// of resolvers of the host last. A zone that stays keeps its queries, an upstream that stays its
// sockets and its health. Queries of a zone that is gone go on at the upstreams of the zone that
// covers its name now.
func (p *Pool) Configure(forwards []Forward) []*Zone {
	p.mu.Lock()
	defer p.mu.Unlock()
	used := map[netip.AddrPort]*upstream{}
	pick := func(list []netip.AddrPort) (ups []*upstream) {
		for _, to := range list {
			u := used[to]
			if u == nil {
				u = p.ups[to]
			}
			if u == nil {
				u = newUpstream(to, p)
			}
			used[to] = u
			ups = append(ups, u)
		}
		return ups
	}
	old := p.all()
	zones := make([]*Zone, 0, len(forwards))
	for _, f := range forwards {
		z := &Zone{pool: p, name: f.Zone.Name, of: f.For}
		if i := slices.IndexFunc(old, func(z *Zone) bool { return z.name == f.Zone.Name && z.of == f.For }); i >= 0 {
			z = old[i]
		}
		z.set(f.Zone, pick(f.First), pick(f.Last))
		zones = append(zones, z)
	}
	p.zones.Store(&zones)
	for _, z := range old {
		i := slices.IndexFunc(zones, func(heir *Zone) bool { return heir.of == z.of && z.name.HasSuffix(heir.name) })
		if i >= 0 && zones[i] != z {
			z.replace(zones[i].routes.Load())
		}
	}
	for to, u := range p.ups {
		if used[to] == nil {
			u.close()
		}
	}
	p.ups = used
	return zones
}

func (p *Pool) all() []*Zone {
	if zones := p.zones.Load(); zones != nil {
		return *zones
	}
	return nil
}

// Status is how many upstreams of a zone answer.
type Status struct {
	Zone     string // as in the Corefile
	Up, Down int    // upstreams of the last resort included
}

// Status returns the zones of the configuration in its order, with how many of their
// upstreams are up now. An upstream that is never probed counts as up.
func (p *Pool) Status() (out []Status) {
	for _, z := range p.all() {
		if z.of.IsValid() {
			continue
		}
		s, r := Status{Zone: z.name.String()}, z.routes.Load()
		for _, u := range slices.Concat(r.first, r.last) {
			if u.down(r.zone.MaxFails) {
				s.Down++
			} else {
				s.Up++
			}
		}
		out = append(out, s)
	}
	return out
}

// InFlight returns how many queries wait for an answer.
func (p *Pool) InFlight() (n int) {
	for _, z := range p.all() {
		n += int(z.inFlight.Load())
	}
	return n
}

// Close ends the queries under way soon, and closes the sockets with them.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, u := range p.ups {
		u.close()
	}
}

func (p *Pool) step(name string) {
	if p.options.Step != nil {
		p.options.Step(name)
	}
}

// aQuery is what a panic ends whose query has an owner.
const aQuery = "a query to the upstreams"

// net catches a panic, which ends the query of the owner; nil: nothing is left to be done about it.
func (p *Pool) net(what string, owner tryOwner) {
	if p.options.Fault == nil {
		return
	}
	if r := recover(); r != nil {
		p.options.Fault(what, r)
		if owner != nil {
			owner.broken()
		}
	}
}

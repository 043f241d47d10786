package cache

import (
	"encoding/binary"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/proxy/rebind"
	"github.com/namegate/namegate/proxy/wire"
)

// Reply is a finished reply from a cached answer, for one view and one form of the query.
// The next query of that form gets it with its own id, spelling and the remaining TTLs:
// nothing is decided again, because the inputs of the decision have not changed, and
// nothing is granted, because the kernel has it.
//
// Of a snapshot a reply depends on the view, which is part of its key and which the
// compiler keeps while the pod, its policies and NetworkPolicies stay, and on the
// addresses of pods, which the guard protects. Pods of other nodes may come and go.
type Reply struct {
	Config *corefile.Config
	// Grants are what has to be open in the kernel when the reply leaves.
	Grants []policy.Grant
	// Guarded are the guard's verdicts on the addresses.
	Guarded rebind.Verdicts
	Verdict audit.Verdict
	Line    *audit.Prepared // nil where nothing is logged
	// NamesEpoch counts the changes of the pod's followed names, nil without a pod. Epoch is
	// the count by which the reply was decided.
	NamesEpoch *atomic.Uint64
	Epoch      uint64
	Followed   bool
	// Rate limits the renewals of the entry for the pod.
	Rate  policy.ZoneRate
	Until time.Duration // the reply is not given from then on

	message []byte
	ttls    []uint16 // the offsets of TTLs in message
	age     uint32   // of the entry when the TTLs were written, seconds

	guardedAt atomic.Uint64 // the server's version in which the guard confirmed the verdicts
	coveredAt atomic.Uint64 // the checker's epoch, and one, in which the grants were found open
}

// NewReply is a reply to queries for the entry, whose TTLs count from the moment base.
// version is the server's by which the guard judged.
func NewReply(e *Entry, message []byte, base time.Duration, version uint64) *Reply {
	r := &Reply{message: message, ttls: wire.TTLOffsets(message), Until: e.expires, age: uint32((base - e.stored) / time.Second)}
	r.guardedAt.Store(version)
	return r
}

// TTLsFrom returns the moment at which the TTLs of the reply were written.
func (r *Reply) TTLsFrom(e *Entry) time.Duration { return e.stored + time.Duration(r.age)*time.Second }

// Valid tells whether the reply is what would be decided at the moment now too.
func (r *Reply) Valid(e *Entry, c *corefile.Config, now time.Duration) bool {
	return r.Config == c && now < r.Until && e.age(now) >= r.age && (r.NamesEpoch == nil || r.NamesEpoch.Load() == r.Epoch)
}

// Guard tells whether the guard's verdict on each address is unchanged. It is asked once
// in each version of the server.
func (r *Reply) Guard(g *rebind.Guard, snap *policy.Snapshot, version uint64) bool {
	if r.guardedAt.Load() == version {
		return true
	}
	if !g.Confirms(&r.Guarded, snap) {
		return false
	}
	r.guardedAt.Store(version)
	return true
}

// CoverageChecker tells which grants are open in the kernel.
type CoverageChecker interface {
	// Covered tells whether the kernel has acknowledged every address of every
	// grant until its deadline or later. It neither blocks nor allocates; false
	// costs no more than a call of Grant.
	Covered(grants []policy.Grant) bool
	// Epoch is another number as soon as something that was covered may not be any
	// more: while it is the same as before a Covered that said true, that still holds.
	Epoch() uint64
}

// Covered tells whether all is open that has to be.
func (r *Reply) Covered(c CoverageChecker) bool {
	if len(r.Grants) == 0 {
		return true
	}
	epoch := c.Epoch() + 1
	if r.coveredAt.Load() == epoch {
		return true
	}
	if !c.Covered(r.Grants) {
		return false
	}
	r.coveredAt.Store(epoch)
	return true
}

// Copy writes the reply to the query into out and returns its length, 0 where it is too
// long for the client or out.
func (r *Reply) Copy(e *Entry, q *wire.QueryView, now time.Duration, out []byte) int {
	if len(r.message) > min(q.Limit, len(out)) {
		return 0
	}
	n := copy(out, r.message)
	q.Address(out)
	if older := e.age(now) - r.age; older > 0 {
		for _, at := range r.ttls {
			ttl := binary.BigEndian.Uint32(out[at:])
			binary.BigEndian.PutUint32(out[at:], ttl-min(ttl, older))
		}
	}
	return n
}

// size is about how many bytes it takes, 0 for nil.
func (r *Reply) size() int64 {
	if r == nil {
		return 0
	}
	size := replyBytes + len(r.message) + guardedBytes*len(r.Guarded.Addrs)
	for i := range r.Grants {
		size += grantBytes + addrBytes*len(r.Grants[i].Addrs)
	}
	if r.Line != nil {
		size += r.Line.Size()
	}
	return int64(size)
}

// forms are the replies of one entry for one view: to queries without EDNS, and with. The view of an
// unselected client is nil.
type forms [2]*Reply

func form(edns bool) int {
	if edns {
		return 1
	}
	return 0
}

const (
	// maxReplies bounds the views with replies of one entry, and replyShare the part of the cache's
	// bytes that they may take: beyond either all of the entry are dropped.
	maxReplies = 512
	replyShare = 64
	// dropEach is of how many entries replies are dropped while queries wait.
	dropEach = 256
	// The measured memory of a reply beside its message and its line, of a grant beside
	// its addresses, of an address, and of an address that the guard judged.
	replyBytes, grantBytes, addrBytes, guardedBytes = 480, 160, 24, 40
)

// Packet returns the fresh or stale entry for the query at the moment now, and the reply
// for the view that is kept with it; nil for none.
func (c *Cache) Packet(q *wire.QueryView, v *policy.View, now time.Duration) (*Entry, *Reply) {
	var room [wire.MaxName]byte
	name := q.AppendName(room[:0])
	asks := q.Query(fqdn.Name(unsafe.String(unsafe.SliceData(name), len(name)))) // it is not kept
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.find(asks)
	switch {
	case e == nil || now >= e.staleUntil:
		return nil, nil
	case !e.Fresh(now):
		return e, nil
	}
	return e, e.replies[v][form(q.EDNS)]
}

// Store keeps a reply to the query, unless its view is not in force any more: DropReplies
// is called after a view is taken out of force.
func (c *Cache) Store(e *Entry, q *wire.QueryView, v *policy.View, r *Reply, inForce func(*policy.View) bool) {
	c.store(e, v, form(q.EDNS), r, inForce)
}

func (c *Cache) store(e *Entry, v *policy.View, form int, r *Reply, inForce func(*policy.View) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.has(e) || !inForce(v) {
		return
	}
	if c.config != r.Config {
		for old := range c.withReplies {
			c.drop(old)
		}
		c.config = r.Config
	}
	own, known := e.replies[v]
	by := r.size() - own[form].size()
	if !known && len(e.replies) >= maxReplies || e.replyBytes+by > c.mostBytes/replyShare {
		c.drop(e)
		own, by = forms{}, r.size()
	}
	if by > c.mostBytes/replyShare {
		return
	}
	if e.replies == nil {
		e.replies = map[*policy.View]forms{}
	}
	own[form] = r
	e.replies[v] = own
	e.replyBytes += by
	c.withReplies[e] = true
	c.grow(e, by)
}

// DropReplies forgets the replies to the pods of these views, which they would hold in
// memory.
func (c *Cache) DropReplies(gone map[*policy.View]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for e := range c.withReplies {
		for v, own := range e.replies {
			if gone[v] {
				by := own[0].size() + own[1].size()
				delete(e.replies, v)
				e.replyBytes -= by
				c.grow(e, -by)
			}
		}
		if len(e.replies) == 0 {
			c.drop(e)
		}
		if n++; n%dropEach == 0 {
			c.mu.Unlock()
			c.mu.Lock()
		}
	}
}

// drop forgets the entry's replies; the caller holds the lock.
func (c *Cache) drop(e *Entry) {
	c.grow(e, -e.replyBytes)
	e.replyBytes, e.replies = 0, nil
	delete(c.withReplies, e)
}

package proxy

import (
	"encoding/binary"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/proxy/audit"
)

// replay is a finished reply to a question that is kept, for one view and one
// form of the query. The next query of that form gets it again with its own id,
// spelling and the TTLs that are left: nothing is decided anew, since nothing by
// which it was decided has changed, and nothing is granted, since the kernel has it.
type replay struct {
	setup *setup
	snap  *policy.Snapshot
	wire  []byte
	ttls  []uint16 // where TTLs stand in wire
	age   uint32   // of the entry when the TTLs were written, seconds
	until time.Duration
	// grants are what has to be open in the kernel when the reply leaves.
	grants  []policy.Grant
	verdict audit.Verdict
	line    *audit.Prepared // nil where nothing is logged
	epoch   uint64          // of what is followed
}

// replayKey tells the replays of one entry apart. An unselected asker's view is nil.
type replayKey struct {
	view  *policy.View
	qtype uint16 // an entry that says that a name does not exist answers every type
	edns  bool
}

const (
	// replaysMost bounds the replays of one entry; beyond it those of views that
	// are no more make room, with all others.
	replaysMost = 512
	replayBytes = 400
)

// Coverer is what a Granter may be besides, so that replies can be given again
// without asking the kernel.
type Coverer interface {
	// Covered tells whether the kernel has acknowledged every address of every
	// grant until its deadline or later. It neither blocks nor allocates; false
	// costs no more than a call of Grant.
	Covered(grants []policy.Grant) bool
}

// replayed writes the reply to a query into out, if there is one to give again,
// and returns its length; 0: the query has to go the long way.
func (s *Server) replayed(q *quick, who *asker, started time.Time, out []byte) int {
	setup := s.setup.Load()
	e, r := setup.keeper.cache.replay(q, replayKey{who.view, q.qtype(), q.edns})
	if r == nil || r.setup != setup || r.snap != who.snap || r.epoch != s.follows.epoch.Load() {
		return 0
	}
	now := started.Sub(s.born)
	if now >= r.until || now < e.born || len(r.wire) > min(q.most, len(out)) {
		return 0
	}
	if len(r.grants) > 0 && (s.coverer == nil || !s.coverer.Covered(r.grants)) {
		return 0
	}
	n := copy(out, r.wire)
	out[0], out[1] = q.packet[0], q.packet[1]
	copy(out[headerBytes:], q.packet[headerBytes:q.end])
	if older := e.age(now) - r.age; older > 0 {
		for _, at := range r.ttls {
			ttl := binary.BigEndian.Uint32(out[at:])
			binary.BigEndian.PutUint32(out[at:], ttl-min(ttl, older))
		}
	}
	s.stats.Queries.Add(1)
	s.stats.CacheHits.Add(1)
	setup.keeper.touch(e, now)
	if who.view == nil {
		return n
	}
	s.stats.verdicts[r.verdict].Add(1)
	if r.line != nil {
		s.log.Write(audit.Record{Time: started, Latency: s.now().Sub(started), Address: who.addr, Cache: audit.CacheHit, Prepared: r.line})
	}
	return n
}

// replay finds what may answer the query; nil if there is nothing.
func (c *cache) replay(q *quick, k replayKey) (*entry, *replay) {
	var room [nameMost + 5]byte
	key := q.appendKey(room[:0])
	if e, r := c.replayAt(key, k); e != nil {
		return e, r
	}
	binary.BigEndian.PutUint16(key[len(key)-5:], dns.TypeNone)
	return c.replayAt(key, k)
}

func (c *cache) replayAt(key []byte, k replayKey) (*entry, *replay) {
	s := c.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.find(key)
	if e == nil {
		return nil, nil
	}
	return e, e.replays[k]
}

// remember keeps a reply that went the long way for the queries that follow. t is
// nil for an asker whom no policy selects.
func (s *Server) remember(packet, wire []byte, a answer, who asker, setup *setup, t *turn) {
	q, ok := readQuick(packet)
	if !ok || a.kept == nil || a.how != audit.CacheHit || wire[2]&0x02 != 0 || questionBytes(wire) != q.end {
		return
	}
	e := a.kept
	r := &replay{setup: setup, snap: who.snap, wire: wire, ttls: ttlsOf(wire), until: e.end,
		age: uint32((a.base.Sub(s.born) - e.born) / time.Second), epoch: s.follows.epoch.Load()}
	if t != nil {
		if !t.single {
			return
		}
		r.grants, r.verdict = t.grants, t.rec.Verdict
		r.until = min(r.until, t.steady(s, e, r.age))
		if s.log != nil {
			r.line = audit.Prepare(&t.rec)
		}
	}
	setup.keeper.cache.addReplay(e, replayKey{who.view, q.qtype(), q.edns}, r)
}

func (c *cache) addReplay(e *entry, k replayKey, r *replay) {
	s := c.shardOf(e)
	s.mu.Lock()
	defer s.mu.Unlock()
	size := int64(replayBytes + len(r.wire))
	if r.line != nil {
		size += int64(r.line.Size())
	}
	if len(e.replays) >= replaysMost {
		clear(e.replays)
	}
	if e.replays == nil {
		e.replays = map[replayKey]*replay{}
	}
	if e.replays[k] == nil && s.has(e) {
		s.grow(e, size)
	}
	e.replays[k] = r
}

// has tells whether the entry is still there; the caller holds the lock.
func (s *shard) has(e *entry) bool {
	now, ok := s.lru.Peek(string(e.key()))
	return ok && now == e
}

// steady returns until when a reply that grants may be given again: as long as
// each of its deadlines stays what it is, and the least TTL that a policy has does
// not take effect. Where it does, or the greatest, the deadline moves on with
// each second.
func (t *turn) steady(s *Server, e *entry, age uint32) time.Duration {
	until := e.end
	step := e.born + time.Duration(age)*time.Second
	for _, ttl := range t.told {
		for _, m := range t.plan.decision.Matches {
			left := time.Duration(ttl) * time.Second
			switch {
			case m.Audit:
			case left < m.TTL.Min || left > m.TTL.Max:
				return step
			default:
				until = min(until, step+left-m.TTL.Min)
			}
		}
	}
	return until
}

// ttlsOf returns where in a message that we packed the TTLs of its records stand.
func ttlsOf(wire []byte) (at []uint16) {
	records := 0
	for i := 6; i < headerBytes; i += 2 {
		records += int(binary.BigEndian.Uint16(wire[i:]))
	}
	for i := questionBytes(wire); records > 0; records-- {
		i = skipName(wire, i)
		if i == 0 || i+10 > len(wire) {
			return at
		}
		if binary.BigEndian.Uint16(wire[i:]) != dns.TypeOPT {
			at = append(at, uint16(i+4))
		}
		i += 10 + int(binary.BigEndian.Uint16(wire[i+8:]))
	}
	return at
}

// skipName returns where the name at i ends, 0 if it does not.
func skipName(wire []byte, i int) int {
	for i < len(wire) {
		switch n := int(wire[i]); {
		case n == 0:
			return i + 1
		case n >= 0xc0:
			return i + 2
		default:
			i += 1 + n
		}
	}
	return 0
}

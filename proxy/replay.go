package proxy

import (
	"encoding/binary"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/proxy/rebind"
	"github.com/namegate/namegate/proxy/wire"
)

// replay is a finished reply to a question that is kept, for one view and one
// form of the query. The next query of that form gets it again with its own id,
// spelling and the TTLs that are left: nothing is decided anew, since nothing by
// which it was decided has changed, and nothing is granted, since the kernel has it.
//
// Of a snapshot a reply depends on the view, which is part of its key and which the
// compiler keeps while the pod, its policies and NetworkPolicies stay, and on whose
// addresses are pods', which the guard asks. Pods of other nodes may come and go.
type replay struct {
	config *corefile.Config
	judged rebind.Verdicts
	// guardedAt is the server's version in which the guard confirmed the verdicts.
	guardedAt atomic.Uint64

	wire  []byte
	ttls  []uint16 // where TTLs stand in wire
	age   uint32   // of the entry when the TTLs were written, seconds
	until time.Duration
	// grants are what has to be open in the kernel when the reply leaves.
	grants []policy.Grant
	// coveredAt is the Coverer's epoch, and one, in which they were found open.
	coveredAt atomic.Uint64
	verdict   audit.Verdict
	line      *audit.Prepared // nil where nothing is logged
	// led is what the pod was led to at the epoch; nil where nobody is led.
	led      *led
	epoch    uint64
	followed bool
}

// holds tells whether the reply is what would be decided for the asker at the moment
// now too.
func (r *replay) holds(setup *setup, who *asker, e *entry, now time.Duration) bool {
	return r.config == setup.config && now < r.until && e.age(now) >= r.age &&
		(r.led == nil || r.led.epoch.Load() == r.epoch) && r.guarded(setup.guard, who)
}

// guarded tells whether the guard says of each address what it said before. It is
// asked once in each version of the server.
func (r *replay) guarded(g *rebind.Guard, who *asker) bool {
	if r.guardedAt.Load() == who.version {
		return true
	}
	if !g.Confirms(&r.judged, who.snap) {
		return false
	}
	r.guardedAt.Store(who.version)
	return true
}

// covered tells whether all is open that has to be.
func (r *replay) covered(c Coverer) bool {
	epoch := c.Epoch() + 1
	if r.coveredAt.Load() == epoch {
		return true
	}
	if !c.Covered(r.grants) {
		return false
	}
	r.coveredAt.Store(epoch)
	return true
}

// size is about how many bytes it takes.
func (r *replay) size() int64 {
	size := replayBytes + len(r.wire) + judgedBytes*len(r.judged.Addrs)
	for i := range r.grants {
		size += grantBytes + addrBytes*len(r.grants[i].Addrs)
	}
	if r.line != nil {
		size += r.line.Size()
	}
	return int64(size)
}

// replayKey tells the replays of one entry apart. An unselected asker's view is nil.
type replayKey struct {
	view  *policy.View
	qtype uint16 // an entry that says that a name does not exist answers every type
	edns  bool
}

const (
	// replaysMost bounds the replays of one entry, and replaysShare the part of a
	// shard's bytes that they may take: beyond either all of the entry make room.
	replaysMost  = 512
	replaysShare = 4
	// What a replay takes beside its wire and its line, a grant of it with each
	// address, and an address that the guard judged, measured.
	replayBytes, grantBytes, addrBytes, judgedBytes = 480, 160, 24, 40
)

// replayed writes the reply to a query into out, if there is one to give again,
// and returns its length, 0 if there is none, and whether an answer is kept, which
// is the long way's.
func (s *Server) replayed(q *wire.QueryView, who *asker, started time.Time, out []byte) (n int, kept bool) {
	s.step("cache")
	setup := s.setup.Load()
	now := started.Sub(s.born)
	e, r := setup.keeper.cache.replay(q, replayKey{who.view, q.Type(), q.EDNS}, now)
	if r == nil || !r.holds(setup, who, e, now) || len(r.wire) > min(q.Limit, len(out)) {
		return 0, e != nil
	}
	if len(r.grants) > 0 && !r.covered(s.coverer) {
		return 0, true
	}
	n = copy(out, r.wire)
	q.Address(out)
	if older := e.age(now) - r.age; older > 0 {
		for _, at := range r.ttls {
			ttl := binary.BigEndian.Uint32(out[at:])
			binary.BigEndian.PutUint32(out[at:], ttl-min(ttl, older))
		}
	}
	s.step("hit")
	s.stats.Queries.Add(1)
	s.stats.CacheHits.Add(1)
	if r.followed {
		s.stats.Followed.Add(1)
	}
	setup.keeper.touch(e, now)
	if who.view == nil {
		return n, true
	}
	s.stats.verdicts.add(r.verdict, q.Type())
	s.step("log")
	took := s.now().Sub(started)
	s.stats.latency.again.observe(took)
	if r.line != nil {
		s.log.Write(audit.Record{Time: started, Latency: took, Address: who.addr, Cache: audit.CacheHit, Prepared: r.line})
	}
	return n, true
}

// replay finds what may answer the query at the moment now; nil if there is nothing.
func (c *cache) replay(q *wire.QueryView, k replayKey, now time.Duration) (*entry, *replay) {
	var room [wire.MaxKey]byte
	key := q.AppendKey(room[:0])
	s := c.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, r := s.replay(key, k, now); e != nil {
		return e, r
	}
	wire.SetKeyType(key, dns.TypeNone)
	return s.replay(key, k, now)
}

// replay is that of a key; the caller holds the lock.
func (s *shard) replay(key []byte, k replayKey, now time.Duration) (*entry, *replay) {
	e := s.find(key)
	switch {
	case e == nil || now >= e.gone:
		return nil, nil
	case !e.fresh(now):
		return e, nil
	}
	return e, e.replays[k]
}

// remember keeps a reply that went the long way for the queries that follow. t is
// nil for an asker whom no policy selects.
func (s *Server) remember(packet, reply []byte, a answer, who asker, setup *setup, t *turn) {
	q, ok := wire.ParseQuery(packet)
	if !ok || a.kept == nil || a.how != audit.CacheHit || reply[2]&0x02 != 0 || wire.QuestionEnd(reply) != q.End {
		return
	}
	if s.setup.Load().config != setup.config {
		return // nobody would get it
	}
	s.step("remember")
	e := a.kept
	r := &replay{config: setup.config, wire: reply, ttls: wire.TTLOffsets(reply), until: e.end,
		age: uint32((a.base.Sub(s.born) - e.born) / time.Second)}
	r.guardedAt.Store(who.version)
	if t != nil && !r.decided(t, e) {
		return
	}
	setup.keeper.cache.addReplay(e, replayKey{who.view, q.Type(), q.EDNS}, r, s.inForce)
}

// inForce tells whether the view, nil for an asker whom no policy selects, is one of
// the present snapshot.
func (s *Server) inForce(v *policy.View) bool {
	return v == nil || s.snapshot.Load().ViewOf(v.Pod.PodRef) == v
}

// decided completes a reply by the turn that it is of. False: it is of no use to
// another query, since it is of several answers, or failed.
func (r *replay) decided(t *turn, e *entry) bool {
	if !t.single || t.rec.Verdict == audit.Failed {
		return false
	}
	if t.view.Enforced && t.setup.config.Follow {
		r.led = t.s.follows.of(t.view.Pod.PodRef)
		r.epoch = r.led.epoch.Load() // before the look at what it was
	}
	until, ok := t.settled(t.s.elapsed())
	r.until = min(r.until, until, t.steady(e, r.age))
	r.grants, r.verdict, r.followed, r.judged = t.grants, t.rec.Verdict, t.plan.via != "", t.judged
	if t.s.repeats() {
		r.line = audit.Prepare(&t.rec)
	}
	return ok
}

// addReplay keeps a reply, unless its view is not in force any more: whoever drops the
// replies of a view has taken it out of force before.
func (c *cache) addReplay(e *entry, k replayKey, r *replay, inForce func(*policy.View) bool) {
	s := c.shardOf(e)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.has(e) || !inForce(k.view) {
		return
	}
	if s.config != r.config {
		for old := range s.telling {
			s.hush(old)
		}
		s.config = r.config
	}
	by := r.size()
	if old := e.replays[k]; old != nil {
		by -= old.size()
	} else if len(e.replays) >= replaysMost {
		s.hush(e)
	}
	if e.told+by > s.most/replaysShare {
		s.hush(e)
		if by = r.size(); by > s.most/replaysShare {
			return
		}
	}
	if e.replays == nil {
		e.replays = map[replayKey]*replay{}
	}
	e.replays[k] = r
	e.told += by
	s.telling[e] = true
	s.grow(e, by)
}

// dropReplies forgets the replies to the pods of these views, which they would hold
// in memory.
func (c *cache) dropReplies(gone map[*policy.View]bool) {
	for i := range c.shards {
		c.shards[i].dropReplies(gone)
	}
}

func (s *shard) dropReplies(gone map[*policy.View]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for e := range s.telling {
		for k, r := range e.replays {
			if gone[k.view] {
				delete(e.replays, k)
				e.told -= r.size()
				s.grow(e, -r.size())
			}
		}
		if len(e.replays) == 0 {
			s.hush(e)
		}
	}
}

// hush forgets the entry's replays; the caller holds the lock.
func (s *shard) hush(e *entry) {
	s.grow(e, -e.told)
	e.told, e.replays = 0, nil
	delete(s.telling, e)
}

// has tells whether the entry is still there; the caller holds the lock.
func (s *shard) has(e *entry) bool {
	now, ok := s.lru.Peek(e.key)
	return ok && now == e
}

// steady returns until when a reply may be given again: as long as each of its
// deadlines stays what it is, and no bound of a policy's TTL takes effect. Where one
// does, what is said and opened moves on with each second.
func (t *turn) steady(e *entry, age uint32) time.Duration {
	until := e.end
	step := e.born + time.Duration(age)*time.Second
	if t.plan.action != open {
		return until
	}
	longest := longestTTL(t.plan.decision)
	for _, rr := range t.answer.msg.Answer {
		if rr.Header().Ttl > longest {
			return step
		}
	}
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

package proxy

import (
	"hash/maphash"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"github.com/miekg/dns"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/proxy/wire"
)

// cacheShards is how many parts the cache has, each with a lock and bounds of its
// own: enough that the readers of the sockets seldom meet. All that is kept of one
// name is in one part.
const cacheShards = 16

// cache keeps answers by the key of their query, bounded by entries and bytes; the
// least recently used go first.
type cache struct {
	seed   maphash.Seed
	shards [cacheShards]shard
}

type shard struct {
	mu    sync.Mutex
	lru   *simplelru.LRU[string, *entry]
	bytes int64
	most  int64
	// telling are the entries with replays, which are all of one configuration: what is
	// of an older one is of no more use, and would hold it in memory.
	telling map[*entry]bool
	config  *corefile.Config
}

// entry is one answer that is kept. What is not a pointer of its own lock is
// written before it is put and not changed.
type entry struct {
	wire  []byte // the upstream's message
	from  netip.AddrPort
	query wire.Query
	key   string // that it is kept under
	zone  *corefile.Zone
	// born is when the upstream answered, end when the answer's time is over, gone
	// when it is not even given for want of a better: on the server's clock.
	born, end, gone time.Duration
	// nowhere: the name does not exist, which is true of every type.
	nowhere bool

	size    int64                 // of the shard's bytes; the shard's lock
	replays map[replayKey]*replay // the shard's lock
	told    int64                 // of size, what the replays take
	askers  map[policy.PodRef]bool
	heat    heat
	renewal atomic.Pointer[renewal]
	rest    atomic.Int64 // no renewal before this moment, since one failed; 0: none did
}

func newCache(entries int, bytes int64) *cache {
	c := &cache{seed: maphash.MakeSeed()}
	for i := range c.shards {
		s := &c.shards[i]
		s.most, s.telling = bytes/cacheShards, map[*entry]bool{}
		// The error is of a size below one.
		s.lru, _ = simplelru.NewLRU(max(entries/cacheShards, 1), func(_ string, e *entry) {
			s.bytes -= e.size
			delete(s.telling, e)
		})
	}
	return c
}

// shard returns the part for the name of the key.
func (c *cache) shard(key []byte) *shard {
	return &c.shards[maphash.Bytes(c.seed, wire.KeyName(key))%cacheShards]
}

func (c *cache) shardOf(e *entry) *shard {
	return &c.shards[maphash.String(c.seed, string(e.query.Name))%cacheShards]
}

// find returns what is kept under the key; the caller holds the lock. The key is
// not kept.
func (s *shard) find(key []byte) *entry {
	e, _ := s.lru.Get(lent(key))
	return e
}

// get returns what is kept for the query, nil for nothing: its own answer, or one
// that the name does not exist, which is true of every type (RFC 2308 §5). Where
// both are there that is the younger, and counts unless the other is not over.
func (c *cache) get(a wire.Query, now time.Duration) *entry {
	var room [wire.MaxKey]byte
	key := a.AppendKey(room[:0])
	s := c.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	own := s.find(key)
	if own != nil && own.fresh(now) {
		return own
	}
	wire.SetKeyType(key, dns.TypeNone)
	if e := s.find(key); e != nil && (own == nil || now < e.gone) {
		return e
	}
	return own
}

// fresh tells whether the entry's time is not over; a clock that went back to
// before its birth tells nothing.
func (e *entry) fresh(now time.Duration) bool { return e.born <= now && now < e.end }

// put keeps an entry in the place of those that it refutes. An answer that does
// not fit is not kept.
func (c *cache) put(e *entry) {
	var room [wire.MaxKey]byte
	key := e.query.AppendKey(room[:0])
	refuted := dns.TypeNone
	if e.nowhere {
		refuted = e.query.Type
		wire.SetKeyType(key, dns.TypeNone)
	}
	e.key = string(key)
	wire.SetKeyType(key, refuted)
	e.size = int64(entryBytes + len(e.key) + len(e.wire))
	s := c.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lru.Remove(lent(key))
	if e.size > s.most {
		return
	}
	s.lru.Remove(e.key)
	s.bytes += e.size
	s.lru.Add(e.key, e)
	s.shrink()
}

// lent is the key for a call that does not keep it.
func lent(key []byte) string { return unsafe.String(unsafe.SliceData(key), len(key)) }

// replaced removes an entry if it is still there: what was asked for in its
// place is not kept.
func (c *cache) replaced(e *entry) {
	s := c.shardOf(e)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.has(e) {
		s.lru.Remove(e.key)
	}
}

// clear removes all entries.
func (c *cache) clear() {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		s.lru.Purge()
		s.mu.Unlock()
	}
}

// grow notes that the entry has become bigger; the caller holds the lock.
func (s *shard) grow(e *entry, by int64) {
	e.size += by
	s.bytes += by
	s.shrink()
}

func (s *shard) shrink() {
	for s.bytes > s.most {
		if _, _, ok := s.lru.RemoveOldest(); !ok {
			return
		}
	}
}

// usage returns how many answers are kept, and about how many bytes they take.
func (c *cache) usage() (entries int, bytes int64) {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		entries += s.lru.Len()
		bytes += s.bytes
		s.mu.Unlock()
	}
	return entries, bytes
}

// entryBytes is what a kept answer takes beside its message and its key: the entry
// and its places in list and map, measured.
const entryBytes = 600

// message returns the entry's message, which is the caller's.
func (e *entry) message() *dns.Msg {
	m := new(dns.Msg)
	if err := m.Unpack(e.wire); err != nil {
		m.Rcode = dns.RcodeServerFailure // it was packed here, or read as a plain reply
	}
	return m
}

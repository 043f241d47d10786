package proxy

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"github.com/miekg/dns"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/proxy/corefile"
)

// cacheShards is how many parts the cache has, each with a lock and bounds of its
// own: enough that the readers of the sockets seldom meet.
const cacheShards = 16

// cache keeps answers by the key of their ask, bounded by entries and bytes; the
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
}

// entry is one answer that is kept. What is not a pointer of its own lock is
// written before it is put and not changed.
type entry struct {
	found
	ask  ask
	zone *corefile.Zone
	// born is when the upstream answered, end when the answer's time is over, gone
	// when it is not even given for want of a better: on the server's clock.
	born, end, gone time.Duration
	denial          bool

	size    int64                 // of the shard's bytes; the shard's lock
	replays map[replayKey]*replay // the shard's lock
	askers  map[policy.PodRef]bool
	heat    heat
	renewal atomic.Pointer[renewal]
	rest    atomic.Int64 // no renewal before this moment, since one failed; 0: none did
}

func newCache(entries int, bytes int64) *cache {
	c := &cache{seed: maphash.MakeSeed()}
	for i := range c.shards {
		s := &c.shards[i]
		s.most = bytes / cacheShards
		// The error is of a size below one.
		s.lru, _ = simplelru.NewLRU(max(entries/cacheShards, 1), func(_ string, e *entry) { s.bytes -= e.size })
	}
	return c
}

// shard returns the part that has the key.
func (c *cache) shard(key []byte) *shard {
	return &c.shards[maphash.Bytes(c.seed, key)%cacheShards]
}

// find returns what is kept under the key; the caller holds the lock. The key is
// not kept.
func (s *shard) find(key []byte) *entry {
	e, _ := s.lru.Get(unsafe.String(unsafe.SliceData(key), len(key)))
	return e
}

// get returns what is kept for the ask, nil for nothing: its own answer, or one
// that the name does not exist, which is true of every type (RFC 2308 §5).
func (c *cache) get(a ask) *entry {
	var room [nameMost + 5]byte
	for _, of := range []ask{a, a.anyType()} {
		key := of.appendKey(room[:0])
		s := c.shard(key)
		s.mu.Lock()
		e := s.find(key)
		s.mu.Unlock()
		if e != nil {
			return e
		}
	}
	return nil
}

// anyType is the ask under which it is kept that a name does not exist.
func (a ask) anyType() ask {
	a.Type = dns.TypeNone
	return a
}

// put keeps an entry in the place of those that it refutes. An answer that does
// not fit is not kept.
func (c *cache) put(e *entry) {
	c.remove(e.ask.appendKey(nil))
	c.remove(e.ask.anyType().appendKey(nil))
	key := e.key()
	e.size = sizeOf(key, e.msg)
	s := c.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.size > s.most {
		return
	}
	s.bytes += e.size
	s.lru.Add(string(key), e)
	s.shrink()
}

// key is what the entry is kept under. A name that does not exist has no record
// of any type; not so one whose CNAME leads to a name that does not exist.
func (e *entry) key() []byte {
	if e.msg.Rcode == dns.RcodeNameError && len(e.msg.Answer) == 0 {
		return e.ask.anyType().appendKey(nil)
	}
	return e.ask.appendKey(nil)
}

func (c *cache) shardOf(e *entry) *shard { return c.shard(e.key()) }

func (c *cache) remove(key []byte) {
	s := c.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lru.Remove(string(key))
}

// replaced removes an entry if it is still there: what was asked for in its
// place is not kept.
func (c *cache) replaced(e *entry) {
	key := e.key()
	s := c.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if now, ok := s.lru.Peek(string(key)); ok && now == e {
		s.lru.Remove(string(key))
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

// What a kept answer takes beside its records' own bytes: measured for the entry,
// its places in list and map, the message and a record of each.
const (
	entryBytes  = 700
	recordBytes = 160
)

func sizeOf(key []byte, m *dns.Msg) int64 {
	size := entryBytes + 2*len(key)
	for _, section := range [][]dns.RR{m.Answer, m.Ns, m.Extra} {
		for _, rr := range section {
			size += recordBytes + dns.Len(rr)
		}
	}
	return int64(size)
}

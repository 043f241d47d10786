package cache

import (
	"hash/maphash"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/proxy/wire"
)

// shards is how many parts the cache has, each with a lock and bounds of its own: enough
// that the readers of the sockets seldom meet. All entries of one name are in one part.
const shards = 16

// Cache keeps answers by the key of their query, bounded by entries and bytes; the least
// recently used go first. Times are of one clock that only goes forward.
type Cache struct {
	seed   maphash.Seed
	shards [shards]shard
}

type shard struct {
	mu    sync.Mutex
	lru   *simplelru.LRU[key, *Entry]
	bytes int64
	most  int64
	// withReplies are the entries with replies. All replies are of one configuration: a
	// reply of an older one is of no more use, and would hold it in memory.
	withReplies map[*Entry]bool
	config      *corefile.Config
}

// New returns an empty cache.
func New(entries int, bytes int64) *Cache {
	c := &Cache{seed: maphash.MakeSeed()}
	for i := range c.shards {
		s := &c.shards[i]
		s.most, s.withReplies = bytes/shards, map[*Entry]bool{}
		// The error is of a size below one.
		s.lru, _ = simplelru.NewLRU(max(entries/shards, 1), func(_ key, e *Entry) {
			s.bytes -= e.size
			delete(s.withReplies, e)
		})
	}
	return c
}

// key is a query without options.
type key struct {
	wire.Question
	flags wire.Flags
}

func keyOf(q wire.Query) key { return key{q.Question, q.Flags} }

// shard returns the part for a name.
func (c *Cache) shard(n fqdn.Name) *shard {
	return &c.shards[maphash.String(c.seed, string(n))%shards]
}

// find returns the entry for the query; the caller holds the lock. The query is not kept.
func (s *shard) find(q wire.Query) *Entry {
	e, _ := s.lru.Get(keyOf(q))
	return e
}

// Get returns the entry for the query, nil for none. NXDOMAIN counts for its own type: some
// servers say NXDOMAIN to AAAA and HTTPS for a name that has A (RFC 4074 §4.2).
func (c *Cache) Get(q wire.Query) *Entry {
	s := c.shard(q.Name)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.find(q)
}

// Put keeps an entry in the place of an earlier one. An answer that does not fit is not kept.
func (c *Cache) Put(e *Entry) {
	e.size = int64(entryBytes + len(e.Query.Name) + len(e.message))
	s, k := c.shard(e.Query.Name), keyOf(e.Query)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lru.Remove(k)
	if e.size > s.most {
		return
	}
	s.bytes += e.size
	s.lru.Add(k, e)
	s.shrink()
}

// Remove removes an entry if it is still there: the answer that replaces it is not kept.
func (c *Cache) Remove(e *Entry) {
	s := c.shard(e.Query.Name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.has(e) {
		s.lru.Remove(keyOf(e.Query))
	}
}

// Clear removes all entries.
func (c *Cache) Clear() {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		s.lru.Purge()
		s.mu.Unlock()
	}
}

// has tells whether the entry is still there; the caller holds the lock.
func (s *shard) has(e *Entry) bool {
	now, ok := s.lru.Peek(keyOf(e.Query))
	return ok && now == e
}

// grow notes that the entry has become bigger; the caller holds the lock.
func (s *shard) grow(e *Entry, by int64) {
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

// Usage returns how many answers are kept, and about how many bytes they take.
func (c *Cache) Usage() (entries int, bytes int64) {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		entries += s.lru.Len()
		bytes += s.bytes
		s.mu.Unlock()
	}
	return entries, bytes
}

// Age makes all entries older, and drops all replies: the times that they have for the
// log are of the clock as it was.
func (c *Cache) Age(by time.Duration) {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		for _, k := range s.lru.Keys() {
			e, _ := s.lru.Peek(k)
			o := e.older(by)
			s.lru.Add(k, o) // in its place, and the oldest first
			s.bytes += o.size - e.size
			delete(s.withReplies, e)
		}
		s.mu.Unlock()
	}
}

// NoteClient notes a pod that asked for the entry.
func (c *Cache) NoteClient(e *Entry, p policy.PodRef) {
	s := c.shard(e.Query.Name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.clients == nil {
		e.clients = map[policy.PodRef]bool{}
	}
	if len(e.clients) < maxClients && !e.clients[p] && s.has(e) {
		e.clients[p] = true
		s.grow(e, clientBytes)
	}
}

// Clients returns the pods that asked for the entry.
func (c *Cache) Clients(e *Entry) (pods []policy.PodRef) {
	s := c.shard(e.Query.Name)
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range e.clients {
		pods = append(pods, p)
	}
	return pods
}

const (
	// maxClients bounds the pods that are noted for an entry; a node runs 250 and seldom
	// more.
	maxClients  = 512
	clientBytes = 100
	// entryBytes is the measured memory of an entry beside its message and its name, with
	// its places in list and map, and its room.
	entryBytes = 600 + messageRoom
)

package cache

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/proxy/wire"
)

// Cache keeps answers by the key of their query, bounded by entries and bytes; the least
// recently used go first. Times are of one clock that only goes forward.
type Cache struct {
	most      int
	mostBytes int64

	mu      sync.Mutex
	entries map[key]*Entry
	used    Entry // begins and ends the list of the entries: the last used is next
	bytes   int64
	// withReplies are the entries with replies. All replies are of one configuration: a
	// reply of an older one is of no more use, and would hold it in memory.
	withReplies map[*Entry]bool
	config      *corefile.Config
}

// New returns an empty cache.
func New(entries int, bytes int64) *Cache {
	c := &Cache{most: max(entries, 1), mostBytes: bytes, entries: map[key]*Entry{}, withReplies: map[*Entry]bool{}}
	c.used.prev, c.used.next = &c.used, &c.used
	return c
}

// key is a query without options.
type key struct {
	wire.Question
	flags wire.Flags
}

func keyOf(q wire.Query) key { return key{q.Question, q.Flags} }

// find returns the entry for the query; the caller holds the lock. The query is not kept.
func (c *Cache) find(q wire.Query) *Entry {
	e := c.entries[keyOf(q)]
	if e != nil {
		e.unlink()
		c.link(e)
	}
	return e
}

// link makes the entry the last used; the caller holds the lock.
func (c *Cache) link(e *Entry) {
	e.prev, e.next = &c.used, c.used.next
	e.prev.next, e.next.prev = e, e
}

// unlink takes the entry out of its list; the caller holds the lock.
func (e *Entry) unlink() { e.prev.next, e.next.prev = e.next, e.prev }

// has tells whether the entry is in the cache still: it may be another cache's. The caller holds the lock.
func (c *Cache) has(e *Entry) bool { return e != nil && c.entries[keyOf(e.Query)] == e }

// Get returns the entry for the query, nil for none. NXDOMAIN counts for its own type: some
// servers say NXDOMAIN to AAAA and HTTPS for a name that has A (RFC 4074 §4.2).
func (c *Cache) Get(q wire.Query) *Entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.find(q)
}

// Put keeps an entry in the place of an earlier one. An answer that does not fit is not kept.
func (c *Cache) Put(e *Entry) {
	e.size = int64(entryBytes + len(e.Query.Name) + len(e.message))
	k := keyOf(e.Query)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(c.entries[k])
	if e.size > c.mostBytes/entryShare {
		return
	}
	c.entries[k] = e
	c.link(e)
	c.bytes += e.size
	c.shrink()
}

// Remove removes an entry if it is still there: the answer that replaces it is not kept.
func (c *Cache) Remove(e *Entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(e)
}

// remove is Remove, of nil too, for a caller that holds the lock.
func (c *Cache) remove(e *Entry) {
	if !c.has(e) {
		return
	}
	delete(c.entries, keyOf(e.Query))
	delete(c.withReplies, e)
	e.unlink()
	e.prev, e.next = nil, nil
	c.bytes -= e.size
}

// Clear removes all entries.
func (c *Cache) Clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.entries {
		c.remove(e)
	}
}

// grow notes that the entry has become bigger; the caller holds the lock.
func (c *Cache) grow(e *Entry, by int64) {
	e.size += by
	c.bytes += by
	c.shrink()
}

func (c *Cache) shrink() {
	for len(c.entries) > c.most || len(c.entries) > 0 && c.bytes > c.mostBytes {
		c.remove(c.used.prev)
	}
}

// Usage returns how many answers are kept, and about how many bytes they take.
func (c *Cache) Usage() (entries int, bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.entries), c.bytes
}

// Age makes all entries older, and drops all replies: the times that they have for the
// log are of the clock as it was.
func (c *Cache) Age(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range slices.Collect(maps.Values(c.entries)) {
		o := e.older(by)
		o.prev, o.next = e.prev, e.next
		o.prev.next, o.next.prev = o, o
		c.entries[keyOf(o.Query)] = o
		c.bytes += o.size - e.size
		e.prev, e.next = nil, nil
	}
	clear(c.withReplies)
}

// NoteClient notes a pod that asked for the entry, if the cache has it.
func (c *Cache) NoteClient(e *Entry, p policy.PodRef) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.clients == nil {
		e.clients = map[policy.PodRef]bool{}
	}
	if len(e.clients) < maxClients && !e.clients[p] && c.has(e) {
		e.clients[p] = true
		c.grow(e, clientBytes)
	}
}

// Clients returns the pods that asked for the entry.
func (c *Cache) Clients(e *Entry) (pods []policy.PodRef) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.AppendSeq(pods, maps.Keys(e.clients))
}

const (
	// entryShare is the part of the bytes that one answer may take.
	entryShare = 16
	// maxClients bounds the pods that are noted for an entry; a node runs 250 and seldom
	// more.
	maxClients  = 512
	clientBytes = 100
	// entryBytes is the measured memory of an entry beside its message and its name, with
	// its place in the map, and its room.
	entryBytes = 300 + messageRoom
)

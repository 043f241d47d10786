package access

import (
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

const (
	// cacheTTL is how long an answer of the API server counts: so long a right
	// that was taken away is still there. The API server's own webhooks have 10 s and more.
	cacheTTL = 10 * time.Second
	// maxCached bounds the answers that are kept, of each kind.
	maxCached = 1024
)

// ttlCache keeps answers for a while, the latest used ones if there are many.
type ttlCache[K comparable, V any] struct {
	now func() time.Time

	mu   sync.Mutex
	kept *simplelru.LRU[K, dated[V]]
}

type dated[V any] struct {
	value V
	until time.Time
}

func newTTLCache[K comparable, V any](now func() time.Time) *ttlCache[K, V] {
	kept, err := simplelru.NewLRU[K, dated[V]](maxCached, nil)
	if err != nil {
		panic(err) // of a size below one
	}
	return &ttlCache[K, V]{now: now, kept: kept}
}

// get returns the answer to a question if there is one of late.
func (r *ttlCache[K, V]) get(k K) (v V, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	d, ok := r.kept.Get(k)
	if !ok {
		return v, false
	}
	if !r.now().Before(d.until) {
		r.kept.Remove(k)
		return v, false
	}
	return d.value, true
}

func (r *ttlCache[K, V]) put(k K, v V) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kept.Add(k, dated[V]{v, r.now().Add(cacheTTL)})
}

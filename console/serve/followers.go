package serve

import (
	"net/http"
	"sync"

	"github.com/namegate/namegate/console"
)

const (
	// maxFollowers bounds the followers of the log other than root: each may make the agent
	// keep some 2 MiB of unread lines.
	maxFollowers = 24
	// maxFollowersOfOne bounds the followers of one user, so that others have places.
	maxFollowersOfOne = 8
)

// followers counts the followers.
type followers struct {
	mu  sync.Mutex
	all int
	of  map[string]int // by the name of the user
}

// enter takes a place, which leave gives back. Root always has one.
func (f *followers) enter(v Viewer) (leave func(), err error) {
	if _, root := v.(Everything); root {
		return func() {}, nil
	}
	name := v.Name()
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.of[name] >= maxFollowersOfOne:
		return nil, console.Refuse(http.StatusServiceUnavailable, "%s follows the log of this node %d times already, the limit for one user; end another, or ask without -f", name, maxFollowersOfOne)
	case f.all >= maxFollowers:
		return nil, console.Refuse(http.StatusServiceUnavailable, "%d follow the log of this node already, and no more can; ask without -f, or again later", maxFollowers)
	}
	f.add(name, 1)
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.add(name, -1)
	}, nil
}

func (f *followers) add(name string, n int) {
	if f.of == nil {
		f.of = map[string]int{}
	}
	f.all += n
	if f.of[name] += n; f.of[name] == 0 {
		delete(f.of, name)
	}
}

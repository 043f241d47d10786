package console

import (
	"net/http"
	"sync/atomic"
)

// maxFollowers bounds the followers of the log other than root: each may make the agent
// keep some 2 MiB of unread lines.
const maxFollowers = 24

// followers counts the followers.
type followers struct{ now atomic.Int32 }

// enter takes a place, which leave gives back. Root always has one.
func (f *followers) enter(v Viewer) (leave func(), err error) {
	if _, root := v.(Everything); root {
		return func() {}, nil
	}
	if f.now.Add(1) > maxFollowers {
		f.now.Add(-1)
		return nil, Refuse(http.StatusServiceUnavailable, "%d follow the log of this node already, and no more can; ask without -f, or again later", maxFollowers)
	}
	return func() { f.now.Add(-1) }, nil
}

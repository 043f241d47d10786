package console

import (
	"net/http"
	"sync/atomic"
)

// maxFollowers bounds who follow the log at a time, other than root: each may have
// the agent hold some 2 MiB of lines that were not taken yet.
const maxFollowers = 24

// followers counts who follow.
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

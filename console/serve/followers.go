package serve

import (
	"net/http"

	"github.com/namegate/namegate/console"
)

const (
	// maxFollowers bounds the followers of the log other than root: each may make the agent
	// keep some 2 MiB of unread lines.
	maxFollowers = 24
	// maxFollowersOfOne bounds the followers of one user, so that others have slots.
	maxFollowersOfOne = 8
)

// follower takes a slot for a follower, which release gives back. Root always has one.
func (h *handler) follower(v Viewer) (release func(), err error) {
	if _, root := v.(Everything); root {
		return func() {}, nil
	}
	release, own := h.followers.Acquire(v.Name(), maxFollowersOfOne, maxFollowers)
	switch {
	case release != nil:
		return release, nil
	case own >= maxFollowersOfOne:
		return nil, console.Refuse(http.StatusServiceUnavailable, "%s follows the log of this node %d times already, the limit for one user; end another, or ask without -f", v.Name(), maxFollowersOfOne)
	}
	return nil, console.Refuse(http.StatusServiceUnavailable, "%d follow the log of this node already, and no more can; ask without -f, or again later", maxFollowers)
}

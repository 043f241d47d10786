package serve

import "github.com/namegate/namegate/policy"

// What tests of the package's own parts call.
var (
	Choose     = choose
	FirstLines = firstLines
	Free       = free
)

const (
	MaxFollowers      = maxFollowers
	MaxFollowersOfOne = maxFollowersOfOne
)

// Followers are those of a handler.
type Followers struct{ handler }

// Enter takes a place.
func (f *Followers) Enter(v Viewer) (leave func(), err error) { return f.follower(v) }

// Find returns the pod of a state that a question names.
func Find(s *State, namespace, name string) (*policy.Pod, error) {
	return (&request{State: s}).find(namespace, name)
}

package serve

import "github.com/namegate/namegate/policy"

// What tests of the package's own parts call.
var (
	Choose     = choose
	FirstLines = firstLines
	Beyond     = beyond
	Free       = free
)

const (
	MaxFollowers      = maxFollowers
	MaxFollowersOfOne = maxFollowersOfOne
)

type Followers = followers

type Head = head

// Enter is enter.
func (f *followers) Enter(v Viewer) (leave func(), err error) { return f.enter(v) }

// Find returns the pod of a state that a question names.
func Find(s *State, namespace, name string) (*policy.Pod, error) {
	return (&request{State: s}).find(namespace, name)
}

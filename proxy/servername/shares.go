package servername

import (
	"net/netip"
	"sync"
	"time"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/proxy/corefile"
)

const (
	// perDestination bounds a pod's connections to one destination, open or waiting.
	perDestination = 2048
	// podBuffers is what a pod's connections share for data that a side does not read, with between minBuffer and
	// maxBuffer for each: the kernel's own bounds, 10 MiB a connection, would let one pod fill the agent's memory.
	podBuffers           = 8 << 20
	minBuffer, maxBuffer = 32 << 10, 4 << 20
	// portWait is how long a port waits after a connection (TIME_WAIT).
	portWait = time.Minute
)

// key is a pod and one of its destinations; without a pod, the destination for the node.
type key struct {
	pod policy.PodRef
	to  netip.AddrPort
}

// use is what is in use.
type use struct{ connections, hellos int }

// shares count what pods use.
type shares struct {
	corefile.RelayLimits
	mu   sync.Mutex
	all  use
	pods map[policy.PodRef]use
	to   map[key]int // connections
}

func newShares(l corefile.RelayLimits) shares {
	return shares{RelayLimits: l, pods: map[policy.PodRef]use{}, to: map[key]int{}}
}

// take takes a connection. If a bound is reached, it takes nothing and says which.
func (s *shares) take(k key) (bound string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.pods[k.pod].connections >= s.ConnectionsPerPod:
		return "connections of the pod"
	case s.to[k] >= perDestination:
		return "connections of the pod to the destination"
	case s.all.connections >= s.Connections:
		return "connections of all pods"
	case s.to[key{to: k.to}] >= maxPorts:
		return "connections of all pods to the destination"
	}
	s.add(k.pod, 1, 0)
	s.to[k]++
	s.to[key{to: k.to}]++
	return ""
}

// buffer returns the room of a pod's newest connection for what is not read.
func (s *shares) buffer(pod policy.PodRef) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(minBuffer, min(maxBuffer, podBuffers/max(1, s.pods[pod].connections)))
}

// wait takes a place for a connection whose hello has not arrived, which heard gives back. If a bound is reached,
// it takes nothing and says which.
func (s *shares) wait(pod policy.PodRef) (bound string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.pods[pod].hellos >= s.HellosPerPod:
		return "connections of the pod that wait for a ClientHello"
	case s.all.hellos >= s.Hellos:
		return "connections of all pods that wait for a ClientHello"
	}
	s.add(pod, 0, 1)
	return ""
}

// heard gives back the place of a hello.
func (s *shares) heard(pod policy.PodRef) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(pod, 0, -1)
}

// release gives back a connection. If a port waits, the destination's part is given back after that.
func (s *shares) release(k key, waits bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(k.pod, -1, 0)
	if waits {
		time.AfterFunc(portWait, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.leave(k)
		})
		return
	}
	s.leave(k)
}

func (s *shares) leave(k key) {
	for _, k := range []key{k, {to: k.to}} {
		if s.to[k]--; s.to[k] == 0 {
			delete(s.to, k)
		}
	}
}

func (s *shares) add(pod policy.PodRef, connections, hellos int) {
	s.all.connections += connections
	s.all.hellos += hellos
	u := s.pods[pod]
	u.connections += connections
	u.hellos += hellos
	if s.pods[pod] = u; u == (use{}) {
		delete(s.pods, pod)
	}
}

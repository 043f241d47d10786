package scenarios

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/namegate/namegate/e2e/lab"
)

// vigil is what became of connections to allowed and to denied addresses, one to each
// every 10 ms.
type vigil struct {
	over                            chan struct{}
	probes                          sync.WaitGroup
	allowed, failed, denied, passed atomic.Int64
}

// vigilance is how long a connection is tried that may be denied for a moment: less
// than the second after which TCP sends a lost packet again.
const vigilance = 900 * time.Millisecond

// watchfully begins a vigil of a pod's.
func (s *stage) watchfully(pod string, allowed, denied []string) *vigil {
	v := &vigil{over: make(chan struct{})}
	probe := func(to string, wrong func(netip.AddrPort) bool, tries, bad *atomic.Int64) {
		at := netip.MustParseAddrPort(to)
		v.probes.Go(func() {
			for { // once in any case, however soon it is over
				tries.Add(1)
				if wrong(at) {
					bad.Add(1)
				}
				select {
				case <-v.over:
					return
				case <-time.After(10 * time.Millisecond):
				}
			}
		})
	}
	for _, to := range allowed {
		probe(to, func(at netip.AddrPort) bool { return s.Pod(pod).ProbeFirst(at) != lab.Answered }, &v.allowed, &v.failed)
	}
	for _, to := range denied {
		probe(to, func(at netip.AddrPort) bool { return s.Pod(pod).Probe("tcp", at) == lab.Answered }, &v.denied, &v.passed)
	}
	return v
}

// end ends it.
func (v *vigil) end() {
	close(v.over)
	v.probes.Wait()
}

// verdict ends it, and returns what went wrong.
func (v *vigil) verdict() error {
	v.end()
	if v.failed.Load() > 0 || v.passed.Load() > 0 {
		return fmt.Errorf("%d of %d allowed connections failed and %d of %d denied ones passed", v.failed.Load(), v.allowed.Load(), v.passed.Load(), v.denied.Load())
	}
	if v.allowed.Load()+v.denied.Load() == 0 {
		return errors.New("no probe was made")
	}
	return nil
}

// vigil begins one in which nothing may go wrong; the returned function ends it.
func (s *stage) vigil(pod string, allowed, denied []string) (stop func(when string)) {
	v := s.watchfully(pod, allowed, denied)
	return func(when string) {
		s.t.Helper()
		if err := v.verdict(); err != nil {
			s.t.Errorf("%s: %v", when, err)
		}
		s.t.Logf("%s: %d allowed and %d denied connections", when, v.allowed.Load(), v.denied.Load())
	}
}

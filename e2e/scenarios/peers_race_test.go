package scenarios

import (
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/namegate/namegate/e2e/lab"
)

// opened are connections that were opened while something changed, the last of them: each
// takes two descriptors of this process.
type opened struct {
	mu    sync.Mutex
	conns []net.Conn
}

// mostOpened bounds the connections that are kept: of those that are answered, the last ones
// were opened as the change came into force.
const mostOpened = 1000

func (o *opened) add(c net.Conn) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.conns = append(o.conns, c); len(o.conns) > mostOpened {
		o.conns[0].Close()
		o.conns = o.conns[1:]
	}
}

// opens lets a pod open connections to addresses, one after the other to each, until it
// is stopped, and keeps answered ones.
func (s *peerStage) opens(pod string, to []string) (all *opened, stop func()) {
	all = &opened{}
	var wg sync.WaitGroup
	over := make(chan struct{})
	for _, network := range []string{"tcp", "udp"} {
		for _, at := range to {
			wg.Go(func() {
				for {
					select {
					case <-over:
						return
					default:
					}
					c, err := s.Pod(pod).Dial(network, netip.MustParseAddrPort(at).String(), lab.Patience)
					if err != nil {
						continue
					}
					if lab.Echo(c, lab.Patience) != lab.Answered {
						c.Close()
						continue
					}
					all.add(c)
					time.Sleep(time.Millisecond)
				}
			})
		}
	}
	return all, func() {
		close(over)
		wg.Wait()
	}
}

func (o *opened) none() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.conns) == 0
}

// answered counts the connections that are answered still, and closes all.
func (o *opened) answered() (alive int) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	for _, c := range o.conns {
		wg.Go(func() {
			defer c.Close()
			if lab.Echo(c, lab.Patience) == lab.Answered {
				mu.Lock()
				alive++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return alive
}

// TestNothingOpensInBetween: of the connections that a pod opens while an address is
// taken from its peers, at whatever moment, none is left when that is in force.
func TestNothingOpensInBetween(t *testing.T) {
	t.Parallel()
	eachDataplane(t, lab.Routed, func(t *testing.T, kind nodeKind) {
		s := newChangeStage(t, kind)
		s.start(s.manifests(map[string]string{"p.yaml": policy("p", selectsClient), "np.yaml": toDB}))
		comer := s.comers[:1]
		for turn := range 3 {
			s.relabel(comer[0].name, map[string]string{"db": "yes"})
			all, stop := s.opens("client", addressesOf(comer))
			for until := time.Now().Add(eventLimit); all.none(); time.Sleep(time.Millisecond) {
				if time.Now().After(until) {
					t.Fatalf("turn %d: nothing is opened: it proves nothing", turn)
				}
			}
			s.relabel(comer[0].name, map[string]string{"db": "no"})
			stop()
			if n := all.answered(); n > 0 {
				t.Errorf("turn %d: %d of %d connections that were opened meanwhile go on", turn, n, len(all.conns))
			}
		}
	})
}

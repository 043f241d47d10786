package scenarios

import (
	"fmt"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestLockHeld: while another program holds the lock of iptables, 10 s at least, names are
// answered and opened as ever, a pod that becomes selected is denied before the lock is
// free, and afterwards everything comes into force.
func TestLockHeld(t *testing.T) {
	t.Parallel()
	const held = 10 * time.Second
	s := newStageOf(t, nodeKind{lab.Routed, iptables, "legacy"}) // nftables has no lock
	s.outside.SetAnswer(upgradeAnswer)
	s.startClient(policy("all", "podSelector: {matchLabels: {app: client}}\negress:\n- matches: [{pattern: \"*.wild.example.org\"}, {name: www.example.org}]\n  ports: [{protocol: TCP, port: 80}]"))
	s.resolve("a", "www.example.org", dns.TypeA)
	s.expect("b", "tcp", "198.51.100.2:80", lab.Answered)
	stop := s.vigil("a", []string{"198.51.100.1:80"}, []string{"198.51.100.2:80"})
	release := s.holdLock()
	began := time.Now()
	fatal.If(t, s.agent.Write(map[string]string{"b.yaml": s.Pod("b").Manifest("shop", "b", map[string]string{"app": "client"})}))
	var denied time.Duration
	for i := 0; time.Since(began) < held || denied == 0 && time.Since(began) < eventLimit; i++ {
		asked := time.Now()
		for _, a := range s.resolve("a", fmt.Sprintf("b%d.wild.example.org", i), dns.TypeA) {
			s.expect("a", "tcp", netip.AddrPortFrom(a, 80).String(), lab.Answered)
		}
		if took := time.Since(asked); took > held/2 {
			t.Errorf("an answer and its connection took %v while the lock was held", took)
		}
		if got := s.Pod("b").Probe("tcp", addrPort("198.51.100.2:80")); denied == 0 && got != lab.Answered {
			denied = time.Since(began)
		} else if denied != 0 && got == lab.Answered {
			t.Error("a pod that became selected was denied, and is open again")
		}
		if _, err := s.agent.Status(); err != nil {
			t.Errorf("%v after the lock was taken the agent says nothing of itself: %v", time.Since(began), err)
		}
	}
	free := time.Since(began)
	release()
	if denied == 0 {
		t.Error("a pod that became selected was open for as long as the lock was held")
	}
	if err := s.agent.WaitFor("what the lock held up", func(st lab.Status) bool { return st.InSync && st.Enforcer.Selected == 2 }); err != nil {
		t.Error(err)
	}
	s.resolve("b", "www.example.org", dns.TypeA)
	s.eventually("b", "198.51.100.1:80", lab.Answered)
	s.expect("b", "tcp", "198.51.100.2:80", lab.Refused)
	stop("while the lock is held")
	t.Logf("the lock is free after %v, the pod that became selected is denied after %v", free.Round(time.Millisecond), denied.Round(time.Millisecond))
}

// holdLock takes the lock of iptables on the node, as soon as the agent does not have it,
// until release or the end of the test.
func (s *stage) holdLock() (release func()) {
	s.t.Helper()
	lock, err := os.Open(lab.XtablesLock(s.Node.Name))
	fatal.If(s.t, err)
	release = sync.OnceFunc(func() { _ = lock.Close() }) // which gives the lock back
	s.t.Cleanup(release)
	fatal.If(s.t, unix.Flock(int(lock.Fd()), unix.LOCK_EX))
	return release
}

package scenarios

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/lab"
)

// lockTaken is longer than an agent at rest ever holds the lock.
const lockTaken = 500 * time.Millisecond

// TestLockHeld: while another program holds the lock of iptables for 10 s names are
// answered and opened as ever, a pod that becomes selected is denied before the lock is
// free, and afterwards everything comes into force.
func TestLockHeld(t *testing.T) {
	const held = 10 * time.Second
	s := newStage(t, lab.Routed)
	var err error
	if s.agent, err = s.NewAgent(agentBinary, t.TempDir(), corefile, "--iptables", "legacy"); err != nil {
		t.Fatal(err)
	}
	s.outside.SetAnswer(upgradeAnswer)
	s.start(map[string]string{
		"a.yaml": s.Pod("a").Manifest("shop", "a", map[string]string{"app": "client"}),
		"p.yaml": policy("all", "podSelector: {matchLabels: {app: client}}\negress:\n- matches: [{pattern: \"*.wild.example.org\"}, {name: www.example.org}]\n  ports: [{protocol: TCP, port: 80}]"),
	})
	s.resolve("a", "www.example.org", dns.TypeA)
	s.expect("b", "tcp", "198.51.100.2:80", lab.Answered)
	stop := s.vigil("a", []string{"198.51.100.1:80"}, []string{"198.51.100.2:80"})
	began := time.Now()
	lock := s.agent.Dir + "/xtables.lock"
	released := begin(func() error {
		_, err := s.Node.Run("flock", lock, "sleep", fmt.Sprint(held.Seconds()))
		return err
	})
	// The agent takes it for moments too, so that it is held twice in a row says little;
	// for as long as the agent never does says it.
	for taken := time.Now(); time.Since(taken) < lockTaken; time.Sleep(10 * time.Millisecond) {
		if _, err := s.Node.Run("flock", "-n", lock, "true"); err == nil {
			taken = time.Now()
		}
		if time.Since(began) > held/2 {
			t.Fatal("the lock was not taken")
		}
	}
	if err := s.agent.Write(map[string]string{"b.yaml": s.Pod("b").Manifest("shop", "b", map[string]string{"app": "client"})}); err != nil {
		t.Fatal(err)
	}
	var denied, free time.Duration
	for i := 0; free == 0; i++ {
		select {
		case err := <-released:
			if free = time.Since(began); err != nil {
				t.Error(err)
			}
			continue
		default:
		}
		asked := time.Now()
		for _, a := range s.resolve("a", fmt.Sprintf("b%d.wild.example.org", i), dns.TypeA) {
			s.expect("a", "tcp", netip.AddrPortFrom(a, 80).String(), lab.Answered)
		}
		if took := time.Since(asked); took > time.Second {
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
	if free < held {
		t.Fatalf("the lock was held for %v", free)
	}
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

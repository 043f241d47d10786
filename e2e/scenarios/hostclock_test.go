package scenarios

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestANodesClockSteps sets the agent's clock by an hour and by more than a day, forward and back, while a policy
// for the node is enforced: what is denied stays denied, grants end at their deadlines, former failsafes
// stay, and the agent learns new addresses of a failsafe's name. So it is for an agent that takes over.
func TestANodesClockSteps(t *testing.T) {
	const former = "203.0.113.53"
	n := newNodeLab(t, worldResolvers+" "+former, func(n *nodeLab) {
		timeServers(n)
		n.world.SetAnswer(shortLived(n.world.Answer()))
		dns, err := n.World.Listen(former + ":53")
		fatal.If(t, err)
		t.Cleanup(func() { dns.Close() })
	})
	fatal.If(t, n.agent.Apply(map[string]string{"policies.yaml": nodeNames + "  ttl: {minSeconds: 1, maxSeconds: 600, graceSeconds: 1, inUse: Expire}\n"}))
	n.intercepted("192.0.2.53")
	fatal.If(t, lab.HostFiles(filepath.Join(n.dir, "host"), map[string]string{"etc/resolv.conf": "nameserver 192.0.2.53\n"}))
	fatal.Await(t, "a former resolver", func() bool {
		out, err := n.Node.Run(agentBinary, "status", "--socket", n.agent.Socket())
		return err == nil && strings.Contains(out, "not listed since")
	})
	clock := clockOf(t, n.agent)
	var times []string
	for i, ahead := range []time.Duration{time.Hour, -time.Hour, 25 * time.Hour, -25 * time.Hour, 0} {
		when := fmt.Sprintf("%v ahead", ahead)
		granted := fmt.Sprintf("198.51.100.%d", 240+i)
		asked := n.grants(when, fmt.Sprintf("a%d.example.org.", 240+i), granted)
		fatal.If(t, clock.Step(ahead))
		_, addrs, err := n.query("udp", "192.0.2.53", "time.test.", dns.TypeA) // the failsafes are listed again
		if err != nil || len(addrs) != 1 {
			t.Fatalf("%v, %v", addrs, err)
		}
		times = append(times, addrs[0])
		n.ends(granted, asked, endsTTL*time.Second)
		if i < 3 {
			c, err := n.Node.Dial("tcp", former+":53", lab.Limit)
			if err != nil {
				t.Fatalf("%s: a former resolver of the host: %v", when, err)
			}
			c.Close()
		}
		if i == 3 {
			fatal.If(t, n.agent.Upgrade())
			clock = clockOf(t, n.agent)
			when += ", and another agent"
		}
		n.reaches(when, "198.51.100.1", lab.Answered) // by the exact name
		n.reaches(when, "198.51.100.250", lab.Refused)
		for _, a := range times {
			n.hasTime(when, a)
		}
	}
}

// endsTTL is the TTL of the answers for a240.example.org and following, in seconds.
const endsTTL = 2

// shortLived makes a resolver's answers for the names of a test short.
func shortLived(answer lab.Answerer) lab.Answerer {
	return func(q *dns.Msg) *dns.Msg {
		r := answer(q)
		if strings.HasPrefix(q.Question[0].Name, "a24") {
			for _, rr := range r.Answer {
				rr.Header().Ttl = endsTTL
			}
		}
		return r
	}
}

// grants has the node query a name and reach the address, and returns when it queried. On a busy machine
// the grant may end before the probe: then it tries again.
func (n *nodeLab) grants(when, name, addr string) (asked time.Time) {
	n.t.Helper()
	for range 10 {
		asked = time.Now()
		if _, _, err := n.query("udp", "192.0.2.53", name, dns.TypeA); err != nil {
			n.t.Fatal(err)
		}
		got := n.Node.Probe("tcp", addrPort(addr+":80"))
		if got == lab.Answered {
			return asked
		}
		if late := time.Since(asked); late < endsTTL*time.Second {
			n.t.Fatalf("%s: the node to %s: %s, %v after its query", when, addr, got, late)
		}
	}
	n.t.Fatalf("%s: the machine is too busy to reach %s within the time of its grant", when, addr)
	return asked
}

// ends waits for the end of a grant of the node, which must not come before its time.
func (n *nodeLab) ends(addr string, asked time.Time, lasts time.Duration) {
	n.t.Helper()
	for n.Node.Probe("tcp", addrPort(addr+":80")) == lab.Answered {
		if late := time.Since(asked) - lasts; late > lab.Limit {
			n.t.Errorf("%s is open %v after its end", addr, late)
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	if lasted := time.Since(asked); lasted < lasts {
		n.t.Errorf("%s ended after %v, it was to last %v", addr, lasted, lasts)
	}
}

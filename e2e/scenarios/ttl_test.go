package scenarios

import (
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
)

const shortTTL = `
podSelector: {}
ttl: {minSeconds: 1, maxSeconds: 2, graceSeconds: 1, inUse: Expire}
egress:
- matches: [{pattern: "*.wild.test"}]
  ports: [{protocol: TCP, port: 80}]`

// echoing returns a function that asserts whether a connection is answered.
func echoing(t *testing.T) func(what string, c net.Conn, want bool) {
	return func(what string, c net.Conn, want bool) {
		t.Helper()
		if got := lab.Echo(c, map[bool]time.Duration{true: lab.Limit, false: lab.Patience}[want]); (got == lab.Answered) != want {
			t.Errorf("a connection %s: %s", what, got)
		}
	}
}

func TestRestartKeepsGrants(t *testing.T) {
	t.Parallel()
	eachDataplane(t, lab.Routed, func(t *testing.T, kind nodeKind) {
		s, echoes := newStageOf(t, kind), echoing(t)
		s.zone.add(`x.wild.test. 600 IN A 198.51.100.5
			y.gone.test. 600 IN A 198.51.100.6`)
		wild := `
podSelector: {}
egress:
- matches: [{pattern: "*.wild.test"}]
  ports: [{protocol: TCP, port: 80}]`
		gone := "\n- matches: [{pattern: \"*.gone.test\"}]\n  ports: [{protocol: TCP, port: 80}]"
		s.start(map[string]string{"a.yaml": s.Pod("a").Manifest("shop", "a", nil), "p.yaml": policy("wild", wild+gone)})
		s.resolve("a", "x.wild.test", dns.TypeA)
		s.resolve("a", "y.gone.test", dns.TypeA)
		s.expect("a", "tcp", "198.51.100.6:80", lab.Answered)
		conns := map[string]net.Conn{}
		for _, to := range []string{"198.51.100.5:80", "198.51.100.6:80"} {
			c, err := s.Pod("a").Dial("tcp", to, lab.Limit)
			fatal.If(t, err)
			defer c.Close()
			conns[to] = c
		}
		fatal.If(t, s.agent.Stop(syscall.SIGTERM))
		// The policies change while no agent runs.
		fatal.If(t, s.agent.Write(map[string]string{"p.yaml": policy("wild", wild)}))
		asked := len(s.outside.Asked())
		fatal.If(t, s.agent.Start())
		s.expect("a", "tcp", "198.51.100.5:80", lab.Answered)
		s.expect("a", "tcp", "198.51.100.6:80", lab.Refused)
		echoes("of a grant that is kept", conns["198.51.100.5:80"], true)
		echoes("of a grant that the next agent found revoked", conns["198.51.100.6:80"], false)
		if now := s.outside.Asked(); len(now) != asked {
			t.Errorf("the grant was not read back from the kernel but asked for: %v", now[asked:])
		}
	})
}

// TestCutOfForgottenConnections has a connection that outlived its grant and the
// agent that had made it: when its policy goes, it goes too.
func TestCutOfForgottenConnections(t *testing.T) {
	t.Parallel()
	eachDataplane(t, lab.Routed, func(t *testing.T, kind nodeKind) {
		s, echoes := newStageOf(t, kind), echoing(t)
		s.zone.add(`
		x.wild.test. 1 IN A 198.51.100.5
		www.example.org. 60 IN A 198.51.100.1`)
		s.start(map[string]string{
			"a.yaml":   s.Pod("a").Manifest("shop", "a", map[string]string{"app": "client"}),
			"p.yaml":   policy("wild", shortTTL),
			"www.yaml": policy("allow-www", allowWWW),
		})
		s.resolve("a", "x.wild.test", dns.TypeA)
		old, err := s.Pod("a").Dial("tcp", "198.51.100.5:80", lab.Limit)
		fatal.If(t, err)
		defer old.Close()
		s.eventually("a", "198.51.100.5:80", lab.Refused)
		www, err := s.Pod("a").Dial("tcp", "198.51.100.1:80", lab.Limit)
		fatal.If(t, err)
		defer www.Close()
		fatal.If(t, s.agent.Stop(syscall.SIGTERM))
		fatal.If(t, s.agent.Start())
		echoes("of an ended grant, with the next agent", old, true)
		s.apply(map[string]string{"p.yaml": ""})
		echoes("of an ended grant that the next agent never knew, when its policy went", old, false)
		echoes("that another policy allows", www, true)
	})
}

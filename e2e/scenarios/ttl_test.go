package scenarios

import (
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/fatal"
	"github.com/namegate/namegate/e2e/lab"
)

const shortTTL = `
podSelector: {}
ttl: {minSeconds: 1, maxSeconds: 2, graceSeconds: 1, inUse: Expire}
egress:
- matches: [{pattern: "*.wild.test"}]
  ports: [{protocol: TCP, port: 80}]`

func echo(c io.ReadWriteCloser, patience time.Duration) lab.Outcome {
	return lab.Echo(c.(net.Conn), patience)
}

func TestConnectionOutlivesItsGrant(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, kind nodeKind) {
		s := newStageOf(t, kind)
		s.zone.add(`
			x.wild.test. 1000 IN A 198.51.100.5
			x.wild.test. 1000 IN AAAA 2001:db8:1::5`)
		s.start(map[string]string{
			"a.yaml": s.Pod("a").Manifest("shop", "a", nil), "p.yaml": policy("wild", shortTTL),
		})
		asked := time.Now()
		r, err := s.ask("a", "udp", "x.wild.test", dns.TypeA)
		fatal.If(t, err)
		if ttl := r.Answer[0].Header().Ttl; ttl > 3 {
			t.Errorf("the pod was told a TTL of %d seconds, its grant lasts 3", ttl)
		}
		s.resolve("a", "x.wild.test", dns.TypeAAAA)
		old4, err := s.Pod("a").Dial("tcp", "198.51.100.5:80", lab.Limit)
		fatal.If(t, err)
		defer old4.Close()
		old6, err := s.Pod("a").Dial("tcp", "[2001:db8:1::5]:80", lab.Limit)
		fatal.If(t, err)
		defer old6.Close()
		s.expect("a", "tcp", "198.51.100.5:80", lab.Answered)
		s.eventually("a", "198.51.100.5:80", lab.Refused)
		if lasted := time.Since(asked); lasted < 3*time.Second {
			t.Errorf("the grant ended after %v, it was to last 3 s", lasted)
		}
		s.eventually("a", "[2001:db8:1::5]:80", lab.Refused)
		s.stays("from before the end of the grant", old4)
		s.stays("from before the end of the grant", old6)

		// With the policy, connections admitted by its ended grant are cut.
		s.apply(map[string]string{"p.yaml": policy("wild", "podSelector: {}")})
		s.isCut("of a grant that had ended, when its policy went", old4)
		s.isCut("of a grant that had ended, when its policy went", old6)
	})
}

func TestAnswersExtendTheGrant(t *testing.T) {
	t.Parallel()
	eachDataplane(t, lab.Routed, func(t *testing.T, kind nodeKind) {
		s := newStageOf(t, kind)
		s.zone.add(`x.wild.test. 1 IN A 198.51.100.5`)
		s.start(map[string]string{"a.yaml": s.Pod("a").Manifest("shop", "a", nil), "p.yaml": policy("wild", shortTTL)})
		for until := time.Now().Add(5 * time.Second); time.Now().Before(until); time.Sleep(500 * time.Millisecond) {
			s.resolve("a", "x.wild.test", dns.TypeA)
			s.expect("a", "tcp", "198.51.100.5:80", lab.Answered)
		}
	})
}

func TestHoldOutlivesTheAgent(t *testing.T) {
	t.Parallel()
	eachDataplane(t, lab.Routed, func(t *testing.T, kind nodeKind) {
		s := newStageOf(t, kind)
		s.zone.add(`x.wild.test. 1 IN A 198.51.100.5`)
		s.start(map[string]string{"a.yaml": s.Pod("a").Manifest("shop", "a", nil), "p.yaml": policy("wild", shortTTL)})
		s.resolve("a", "x.wild.test", dns.TypeA)
		fatal.If(t, s.agent.Stop(syscall.SIGKILL))
		dead := time.Now()
		for time.Since(dead) < 4*time.Second {
			s.expect("a", "tcp", "198.51.100.5:80", lab.Answered)
			time.Sleep(500 * time.Millisecond)
		}
		// The next agent reads the deadline back from the kernel and keeps to it.
		fatal.If(t, s.agent.Start())
		s.eventually("a", "198.51.100.5:80", lab.Refused)
	})
}

func TestRestartKeepsGrants(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, kind nodeKind) {
		s := newStageOf(t, kind)
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
		s.stays("of a grant that is kept", conns["198.51.100.5:80"])
		s.isCut("of a grant that the next agent found revoked", conns["198.51.100.6:80"])
		if now := s.outside.Asked(); len(now) != asked {
			t.Errorf("the grant was not read back from the kernel but asked for: %v", now[asked:])
		}
	})
}

func TestUnmatchedNames(t *testing.T) {
	t.Parallel()
	s := newStage(t, lab.Routed)
	s.zone.add(`
		www.example.org. 60 IN A 198.51.100.1
		other.example.org. 60 IN A 198.51.100.2
		db.shop.svc.cluster.local. 60 IN A 198.51.100.3`)
	s.start(map[string]string{"a.yaml": s.Pod("a").Manifest("shop", "a", map[string]string{"app": "client"})})
	tests := []struct {
		unmatched   string
		rcode       int
		suffixRcode int
	}{
		{"Resolve", dns.RcodeSuccess, dns.RcodeNameError},
		{"NXDomain", dns.RcodeNameError, dns.RcodeNameError},
		{"Refuse", dns.RcodeRefused, dns.RcodeNameError},
	}
	for _, test := range tests {
		s.apply(map[string]string{"p.yaml": policy("www", allowWWW+fmt.Sprintf("\ndns: {unmatched: %s}", test.unmatched))})
		for _, network := range []string{"udp", "tcp"} {
			for name, want := range map[string]int{
				"other.example.org": test.rcode, "www.example.org": dns.RcodeSuccess, "WWW.Example.ORG": dns.RcodeSuccess,
				"www.example.org.shop.svc.cluster.local": test.suffixRcode, "db.shop.svc.cluster.local": dns.RcodeSuccess,
			} {
				r, err := s.ask("a", network, name, dns.TypeA)
				fatal.If(t, err)
				if r.Rcode != want {
					t.Errorf("%s over %s under %s: rcode %d, want %d", name, network, test.unmatched, r.Rcode, want)
				}
			}
		}
		s.expect("a", "tcp", "198.51.100.2:80", lab.Refused)
	}
}

func TestAuditDropsNothing(t *testing.T) {
	t.Parallel()
	s := newStage(t, lab.Routed)
	s.zone.add(`
		www.example.org. 60 IN A 198.51.100.1
		other.example.org. 60 IN A 198.51.100.2`)
	s.startClient(policy("www", allowWWW+"\nenforcement: Audit\ndns: {unmatched: Refuse}"))
	s.resolve("a", "www.example.org", dns.TypeA)
	if got := s.resolve("a", "other.example.org", dns.TypeA); len(got) != 1 {
		t.Errorf("an audited pod does not resolve: %v", got)
	}
	s.expect("a", "tcp", "198.51.100.2:443", lab.Answered)
	would := map[string]string{}
	err := s.agent.WaitFor("the audit lines", func(lab.Status) bool {
		lines, err := s.agent.AuditLines()
		if err != nil {
			return false
		}
		for _, l := range lines {
			q, isQuestion := l["question"].(map[string]any)
			if !isQuestion {
				continue
			}
			would[fmt.Sprint(q["name"])] = fmt.Sprint(l["would"])
		}
		return len(would) == 2
	})
	if err != nil || would["www.example.org"] != "allowed" || would["other.example.org"] != "unmatched" {
		t.Errorf("audit lines say %v, %v", would, err)
	}
}

// TestCutOfForgottenConnections has a connection that outlived its grant and the
// agent that had made it: when its policy goes, it goes too.
func TestCutOfForgottenConnections(t *testing.T) {
	t.Parallel()
	eachDataplane(t, lab.Routed, func(t *testing.T, kind nodeKind) {
		s := newStageOf(t, kind)
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
		s.stays("of an ended grant, with the next agent", old)
		s.apply(map[string]string{"p.yaml": ""})
		s.isCut("of an ended grant that the next agent never knew, when its policy went", old)
		s.stays("that another policy allows", www)
	})
}

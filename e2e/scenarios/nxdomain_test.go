package scenarios

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestNXDOMAINOfOneType has a name with an A record whose server says NXDOMAIN to AAAA and HTTPS:
// each pod keeps it while its answers end and are renewed, with the chart's cache and without
// stale answers.
func TestNXDOMAINOfOneType(t *testing.T) {
	t.Parallel()
	for what, cache := range map[string]string{"stale answers": "cache {\n negative_ttl 5s\n serve_stale 1h\n }", "no stale answers": "cache {\n negative_ttl 5s\n }"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			eachDataplane(t, lab.Routed, func(t *testing.T, kind nodeKind) {
				s := newStageOf(t, kind)
				var err error
				s.agent, err = s.NewAgent(agentBinary, t.TempDir(), strings.Replace(corefile, "grant timeout", cache+"\n grant timeout", 1), kind.args()...)
				fatal.If(t, err)
				var asked atomic.Int32
				s.zone.say("balanced.test", func(q *dns.Msg) *dns.Msg {
					r := new(dns.Msg).SetReply(q)
					if q.Question[0].Qtype == dns.TypeA {
						asked.Add(1)
						r.Answer = []dns.RR{record("balanced.test. 1 IN A 198.51.100.5")}
						return r
					}
					r.Rcode, r.Ns = dns.RcodeNameError, []dns.RR{record("test. 60 IN SOA ns.test. admin.test. 1 60 60 60 60")}
					return r
				})
				s.allowTest()
				s.until("the A record is asked for four times", func(int) bool {
					for _, pod := range []string{"a", "b"} {
						for _, qtype := range []uint16{dns.TypeAAAA, dns.TypeHTTPS, dns.TypeA} {
							r, err := s.ask(pod, "udp", "balanced.test", qtype)
							fatal.If(t, err)
							if qtype == dns.TypeA && len(r.Answer) != 1 || qtype != dns.TypeA && r.Rcode != dns.RcodeNameError {
								t.Fatalf("pod %s: %v", pod, r)
							}
						}
						s.expect(pod, "tcp", "198.51.100.5:80", lab.Answered)
					}
					return asked.Load() >= 4
				})
			})
		})
	}
}

package scenarios

import (
	"io"
	"testing"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/fatal"
	"github.com/namegate/namegate/e2e/lab"
)

func TestTwoPoliciesAddUp(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, kind nodeKind) {
		s := newStageOf(t, kind)
		s.zone.add(`
			www.example.org. 60 IN A 198.51.100.1
			www.example.org. 60 IN AAAA 2001:db8:1::1
			api.example.org. 60 IN A 198.51.100.4
			shared.example.org. 60 IN A 198.51.100.1`)
		first := policy("first", allowWWW)
		second := policy("second", `
podSelector: {}
egress:
- matches: [{name: api.example.org}, {name: shared.example.org}]
  ports: [{protocol: TCP, port: 80}, {protocol: TCP, port: 81}]`)
		s.start(map[string]string{
			"a.yaml":     s.Pod("a").Manifest("shop", "a", map[string]string{"app": "client"}),
			"b.yaml":     s.Pod("b").Manifest("other", "b", map[string]string{"app": "client"}),
			"first.yaml": first, "second.yaml": second,
		})
		for _, n := range []string{"www", "api", "shared"} {
			s.resolve("a", n+".example.org", dns.TypeA)
		}
		s.resolve("a", "www.example.org", dns.TypeAAAA)
		for _, to := range []string{"198.51.100.1:80", "198.51.100.1:81", "198.51.100.4:80", "198.51.100.4:81", "[2001:db8:1::1]:80"} {
			s.expect("a", "tcp", to, lab.Answered)
		}
		// Connections that one of the policies, or both, allowed.
		var open []io.ReadWriteCloser
		dial := func(to string) io.ReadWriteCloser {
			c, err := s.Pod("a").Dial("tcp", to, lab.Limit)
			fatal.If(t, err)
			t.Cleanup(func() { c.Close() })
			if got := lab.Echo(c, lab.Limit); got != lab.Answered {
				t.Fatalf("%s: %s", to, got)
			}
			open = append(open, c)
			return c
		}
		onlySecond, both, onlyFirst6 := dial("198.51.100.4:80"), dial("198.51.100.1:80"), dial("[2001:db8:1::1]:80")
		sharedPort := dial("198.51.100.1:81")

		s.apply(map[string]string{"second.yaml": ""})
		s.expect("a", "tcp", "198.51.100.4:80", lab.Refused)
		s.expect("a", "tcp", "198.51.100.1:81", lab.Refused)
		s.expect("a", "tcp", "198.51.100.1:80", lab.Answered)
		s.expect("a", "tcp", "[2001:db8:1::1]:80", lab.Answered)
		s.stays("allowed by the policy that is left, and by the deleted one", both)
		s.stays("allowed by the policy that is left", onlyFirst6)
		s.isCut("allowed by the deleted policy alone", onlySecond)
		s.isCut("allowed on that port by the deleted policy alone", sharedPort)

		s.apply(map[string]string{"first.yaml": ""})
		s.expect("a", "tcp", "198.51.100.9:443", lab.Answered)
		s.expect("b", "tcp", "198.51.100.9:443", lab.Answered)
	})
}

func (s *stage) stays(what string, c io.ReadWriteCloser) {
	s.t.Helper()
	if got := echo(c, lab.Limit); got != lab.Answered {
		s.t.Errorf("a connection %s: %s", what, got)
	}
}

func (s *stage) isCut(what string, c io.ReadWriteCloser) {
	s.t.Helper()
	if got := echo(c, lab.Patience); got == lab.Answered {
		s.t.Errorf("a connection %s goes on", what)
	}
}

func TestPortsOfAPolicyChange(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, kind nodeKind) {
		s := newStageOf(t, kind)
		s.zone.add(`x.wild.test. 60 IN A 198.51.100.5`)
		with := func(ports string) map[string]string {
			return map[string]string{"p.yaml": policy("wild", `
podSelector: {}
egress:
- matches: [{pattern: "*.wild.test"}]
  ports: `+ports)}
		}
		files := with("[{protocol: TCP, port: 80}, {protocol: TCP, port: 443}]")
		files["a.yaml"] = s.Pod("a").Manifest("shop", "a", nil)
		s.start(files)
		s.resolve("a", "x.wild.test", dns.TypeA)
		s.expect("a", "tcp", "198.51.100.5:80", lab.Answered)
		s.expect("a", "tcp", "198.51.100.5:443", lab.Answered)
		keep, err := s.Pod("a").Dial("tcp", "198.51.100.5:80", lab.Limit)
		fatal.If(t, err)
		defer keep.Close()
		lose, err := s.Pod("a").Dial("tcp", "198.51.100.5:443", lab.Limit)
		fatal.If(t, err)
		defer lose.Close()
		// Names that the pod resolved before the change are valid for the new ports too.
		s.apply(with("[{protocol: TCP, port: 80}, {protocol: TCP, port: 8080}]"))
		s.expect("a", "tcp", "198.51.100.5:80", lab.Answered)
		s.expect("a", "tcp", "198.51.100.5:8080", lab.Answered)
		s.expect("a", "tcp", "198.51.100.5:443", lab.Refused)
		s.stays("on a port that both versions allow", keep)
		s.isCut("on a port that the new version lacks", lose)
	})
}

func TestLabelsDecide(t *testing.T) {
	t.Parallel()
	eachDataplane(t, lab.Routed, func(t *testing.T, kind nodeKind) {
		s := newStageOf(t, kind)
		s.zone.add(`www.example.org. 60 IN A 198.51.100.1`)
		s.start(map[string]string{
			"a.yaml":   s.Pod("a").Manifest("shop", "a", nil),
			"www.yaml": policy("allow-www", allowWWW),
		})
		s.expect("a", "tcp", "198.51.100.9:443", lab.Answered)
		s.apply(map[string]string{"a.yaml": s.Pod("a").Manifest("shop", "a", map[string]string{"app": "client"})})
		s.expect("a", "tcp", "198.51.100.9:443", lab.Refused)
		s.expect("a", "tcp", "198.51.100.1:80", lab.Answered) // an exact name needs no question
		s.apply(map[string]string{"a.yaml": s.Pod("a").Manifest("shop", "a", map[string]string{"app": "other"})})
		s.expect("a", "tcp", "198.51.100.9:443", lab.Answered)
	})
}

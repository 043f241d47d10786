package smoke

import (
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/e2e/cluster/probe"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

func TestPodsResolveAndReachTheWorld(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.start("a node-a", "b node-b")
	for _, pod := range []string{"a", "b"} {
		for _, network := range []string{"tcp", "udp", "tcp6", "udp6"} {
			got := s.get(pod, network, "example.org", 443, probe.OK)
			if len(got.Dials) != 1 || got.Dials[0].Server != "world" {
				t.Errorf("pod %s over %s reached %+v, want the world", pod, network, got.Dials)
			}
		}
		// The world sees the pod's own address: nothing is masked on the way.
		d := s.dial(pod, "tcp", "198.51.100.7:80", probe.OK)
		if host, _, _ := net.SplitHostPort(d.From); host != s.addr(pod, 4) {
			t.Errorf("the world saw pod %s as %s, want %s", pod, host, s.addr(pod, 4))
		}
	}
}

func TestPodsReachEachOther(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.start("a node-a", "a2 node-a", "b node-b", "b2 node-b")
	for _, way := range []struct{ from, to string }{{"a", "b"}, {"b", "a"}, {"a", "a2"}, {"b", "b2"}} {
		for _, family := range []int{4, 6} {
			d := s.dial(way.from, "tcp", net.JoinHostPort(s.addr(way.to, family), "8080"), probe.OK)
			diff.Equal(t, way.to, d.Server, way.from, "reached")
		}
	}
}

func TestServicesWork(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.start("a node-a", "b node-b app=web")
	s.apply(`{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {ipFamilyPolicy: RequireDualStack, selector: {app: web}, ports: [
  {name: tcp, port: 80, targetPort: 8080}, {name: udp, protocol: UDP, port: 80, targetPort: 8080}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: headless}, spec: {clusterIP: None, selector: {app: web}, ports: [{port: 8080}]}}
`)
	s.eventually("kube-proxy's rules of the Service", func() bool {
		for _, network := range []string{"tcp", "udp", "tcp6", "udp6"} {
			if got, err := s.Get(t.Context(), s.pod("a"), network, "web."+s.namespace+".svc.cluster.local", 80); err != nil || got.Class != probe.OK {
				return false
			}
		}
		return true
	})
	for _, network := range []string{"tcp", "udp", "tcp6", "udp6"} {
		got := s.get("a", network, "web."+s.namespace+".svc.cluster.local", 80, probe.OK)
		if got.Class == probe.OK && got.Dials[0].Server != "b" {
			t.Errorf("the Service led to %+v, want b", got.Dials)
		}
	}
	got := s.get("a", "tcp", "headless."+s.namespace+".svc.cluster.local", 8080, probe.OK)
	if want := netip.MustParseAddr(s.addr("b", 4)); len(got.Answer.Addrs) != 1 || got.Answer.Addrs[0] != want {
		t.Errorf("the headless Service's name has %v, want %s", got.Answer.Addrs, want)
	}
}

// eventually waits until something holds.
func (s *stage) eventually(what string, holds func() bool) {
	s.t.Helper()
	for end := time.Now().Add(2 * time.Minute); !holds(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("waited in vain for %s", what)
		}
	}
}

func TestExecShowsThePod(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.start("b node-b")
	// The error output of a program that fails has to come back too.
	_, err := s.Exec(t.Context(), s.pod("b"), "/testpod", "no-such-verb")
	diff.Fails(t, "usage: testpod", err, "exec of a wrong verb")
	out, err := s.Inside(t.Context(), s.pod("b"), "dial", "tcp", "127.0.0.1:8080")
	if err != nil || !strings.Contains(out, `"server": "b"`) {
		t.Errorf("dialling from inside b without the API server: %v: %s, want an answer of b", err, out)
	}
}

func TestDNSLoadIsCounted(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.start("a node-a")
	got, err := s.DNSLoad(t.Context(), s.pod("a"), probe.Load{Rate: 200, Length: time.Second, Names: []string{"example.org", "n#.rotate.test"}})
	fatal.If(t, err)
	if got.Sent != 200 || got.Answered != 200 || got.Lost() != 0 {
		t.Errorf("%+v, want 200 sent and answered", got)
	}
	// A resolver that is not there: nothing may count as answered.
	got, err = s.DNSLoad(t.Context(), s.pod("a"), probe.Load{Rate: 50, Length: time.Second, Server: "198.51.100.7", Names: []string{"example.org"}})
	fatal.If(t, err)
	if got.Sent != 50 || got.Answered != 0 || got.Lost() != 50 {
		t.Errorf("without a resolver: %+v, want 50 lost", got)
	}
}

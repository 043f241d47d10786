package kube

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/namegate/namegate/e2e/cluster/probe"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// bare are the scenarios of a cluster without Namegate.
var bare = []part{
	{"world", testBareWorld},
	{"pods", testBarePods},
	{"service", testBareService},
	{"exec", testBareExec},
	{"load", testBareLoad},
}

// TestCluster shows, before Namegate is installed, that the cluster of the scenarios does what
// clusters do: what fails here is not Namegate's doing.
func TestCluster(t *testing.T) { sideBySide(t, bare) }

// networks are what pods speak.
var networks = []string{"tcp", "udp", "tcp6", "udp6"}

// echoServer is a manifest of a pod that echoes on port 8080.
func echoServer(name, node string) string {
	return pod(name, node, map[string]string{"app": name}, "serve", name, "8080")
}

// leads looks a name up in a pod and connects, which leads to a server.
func (s *scenario) leads(from, network, name string, port int, server string) {
	s.Helper()
	g, err := the.Get(s.ctx, s.ref(from), network, name, port)
	if err != nil || g.Class != probe.OK || len(g.Dials) != 1 || g.Dials[0].Server != server {
		s.Errorf("%s over %s to %s:%d: %+v (%v), want %s", from, network, name, port, g, err, server)
	}
}

// testBareWorld: pods resolve names and reach the world.
func testBareWorld(t *testing.T) {
	s := begin(t, "bare-world")
	s.run(pod("a", "node-a", nil), pod("b", "node-b", nil))
	for _, p := range []string{"a", "b"} {
		for _, network := range networks {
			s.leads(p, network, "example.org", 443, "world")
		}
		// The world sees the pod's own address: nothing is masked on the way.
		d, err := the.Dial(s.ctx, s.ref(p), "tcp", "198.51.100.7:80")
		fatal.If(t, err)
		host, _, _ := net.SplitHostPort(d.From)
		diff.Equal(t, s.addresses(p)[0], host, "the world sees pod", p, d)
	}
}

func testBarePods(t *testing.T) {
	s := begin(t, "bare-pods")
	s.run(echoServer("a", "node-a"), echoServer("a2", "node-a"), echoServer("b", "node-b"), echoServer("b2", "node-b"))
	for _, way := range []struct{ from, to string }{{"a", "b"}, {"b", "a"}, {"a", "a2"}, {"b", "b2"}} {
		for _, a := range s.addresses(way.to) {
			d, err := the.Dial(s.ctx, s.ref(way.from), "tcp", net.JoinHostPort(a, "8080"))
			fatal.If(t, err)
			diff.Equal(t, way.to, d.Server, way.from, "reached", a, d)
		}
	}
}

func testBareService(t *testing.T) {
	s := begin(t, "bare-service")
	s.run(pod("a", "node-a", nil), echoServer("web", "node-b"), `---
{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {ipFamilyPolicy: RequireDualStack, selector: {app: web}, ports: [
  {name: tcp, port: 80, targetPort: 8080}, {name: udp, protocol: UDP, port: 80, targetPort: 8080}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: headless}, spec: {clusterIP: None, selector: {app: web}, ports: [{port: 8080}]}}
`)
	for _, network := range networks {
		name := "web." + s.ns + ".svc.cluster.local"
		s.eventually(patient, "kube-proxy's rules of the Service", func() error { return s.got("a", network, name, 80, works) })
		s.leads("a", network, name, 80, "web")
	}
	got, err := the.Get(s.ctx, s.ref("a"), "tcp", "headless."+s.ns+".svc.cluster.local", 8080)
	fatal.If(t, err)
	diff.Error(t, []netip.Addr{netip.MustParseAddr(s.addresses("web")[0])}, got.Answer.Addrs, "the headless Service's name has", got)
	diff.Equal(t, probe.OK, got.Class, "the headless Service", got)
}

// testBareExec: the error output of a program that fails comes back, and a program runs in a pod
// without the API server.
func testBareExec(t *testing.T) {
	s := begin(t, "bare-exec")
	s.run(echoServer("b", "node-b"))
	_, err := the.Exec(s.ctx, s.ref("b"), "/testpod", "no-such-verb")
	diff.Fails(t, "usage: testpod", err, "exec of a wrong verb")
	var d probe.Dialled
	s.inside("b", &d, "dial", "tcp", "127.0.0.1:8080")
	diff.Equal(t, "b", d.Server, "dialling from inside b", d)
}

// testBareLoad: queries are counted, and none counts as answered by a resolver that is not there.
func testBareLoad(t *testing.T) {
	s := begin(t, "bare-load")
	s.run(pod("a", "node-a", nil))
	for _, c := range []struct {
		probe.Load
		answered int
	}{
		{probe.Load{Rate: 200, Length: time.Second, Names: []string{"example.org", "n#.rotate.test"}}, 200},
		{probe.Load{Rate: 50, Length: time.Second, Server: "198.51.100.7", Names: []string{"example.org"}}, 0},
	} {
		got, err := the.DNSLoad(s.ctx, s.ref("a"), c.Load)
		fatal.If(t, err)
		diff.Equal(t, [3]int{c.Rate, c.answered, c.Rate - c.answered}, [3]int{got.Sent, got.Answered, got.Lost()}, "sent, answered and lost of", c.Load)
	}
}

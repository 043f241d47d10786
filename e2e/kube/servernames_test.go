package kube

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/e2e/cluster/probe"
)

// testServerNames: on both nodes, a name of a shared address is reached by its own server name alone, from the address of
// the node, and a denied connection is logged with the name that it claims.
func testServerNames(t *testing.T) {
	s := begin(t, "servernames")
	const to, to6 = "198.51.100.11:443", "[2001:db8::11]:443" // of www.example.org
	var pods []string
	for _, n := range nodes {
		pods = append(pods, pod("client-"+n, n, nil))
	}
	s.run(append(pods, policy("www", `{podSelector: {}, egress: [{matches: [{name: www.example.org}], serverName: Require, ports: [{protocol: TCP, port: 443}]}]}`))...)
	for _, n := range nodes {
		p := "client-" + n
		s.enforced(soon, p)
		for _, qtype := range []string{"A", "AAAA"} {
			if _, err := the.Lookup(s.ctx, s.ref(p), "www.example.org", qtype, ""); err != nil {
				t.Fatal(err)
			}
		}
		own, err := the.Node(n).Run("ip", "-o", "addr", "show")
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range []string{to, to6} {
			d := s.says(p, at, "www.example.org", works)
			if from, err := netip.ParseAddrPort(d.From); err != nil || !strings.Contains(own, " "+from.Addr().Unmap().String()+"/") {
				t.Errorf("%s: the destination saw %q, which is no address of the node: %s", p, d.From, own)
			}
		}
		line, _ := s.followed(p, func() { s.says(p, to, "other.example.org", want{probe.Reset, probe.Refused}) })
		if line.Reason != audit.ReasonServerName || line.ServerName != "other.example.org" {
			t.Errorf("%s: the line is %+v", p, line)
		}
		s.says(p, to6, "other.example.org", want{probe.Reset, probe.Refused})
		s.dials(p, "tcp", "198.51.100.11:80", denied)
	}
}

// says begins TLS with a server name, and demands an outcome.
func (s *scenario) says(from, to, name string, w want) probe.Dialled {
	s.Helper()
	d, err := the.Hello(s.ctx, s.ref(from), to, name)
	if err == nil && !w.has(d.Class) {
		err = fmt.Errorf("%s to %s as %s: %s (%s), want %v", from, to, name, d.Class, d.Error, w)
	}
	if err != nil {
		s.Error(err)
	}
	return d
}

package kube

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/namegate/namegate/e2e/cluster"
	"github.com/namegate/namegate/e2e/cluster/probe"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// testAPIServer: without the API server DNS and enforcement continue, and nodes that are denied
// everything find it again; changes are applied when it is back.
func testAPIServer(t *testing.T) {
	s := begin(t, "apiserver")
	s.run(pod("a", "node-a", nil), pod("b", "node-b", nil),
		policy("names", `{podSelector: {}, egress: [{matches: [{pattern: "*.ip.test"}, {pattern: "*.wild.test"}]}]}`))
	for _, p := range []string{"a", "b"} {
		s.enforced(soon, p)
	}
	s.administrate("closed", `{nodeSelector: {}, priority: 1, egress: [{action: Deny}]}`)
	s.clusterEnforced("closed")
	fatal.If(t, the.StopAPIServer())
	back := false
	defer func() {
		if !back {
			if err := the.StartAPIServer(s.ctx); err != nil {
				t.Error(err)
			}
		}
	}()
	end := time.Now().Add(30 * time.Second)
	asked := 0
	for i := 1; time.Now().Before(end); i++ {
		for _, n := range nodes {
			s.hostDials(n, raw, denied)
		}
		for _, p := range []string{"a", "b"} {
			var g probe.Got
			name := "198-51-100-" + string(rune('0'+i%10)) + ".ip.test"
			s.inside(p, &g, "get", "tcp", name, "80")
			asked++
			diff.Equal(t, probe.OK, g.Class, "without an API server", p, "to", name, g)
			var d probe.Dialled
			s.inside(p, &d, "dial", "tcp", raw)
			if !denied.has(d.Class) {
				t.Errorf("without an API server %s reaches %s: %s", p, raw, d.Class)
			}
		}
		time.Sleep(500 * time.Millisecond)
	}
	t.Logf("%d names asked for and connected to without an API server", asked)
	status, err := the.Node("node-a").AgentStatus()
	if err != nil || !strings.Contains(status, "API server") {
		t.Errorf("status does not say that the API server is away (%v):\n%s", err, status)
	}
	// Nodes that were silent for longer than cluster.NodeGrace are unready then, and with them
	// every resolver, until they report.
	lost := s.during("the API server returns", []string{"a", "b"}, []string{"n#.wild.test"}, cluster.NodeGrace+15*time.Second, func() {
		back = true
		if err := the.StartAPIServer(s.ctx); err != nil {
			t.Error(err)
		}
	})
	if lost > 0 {
		t.Errorf("%d queries lost", lost)
	}
	s.eventually(patient, "pods after the API server's return", func() error {
		_, err := the.Kubectl(s.ctx, pod("late", "node-a", nil), "apply", "-n", s.ns, "-f", "-")
		return err
	})
	s.kubectl("wait", "-n", s.ns, "pod", "late", "--for=condition=Ready", "--timeout=300s")
	s.enforced(soon, "late")
	s.gets("late", "tcp", "198-51-100-7.ip.test", 80, works)
	for _, n := range nodes {
		s.hostDials(n, raw, denied)
	}
}

// testAway: of the policies of every traffic, those that are confirmed hold while the API server is away for five minutes.
// The others end, also where packets to it are dropped, which gives a node that lost the API server back. They do not begin
// anew when it returns.
func testAway(t *testing.T) {
	if !nightly {
		t.Skip("takes minutes")
	}
	s := begin(t, "away")
	ports := map[string]string{"Local": "80", "Forwarded": "8080", "BeforeNAT": "81", "Untracked": "443"}
	var manifests, away, held []string
	for _, n := range nodes {
		manifests = append(manifests, onHost(pod("host-"+n, n, nil, "serve", "host", "80", "81", "443")), pod("pod-"+n, n, nil, "serve", "pod", "8080"))
	}
	s.run(manifests...)
	for traffic, port := range ports {
		for i, list := range []*[]string{&held, &away} {
			name := strings.ToLower(traffic) + "-" + nodes[i]
			s.administrate(name, fmt.Sprintf("{nodeSelector: %s, priority: 1, traffic: %s, safeguard: {confirmWithin: 24h}, ingress: [{action: Deny, ports: [{protocol: TCP, port: %s}]}]}", hostname(nodes[i]), traffic, port))
			*list = append(*list, name)
		}
	}
	s.kubectl(append(append([]string{"annotate", "nnp"}, held...), "namegate.io/confirmed=1")...)
	v := s.served()
	node := func(n string, w want) error {
		var tries []func() error
		for traffic, port := range ports {
			at := v.pods["host-"+n]
			if traffic == "Forwarded" {
				at = v.pods["pod-"+n]
			}
			for i, a := range at {
				tries = append(tries, func() error { return s.outcome(outside[i], net.JoinHostPort(a, port), w) })
			}
		}
		return atOnce(tries)
	}
	for _, n := range nodes {
		s.eventually(soon, "the policies of "+n, func() error { return node(n, closedTo) })
	}
	_, err := the.Node("node-b").Run("nft", "add table inet lost; add chain inet lost out { type filter hook output priority 0; }; add rule inet lost out tcp dport 6443 drop; "+
		"add chain inet lost in { type filter hook input priority 0; }; add rule inet lost in tcp sport 6443 drop")
	fatal.If(t, err)
	since := time.Now()
	fatal.If(t, the.StopAPIServer())
	start := sync.OnceFunc(func() {
		_, err := the.Node("node-b").Run("nft", "delete", "table", "inet", "lost")
		fatal.If(t, errors.Join(err, the.StartAPIServer(s.ctx)))
	})
	t.Cleanup(start)
	for ; time.Since(since) < 5*time.Minute; time.Sleep(time.Second) {
		fatal.If(t, node("node-a", closedTo))
		switch took := time.Since(since); {
		case took < 50*time.Second:
			fatal.If(t, node("node-b", closedTo))
		case took > 170*time.Second:
			fatal.If(t, node("node-b", works))
		}
	}
	start()
	s.kubectl("wait", "node", "--all", "--for=condition=Ready", "--timeout=300s")
	for _, name := range away {
		s.clusterCondition(soon, name, "False", "TurnedToAudit", "node-b")
	}
	for _, name := range held {
		s.clusterEnforced(name)
	}
	fatal.If(t, node("node-b", works))
	s.kubectl(append(append([]string{"annotate", "nnp"}, away...), "namegate.io/confirmed=1")...)
	for _, n := range nodes {
		s.eventually(soon, "the confirmed policies of "+n, func() error { return node(n, closedTo) })
	}
}

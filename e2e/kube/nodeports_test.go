package kube

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/e2e/cluster/probe"
	"github.com/namegate/namegate/testkit/fatal"
)

// Clients of the NodePort in the world: of the network that may reach it, and of another, over IPv4 and IPv6.
var (
	office    = []string{"203.0.113.7", "2001:db8::7"}
	elsewhere = []string{"198.51.100.7", "2001:db8:1::7"}
)

// testNodePorts: before translation a rule closes a NodePort of a node to all networks but one, by the port that is
// dialled: the port of the pod means nothing there. Connections that are open stay. What a rule accepts passes the later
// rules of the node, and not those of the pod.
func testNodePorts(t *testing.T) {
	s := begin(t, "nodeports")
	s.run(pod("web", "node-a", map[string]string{"app": "web"}, "serve", "web", "8080"), pod("client", "node-b", map[string]string{"app": "client"}),
		nodePort("web"), onHost(pod("host", "node-a", nil, "serve", "host", "8095")))
	v := s.served()
	dialled := func(port int32) (to []string) {
		for _, a := range v.pods["host"] {
			to = append(to, net.JoinHostPort(a, fmt.Sprint(port)))
		}
		return to
	}
	port := v.ports["web"]
	are := func(from []string, port int32, w want) error {
		var tries []func() error
		for i, to := range dialled(port) {
			tries = append(tries, func() error { return s.outcome(from[i], to, w) })
		}
		return atOnce(tries)
	}
	client := []string{"client", "client"}
	for _, from := range [][]string{office, elsewhere, client} {
		s.eventually(patient, "the NodePort", func() error { return are(from, port, works) })
	}
	// beforeNAT applies rules, the last of which closes a port that is not served to show that all are in force.
	beforeNAT := func(mark int, rules string) {
		s.administrate("nodeports", fmt.Sprintf("{nodeSelector: {matchLabels: {kubernetes.io/hostname: node-a}}, priority: 1, traffic: BeforeNAT, ingress: [%s, {action: Deny, ports: [{protocol: TCP, port: %d}]}]}", rules, mark))
		s.eventually(soon, rules, func() error { return are(elsewhere, int32(mark), silent) })
	}
	beforeNAT(9, "{action: Deny, ports: [{protocol: TCP, port: 8080}]}")
	fatal.If(t, are(office, port, works))
	fatal.If(t, are(elsewhere, port, works))
	var echoes []func() error
	for i, to := range dialled(port) {
		echoes = append(echoes, s.keeps(elsewhere[i], to))
	}
	accepted := fmt.Sprintf(`{action: Accept, networks: [203.0.113.0/24, "2001:db8::/64", 10.244.0.0/16, "fd00:244::/48"], ports: [{protocol: TCP, port: %d}]}`, port)
	beforeNAT(10, fmt.Sprintf("%s, {action: Deny, ports: [{protocol: TCP, port: %d}]}", accepted, port))
	s.administrate("forwarded", "{nodeSelector: {matchLabels: {kubernetes.io/hostname: node-a}}, priority: 0, traffic: Forwarded, ingress: [{action: Deny, ports: [{protocol: TCP, port: 8080}]}]}")
	for _, a := range v.pods["web"] {
		s.eventually(soon, "the rule for what is forwarded", func() error { return s.outcome("client", net.JoinHostPort(a, "8080"), denied) })
	}
	fatal.If(t, are(office, port, works))
	fatal.If(t, are(client, port, works))
	fatal.If(t, are(elsewhere, port, silent))
	for _, echo := range echoes {
		fatal.If(t, echo())
	}
	s.temporary("cnp", "web", `---
apiVersion: policy.networking.k8s.io/v1beta1
kind: ClusterNetworkPolicy
metadata: {name: web}
spec:
  tier: Admin
  priority: 10
  subject: {pods: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: nodeports}}, podSelector: {matchLabels: {app: web}}}}
  ingress:
  - action: Deny
    from: [{pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: client}}}}]
`)
	s.eventually(soon, "the policy of the pod", func() error { return are(client, port, closedTo) })
	fatal.If(t, are(office, port, works))
	t.Run("untracked", func(t *testing.T) { s.on(t).untracked(dialled(8095)) })
}

// untracked: a service of a node goes on over UDP and TCP without connection tracking while both directions have a rule,
// and stops when one of them goes.
func (s *scenario) untracked(to []string) {
	client, n := the.Node("node-b"), the.Node("node-a")
	all := func(w want) error {
		var tries []func() error
		for _, a := range to {
			for _, network := range []string{"tcp", "udp"} {
				tries = append(tries, func() error {
					var d probe.Dialled
					if err := client.Do(func() error { d = probe.Dial(s.ctx, network, a); return nil }); err != nil || !w.has(d.Class) {
						return fmt.Errorf("%s to %s is %v, want %v: %w", network, a, d, w, err)
					}
					return nil
				})
			}
		}
		err := atOnce(tries)
		entries, failed := n.Connections()
		if strings.Contains(entries, "dport=8095 ") {
			// The protocol comes before its options, or nothing is deleted.
			for _, of := range []string{"ipv4 -p tcp", "ipv6 -p tcp", "ipv4 -p udp", "ipv6 -p udp"} { // those of before the policy are no failure
				_, _ = n.Run("conntrack", strings.Fields("-D -f "+of+" --dport 8095")...)
			}
			failed = errors.New("the service is tracked")
		}
		return errors.Join(err, failed)
	}
	in, out, rest := "{action: Accept, nodes: {}, ports: [{protocol: TCP, port: 8095}, {protocol: UDP, port: 8095}]}, ", "{action: Accept, nodes: {}}, ", "{action: Deny}"
	for _, c := range []struct {
		ingress, egress string
		w               want
	}{{in, out, works}, {"", out, silent}, {in, "", silent}, {in, out, works}} {
		s.administrate("untracked", fmt.Sprintf("{nodeSelector: %s, priority: 1, traffic: Untracked, ingress: [%s%s], egress: [%s%s]}", hostname("node-a"), c.ingress, rest, c.egress, rest))
		s.eventually(soon, fmt.Sprint(c), func() error { return all(c.w) })
	}
}

// keeps opens a connection to an echo server and returns a function that uses it.
func (s *scenario) keeps(from, to string) (echo func() error) {
	s.Helper()
	c, err := the.DialWorld(s.ctx, netip.AddrPortFrom(netip.MustParseAddr(from), 0), netip.MustParseAddrPort(to))
	fatal.If(s, err)
	s.Cleanup(func() { c.Close() })
	fatal.If(s, c.SetDeadline(time.Now().Add(patient)))
	r := bufio.NewReader(c)
	echo = func() error {
		if _, err := fmt.Fprintln(c, "hello"); err != nil {
			return err
		}
		for {
			if line, err := r.ReadString('\n'); err != nil || line == "hello\n" {
				return err
			}
		}
	}
	fatal.If(s, echo())
	return echo
}

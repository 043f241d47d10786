package kube

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/namegate/namegate/testkit/diff"
)

// outsideText returns the path and the address or range of each problem of the cluster ranges.
func outsideText(s State) string {
	var words []string
	for _, p := range s.Problems {
		if what, _, found := strings.Cut(p.Message, " is outside of the cluster ranges of the configuration"); found && p.Reason == ReasonOutsideClusterRanges && p.Object == "node "+ourNode {
			words = append(words, p.Path+" "+what)
		}
	}
	return strings.Join(words, ", ")
}

// TestOwnNodeOnly: a source of its own Node alone reads and watches no other, and has a problem
// for each address and range of it outside of the cluster ranges, which may change at any time.
func TestOwnNodeOnly(t *testing.T) {
	api := newAPIServer(t)
	api.put("nodes", aNode("node-b", "192.0.2.2", "10.1.0.0/16"))
	api.put("nodes", aNode(ourNode, "192.0.2.1", "10.0.0.0/16", "2001:db8:1::/64"))
	api.put("pods", aPod("web", "10.0.0.1"))
	client, dyn := api.clients()
	var log syncBuffer
	r := runWith(t, Options{Client: client, Dynamic: dyn, NodeName: ourNode, OwnNodeOnly: true, Log: slog.New(slog.NewTextHandler(&log, nil))})
	r.until("web[10.0.0.1]", podText)
	nodes := func(s State) string { return fmt.Sprint(s.Cluster.Nodes, s.Cluster.PodRanges, s.Cluster.LocalRanges) }
	const own = "[192.0.2.1] [10.0.0.0/16 2001:db8:1::/64] [10.0.0.0/16 2001:db8:1::/64]"
	diff.Equal(t, own, nodes(r.last), "nodes")
	diff.Equal(t, "spec.podCIDRs 10.0.0.0/16, spec.podCIDRs 2001:db8:1::/64, status.addresses 192.0.2.1", outsideText(r.last), "without ranges the problems are of")
	if got := log.String(); !strings.Contains(got, `level=WARN msg="an object has a problem" object="node node-a" reason=OutsideClusterRanges path=status.addresses message="192.0.2.1 is outside`) || !strings.Contains(got, "add its range to cluster.ranges") {
		t.Errorf("the log is\n%s", got)
	}
	for _, c := range []struct{ ranges, want string }{
		{"10.0.0.0/8", "spec.podCIDRs 2001:db8:1::/64, status.addresses 192.0.2.1"},
		{"10.0.0.0/17 2001:db8::/32 192.0.2.0/24", "spec.podCIDRs 10.0.0.0/16"},
		{"10.0.0.0/17 10.0.128.0/17 2001:db8::/32 192.0.2.0/24", ""},
		{"10.0.0.0/16 2001:db8:1::/64", "status.addresses 192.0.2.1"},
	} {
		r.source.SetClusterRanges(prefixes(strings.Fields(c.ranges)...))
		r.until(c.want, outsideText)
	}
	api.put("nodes", aNode("node-b", "192.0.2.3", "10.2.0.0/16"))
	api.put("nodes", aNode(ourNode, "192.0.2.9", "10.0.0.0/16", "2001:db8:1::/64"))
	r.until("status.addresses 192.0.2.9", outsideText)
	diff.Equal(t, strings.Replace(own, "192.0.2.1", "192.0.2.9", 1), nodes(r.last), "nodes", "after a change of both")
	r.source.SetClusterRanges(prefixes("10.0.0.0/8", "192.0.0.0/8", "2001:db8::/32"))
	r.until("", outsideText)
}

// TestRangesOfNodes: the pod ranges of Nodes count for the pods of a node alone, inside the cluster
// ranges where there are any. Each other one is left out, and a problem of its Node.
func TestRangesOfNodes(t *testing.T) {
	api := newAPIServer(t)
	api.put("nodes", aNode("node-b", "192.0.2.2", "10.1.0.0/16"))
	api.put("nodes", aNode("node-c", "192.0.2.3", "198.0.0.0/15", "2001:db8::/47"))
	api.put("nodes", aNode("node-d", "192.0.2.4", "0.0.0.0/0", "2001:db8:1::/48"))
	api.put("nodes", aNode(ourNode, "192.0.2.1", "10.0.0.0/16", "::/0"))
	r := runAt(t, api)
	nodes := func(s State) string {
		text := fmt.Sprint(s.Cluster.PodRanges, s.Cluster.LocalRanges)
		for _, p := range s.Problems {
			claim, why, _ := strings.Cut(p.Message, " is ")
			text += ", " + strings.TrimPrefix(p.Object, "node ") + " " + claim + " " + strings.Fields(why)[0]
			if p.Reason != ReasonOutsideClusterRanges || p.Path != "spec.podCIDRs" || !strings.Contains(why, " left out: ") {
				t.Errorf("%+v", p)
			}
		}
		return text
	}
	r.until("[10.0.0.0/16 10.1.0.0/16 2001:db8:1::/48] [10.0.0.0/16], node-a ::/0 wider, node-c 198.0.0.0/15 wider, node-c 2001:db8::/47 wider, node-d 0.0.0.0/0 wider", nodes)
	r.source.SetClusterRanges(prefixes("10.0.0.0/16", "192.0.0.0/3", "2001:db8:1::/48"))
	r.until("[10.0.0.0/16 2001:db8:1::/48] [10.0.0.0/16], node-a ::/0 outside, node-b 10.1.0.0/16 outside, node-c 198.0.0.0/15 wider, node-c 2001:db8::/47 outside, node-d 0.0.0.0/0 outside", nodes)
	r.source.SetClusterRanges(prefixes("192.0.0.0/3"))
	r.until("[] [], node-a 10.0.0.0/16 outside, node-a ::/0 outside, node-b 10.1.0.0/16 outside, node-c 198.0.0.0/15 wider, node-c 2001:db8::/47 outside, node-d 0.0.0.0/0 outside, node-d 2001:db8:1::/48 outside", nodes)
	for i := range 20 {
		api.put("nodes", aNode(fmt.Sprintf("node-z%02d", i), "192.0.2.9", "10.9.0.0/16"))
	}
	r.until("16 problems (and 11 more)", func(s State) string {
		_, more, _ := strings.Cut(s.Problems[len(s.Problems)-1].Message, "the Corefile ")
		return fmt.Sprintf("%d problems %s", len(s.Problems), more)
	})
}

// TestExternalIPs: an address that only external IPs have is no Service's address, and a problem
// of each namespace names the Services. Addresses in the cluster ranges, of nodes and of load
// balancers are the cluster's without them.
func TestExternalIPs(t *testing.T) {
	api := newAPIServer(t)
	api.put("nodes", aNode(ourNode, "192.0.2.1"))
	service := func(namespace, name, balanced string, external ...string) {
		s := aService(namespace, name, "10.96.0.1")
		s.Spec.ExternalIPs = external
		if balanced != "" {
			s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: balanced}}
		}
		api.put("services", s)
	}
	service("shop", "web", "203.0.113.9", "203.0.113.9", "192.0.2.1")
	r := runAt(t, api)
	claims := func(s State) (text string) {
		for _, p := range s.Problems {
			what, _, _ := strings.Cut(strings.TrimPrefix(p.Message, "Services have external IPs outside of the cluster ranges of the configuration: "), ". ")
			text += fmt.Sprintf("%s %s: %s; ", p.Reason, p.Object, what)
		}
		return text + fmt.Sprint(s.Cluster.Services)
	}
	const addrs = "[10.96.0.1 203.0.113.9]"
	r.until(addrs, claims)
	service("evil", "web", "", "198.51.100.1")
	service("evil", "db", "", "198.51.100.1", "::ffff:198.51.100.2")
	service("shop", "own", "", "198.51.100.7")
	many := make([]string, 9)
	for i := range many {
		many[i] = fmt.Sprintf("2001:db8::%d", i)
	}
	service("tele", "com", "", many...)
	const evil = "ExternalIPs namespace evil: db 198.51.100.1, db 198.51.100.2, web 198.51.100.1; "
	const tele = "ExternalIPs namespace tele: com 2001:db8::, com 2001:db8::1, com 2001:db8::2, com 2001:db8::3, com 2001:db8::4, com 2001:db8::5, com 2001:db8::6, com 2001:db8::7 and 1 more; "
	r.until(evil+"ExternalIPs namespace shop: own 198.51.100.7; "+tele+addrs, claims)
	r.source.SetClusterRanges(prefixes("198.51.100.7/32", "2001:db8::/32"))
	r.until(evil+addrs, claims)
	service("evil", "web", "")
	service("evil", "db", "")
	r.until(addrs, claims)
}

package proxy

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/short"
)

// node is one compiler's node with a series of snapshots: the lab's pods and policies,
// and a test's changes.
type node struct {
	t        testing.TB
	compiler *compile.Compiler
	policies []*v1alpha1.FQDNNetworkPolicy
	pods     []policy.Pod
}

func newNode(t testing.TB) *node {
	return &node{t, compile.New(), policiesOf(t, labPolicies), slices.Clone(labPods)}
}

func (n *node) snapshot() *policy.Snapshot {
	return n.compiler.Compile(compile.Input{
		Policies: n.policies, Namespaces: map[string]map[string]string{"shop": {}}, Pods: slices.Clone(n.pods),
	})
}

// elsewhere is a pod of another node.
func elsewhere(name, ip string) policy.Pod {
	p := labPod(name, ip)
	p.NodeName = "node-2"
	return p
}

// hits asks again and tells whether the reply came from the socket's reader.
func (l *cacheLab) hits(from, qname string, qtype uint16) bool {
	l.t.Helper()
	_, hit := l.any(from, newQuery(qname, qtype))
	return hit
}

// TestHitsOutliveTheSnapshotsOfOthers: changes of other pods, also of this node,
// invalidate no pod's cached replies.
func TestHitsOutliveTheSnapshotsOfOthers(t *testing.T) {
	l := newCacheLab(t, map[string][]string{
		"www.example.org A": {"www.example.org. 600 IN A 192.0.2.1"},
		"a.wild.test AAAA":  {"a.wild.test. 600 IN AAAA 2001:db8:64::c000:201"}, // an IPv4 address within
		"a.wild.test SRV":   {"a.wild.test. 600 IN SRV 0 0 1 host.test."},
		"host.test A":       {"host.test. 600 IN A 192.0.2.3"},
		"gone.wild.test A":  {"NXDOMAIN", soa + "600"},
	})
	n := newNode(t)
	l.s.Publish(n.snapshot())
	asks := []struct {
		from, name string
		qtype      uint16
	}{
		{"10.1.0.2", "www.example.org", dns.TypeA}, {"2001:db8:1::2", "www.example.org", dns.TypeA}, {"10.1.0.2", "a.wild.test", dns.TypeAAAA},
		{"10.1.0.2", "a.wild.test", dns.TypeSRV}, {"10.1.0.2", "host.test", dns.TypeA}, {"10.1.0.2", "gone.wild.test", dns.TypeA},
		{"10.1.0.5", "www.example.org", dns.TypeA}, {"10.1.0.6", "www.example.org", dns.TypeA}, {"10.1.0.8", "host.test", dns.TypeA},
	}
	for range 3 {
		for _, a := range asks {
			l.any(a.from, newQuery(a.name, a.qtype))
		}
	}
	l.upstreamAsked()
	for i, change := range []func(){
		func() {},
		func() { n.pods = append(n.pods, elsewhere("far", "10.1.7.7")) },
		func() { n.pods[len(n.pods)-1] = elsewhere("far", "198.51.100.7") },
		func() { n.pods = n.pods[:len(n.pods)-1] },
		func() { n.pods = append(n.pods, labPod("strict2", "10.1.0.9")) },
		func() { n.policies[2].Spec.DNS = v1alpha1.DNS{} }, // strict's
		func() {
			l.s.SetCluster(Cluster{Nodes: labCluster.Nodes, Services: addrsOf("203.0.113.250", "10.96.0.77")})
		},
	} {
		change()
		l.s.Publish(n.snapshot())
		for _, a := range asks {
			if !l.hits(a.from, a.name, a.qtype) {
				t.Errorf("after change %d the question of %s for %s %s was decided anew", i, a.from, a.name, dns.TypeToString[a.qtype])
			}
		}
	}
	diff.Equal(t, 0, l.upstreamAsked(), "questions to the upstream")
}

// TestAnAddressThatBecomesAPodsIsNotGivenAgain, and is given once more when the pod has
// gone: bare, and within an IPv6 address.
func TestAnAddressThatBecomesAPodsIsNotGivenAgain(t *testing.T) {
	for qtype, answer := range map[uint16]string{
		dns.TypeA:    "www.example.org. 600 IN A 192.0.2.1",
		dns.TypeAAAA: "www.example.org. 600 IN AAAA 2001:db8:64::c000:201",
	} {
		l := newCacheLab(t, map[string][]string{"www.example.org " + dns.TypeToString[qtype]: {answer}})
		n := newNode(t)
		q := newQuery("www.example.org", qtype)
		told := func(what string, hit bool, addresses int) {
			t.Helper()
			for i := range 2 {
				r, again := l.any("10.1.0.2", q)
				if again != (hit || i > 0) || len(r.Answer) != addresses {
					t.Errorf("%s, %s: given again %v, %d addresses", dns.TypeToString[qtype], what, again, len(r.Answer))
				}
			}
		}
		l.s.Publish(n.snapshot())
		l.any("10.1.0.2", q)
		told("at first", false, 1)
		n.pods = append(n.pods, elsewhere("far", "192.0.2.1"))
		l.s.Publish(n.snapshot())
		told("it is a pod's", false, 0)
		l.s.Publish(n.snapshot())
		told("it is a pod's still", true, 0)
		n.pods = n.pods[:len(n.pods)-1]
		l.s.Publish(n.snapshot())
		told("the pod has gone", false, 1)
		l.s.SetCluster(Cluster{Nodes: labCluster.Nodes, Peers: addrsOf("192.0.2.1")})
		told("it is a node's", false, 0)
	}
}

// TestNextPodOfAnAddressInheritsNoReply: not that of a pod of the same name, labels and
// address either.
func TestNextPodOfAnAddressInheritsNoReply(t *testing.T) {
	l := newCacheLab(t, map[string][]string{"www.example.org A": {"www.example.org. 600 IN A 192.0.2.1"}})
	n := newNode(t)
	l.s.Publish(n.snapshot())
	for range 3 {
		l.any("10.1.0.2", newQuery("www.example.org", dns.TypeA))
	}
	if !l.hits("10.1.0.2", "www.example.org", dns.TypeA) {
		t.Fatal("not given again")
	}
	n.pods[0].UID = "uid-next"
	l.s.Publish(n.snapshot())
	if l.hits("10.1.0.2", "www.example.org", dns.TypeA) {
		t.Error("the next pod was given the reply of the one before")
	}
	if l.kernel.until(n.pods[0].PodRef, mustAddr("192.0.2.1")).IsZero() {
		t.Error("the next pod has been answered and was granted nothing")
	}
}

// change makes the node another, at random: nearly always pods of other nodes.
func (n *node) change(r *rand.Rand) {
	addr := []string{"192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4", "198.51.100.9", "10.1.9.9"}[r.IntN(6)]
	at := r.IntN(len(n.pods))
	switch k := r.IntN(24); {
	case k < 10:
		n.pods = append(n.pods, elsewhere("far"+itoa(r.IntN(6)), addr))
	case k < 16:
		n.pods = slices.DeleteFunc(n.pods, func(p policy.Pod) bool { return !p.Local() && r.IntN(3) > 0 })
	case k < 18: // nothing
	case k < 19: // a pod gives way to another of its name
		n.pods[at].UID += "+"
	case k < 20: // two swap their addresses
		if b := r.IntN(len(n.pods)); n.pods[at].Local() && n.pods[b].Local() {
			n.pods[at].IPs, n.pods[b].IPs = n.pods[b].IPs, n.pods[at].IPs
		}
	case k < 21: // an address that two claim
		if n.pods[at].Local() {
			n.pods[at].IPs = []netip.Addr{mustAddr("10.1.0." + itoa(2+r.IntN(7)))}
		}
	case k < 22: // other labels, other policies
		n.pods[at].Labels = maps.Clone(n.pods[at].Labels)
		n.pods[at].Labels["app"] = labPods[r.IntN(len(labPods))].Name
	case k < 23:
		n.policies = policiesOf(n.t, []string{labPolicies, strings.ReplaceAll(labPolicies, "maxSeconds: 100", "maxSeconds: 20")}[r.IntN(2)])
	default:
		n.pods, n.policies = slices.Clone(labPods), policiesOf(n.t, labPolicies)
	}
}

// TestPacketCacheOverSnapshotsEqualsDecisions: as the twin of one snapshot, while
// random snapshots of one compiler follow each other.
func TestPacketCacheOverSnapshotsEqualsDecisions(t *testing.T) {
	rounds := short.Rounds(5, 20, 200)
	w := newFuzzWorld(t)
	for i, c := range fuzzConfigs {
		w.configs[i] = configWith(t, strings.ReplaceAll(c, "prefetch 2 1m 50%", ""))
	}
	same := map[string]int{}
	for round := range rounds {
		r := rand.New(rand.NewPCG(uint64(round), 18))
		l := newFuzzRun(t, w)
		l.cacheLab.up = &memory{table: twinTable(r)}
		l.use(l.config, l.cacheLab.up)
		n, pool, logs := newNode(t), twinForms(r), newTwoLogs()
		l.s.log = logs
		l.s.Publish(n.snapshot())
		ask := func(same map[string]int) {
			if form := pool[r.IntN(len(pool))]; l.who(form.from).known {
				l.twin(form.from, packed(t, form.query), logs, same)
			}
		}
		for range 150 {
			for range 12 {
				ask(same)
			}
			n.change(r)
			l.s.Publish(n.snapshot())
			after := map[string]int{}
			for range 6 {
				ask(after)
			}
			same["of an older snapshot"] += after["selected"]
			if t.Failed() {
				t.Fatalf("round %d", round)
			}
		}
		if logs.wantSame(t, round); t.Failed() {
			return
		}
	}
	for _, what := range []string{"selected", "unselected", "granted", "followed", "NOERROR", "NXDOMAIN", "blocked", "of an older snapshot"} {
		if same[what] < 4*rounds {
			t.Errorf("only %d replies were given again that are %s: %v", same[what], what, same)
		}
	}
}

// TestSelfQueryIsNotFooled: only the right text in a reply with its id counts.
func TestSelfQueryIsNotFooled(t *testing.T) {
	const alive = "alive.namegate.invalid. 0 IN TXT "
	for name, tt := range map[string]struct {
		packets script
		want    error // nil is alive
	}{
		"the right text": {func(q *dns.Msg, _ bool) [][]byte { return [][]byte{says(q, nil, alive+aliveText)} }, nil},
		"another text":   {func(q *dns.Msg, _ bool) [][]byte { return [][]byte{says(q, nil, alive+"x")} }, errNotServing},
		"no record":      {func(q *dns.Msg, _ bool) [][]byte { return [][]byte{says(q, nil)} }, errNotServing},
		"SERVFAIL":       {rcodeScript(dns.RcodeServerFailure), errNotServing},
		"another id": {func(q *dns.Msg, _ bool) [][]byte {
			return [][]byte{says(q, func(r *dns.Msg) { r.Id++ }, alive+aliveText)}
		}, context.DeadlineExceeded},
		"another id, then the right text": {func(q *dns.Msg, _ bool) [][]byte {
			return [][]byte{says(q, func(r *dns.Msg) { r.Id++ }, alive+"x"), says(q, nil, alive+aliveText)}
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, nil)
			up := startScript(t, tt.packets)
			patience := time.Minute
			if errors.Is(tt.want, context.DeadlineExceeded) {
				patience = 200 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			if err := l.s.SelfQuery(ctx, up.Addr); !errors.Is(err, tt.want) {
				t.Errorf("error %v, want %v", err, tt.want)
			}
		})
	}
}

package enforcer

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/knftables"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/enforcer/dataplane/nftables"
	"github.com/namegate/namegate/enforcer/dataplane/xtables"
	"github.com/namegate/namegate/enforcer/grants"
	"github.com/namegate/namegate/enforcer/intercept"
	"github.com/namegate/namegate/enforcer/ruleset/layout"
	"github.com/namegate/namegate/kernel/conntrack"
	"github.com/namegate/namegate/kernel/ipset"
	"github.com/namegate/namegate/kernel/iptables"
	"github.com/namegate/namegate/kernel/nft"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/testkit/conntracktest"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/granttest"
	"github.com/namegate/namegate/testkit/iptablestest"
	"github.com/namegate/namegate/testkit/linktest"
	"github.com/namegate/namegate/testkit/policytest"
	"github.com/namegate/namegate/testkit/testclock"
)

// world is one node on fakes with the agent that runs on it.
type world struct {
	t      testing.TB
	clock  *testclock.Clock
	sets   *ipset.Fake
	real   ipset.Interface // in place of sets, where it is set
	chains *iptablestest.Fake
	// otherBackend are the chains of the other variant, nil where the node has none.
	otherBackend *iptablestest.Fake
	inet         *knftables.Fake
	bridge       *knftables.Fake
	net          *knftables.Fake
	plane        string // of planes
	flows        *conntracktest.Fake
	links        *linktest.Fake
	inject       func(iface string, packet []byte) error
	seams        *seams
	refuse       *refusing // of entries of ordered rules, nil for none
	// ran is how long the kernel\'s own clock has run, where the clock tells that too.
	ran      func() time.Duration
	cfg      Config
	e        *Enforcer
	compiler *compile.Compiler
	snap     *policy.Snapshot
	// reprepare: the agent wants its last snapshot prepared again.
	reprepare bool
	// netpols and remote are compiled with what a test passes.
	netpols []*networkingv1.NetworkPolicy
	remote  []*policy.Pod
}

var (
	endpoint4 = addr("169.254.20.53")
	endpoint6 = addr("fd5c:7a1e:93b4::53")
	dns4      = addr("192.0.2.53")
	dns6      = addr("2001:db8::53")
)

// The words of the tests.
var (
	addr     = netip.MustParseAddr
	addrPort = netip.MustParseAddrPort
	addrs    = policytest.Addrs
	dns      = policytest.Name
	pod      = policytest.Pod
	pol      = policytest.Policy
	netpol   = policytest.NetworkPolicy

	clusterPolicy = policytest.ClusterPolicy
)

// newNode returns a node that no agent has run on.
func newNode(t testing.TB) *world {
	w := &world{t: t, clock: testclock.New(time.Unix(1_700_000_000, 0)), chains: iptablestest.NewFake(), flows: conntracktest.NewFake(), links: linktest.NewFake(addr("198.51.100.1"))}
	w.sets = ipset.NewFake(w.clock.Now)
	w.inet = knftables.NewFake(knftables.InetFamily, layout.TableName)
	w.bridge = knftables.NewFake(knftables.BridgeFamily, layout.TableName)
	w.net = knftables.NewFake(knftables.InetFamily, layout.NetTableName)
	w.seams, w.plane = &seams{w: w}, iptablesPlane
	w.cfg = Config{Mark: DefaultMark, Candidate: DefaultCandidate, Accepted: DefaultAccepted, Hold: DefaultHold, Endpoint: []netip.Addr{endpoint4, endpoint6}, Resolvers: []netip.Addr{dns4, dns6}, Reprepare: func() { w.reprepare = true }}
	return w
}

const iptablesPlane, nftablesPlane = "iptables", "nftables"

// eachPlane runs a test with each dataplane, at the same time.
func eachPlane(t *testing.T, f func(t *testing.T, plane string)) {
	for _, plane := range []string{iptablesPlane, nftablesPlane} {
		t.Run(plane, func(t *testing.T) {
			t.Parallel()
			f(t, plane)
		})
	}
}

// newWorld returns a node with an agent that has started.
func newWorld(t testing.TB) *world { return newWorldOn(t, iptablesPlane) }

// newWorldOn is newWorld with a dataplane.
func newWorldOn(t testing.TB, plane string) *world {
	w := newNode(t)
	w.plane = plane
	w.restart()
	return w
}

// attachedWorld is newWorld where a network plugin's result has addresses.
func attachedWorld(t testing.TB, attached func(netip.Addr) bool) *world {
	w := newNode(t)
	w.cfg.Attached = attached
	w.restart()
	return w
}

// restart replaces the agent by a new one, which knows nothing of the old one's.
func (w *world) restart() {
	w.t.Helper()
	w.boot()
	if _, err := w.e.Start(context.Background()); err != nil {
		w.t.Fatal(err)
	}
}

// boot makes a new agent and does not start it.
func (w *world) boot() {
	w.t.Helper()
	k := Kernel{
		Flows: flowSeam{w.flows, w.seams}, Links: w.links, Inject: w.inject,
		Tables: nft.New(layout.All, tableSeam{w.inet, w.seams, "inet"}, tableSeam{w.bridge, w.seams, "bridge"}, tableSeam{w.net, w.seams, "net"}),
	}
	k.Tables.Store.FakeClock(w.clock.Now)
	filter := xtables.Config{Sets: setSeam{w.sets, w.seams}, Chains: chainSeam{w.chains, w.seams}}
	if w.otherBackend != nil {
		filter.Other = w.otherBackend
	}
	if w.real != nil {
		filter.Sets, filter.Chains = w.real, w.chains
	}
	k.Entries = entrySeam{k.Tables.Store, w}
	k.Dataplane = filter.New
	if w.plane == nftablesPlane {
		k.Dataplane = nftables.Config{Tables: k.Tables}.New
	}
	e, err := New(w.cfg, k, w.clock.Now, slog.New(slog.NewTextHandler(io.Discard, nil)))
	fatal.If(w.t, err)
	if w.ran != nil {
		e.own(grants.NewClock(w.clock.Now, w.ran()))
	}
	w.e, w.compiler = e, compile.New()
}

// compile makes the next snapshot.
func (w *world) compile(pods []policy.Pod, policies ...*v1alpha1.FQDNNetworkPolicy) *policy.Snapshot {
	w.t.Helper()
	s := w.compiler.Compile(compile.Input{Pods: pods, Policies: policies, NetworkPolicies: w.netpols, Remote: w.remote})
	if len(s.Problems) > 0 {
		w.t.Fatalf("the fixture cannot work: %v", s.Problems)
	}
	return s
}

// rollOut prepares and commits a snapshot.
func (w *world) rollOut(s *policy.Snapshot) error {
	if err := w.e.Prepare(context.Background(), s); err != nil {
		return err
	}
	if err := w.e.Commit(context.Background()); err != nil {
		return err
	}
	w.snap = s
	return nil
}

// apply brings pods and policies into force.
func (w *world) apply(pods []policy.Pod, policies ...*v1alpha1.FQDNNetworkPolicy) {
	w.t.Helper()
	fatal.If(w.t, w.rollOut(w.compile(pods, policies...)))
}

// grants renders what the proxy would ask for after an answer.
func (w *world) grants(s *policy.Snapshot, pod policy.PodRef, name string, ttl uint32, answer string) []policy.Grant {
	w.t.Helper()
	v := s.ViewOf(pod)
	if v == nil {
		w.t.Fatalf("pod %s is not selected", pod)
	}
	var out []policy.Grant
	for _, o := range v.Decide(dns(name)).Openings(ttl) {
		out = append(out, policy.Grant{Pod: pod, Name: dns(name), Addrs: addrs(answer), Ports: o.Ports, Rule: o.Rule, Deadline: w.clock.Now().Add(o.Lifetime), By: o.By})
	}
	if len(out) == 0 {
		w.t.Fatalf("no policy of pod %s allows %s", pod, name)
	}
	return out
}

// answer grants what an answer opens, which must work.
func (w *world) answer(pod policy.Pod, name string, ttl uint32, answer string) {
	w.t.Helper()
	fatal.If(w.t, w.answerBy(w.snap, pod, name, ttl, answer))
}

// answerBy grants what an answer opens by a snapshot.
func (w *world) answerBy(s *policy.Snapshot, pod policy.Pod, name string, ttl uint32, answer string) error {
	w.t.Helper()
	return granttest.Grant(context.Background(), w.e.grants, w.grants(s, pod.PodRef, name, ttl, answer))
}

// prepare and commit bring a snapshot into force in two steps, which must work.
func (w *world) prepare(s *policy.Snapshot) {
	w.t.Helper()
	fatal.If(w.t, w.e.Prepare(context.Background(), s))
}

func (w *world) commit() {
	w.t.Helper()
	fatal.If(w.t, w.e.Commit(context.Background()))
}

// learns has the agent learn the network, and returns the addresses that it serves on.
func (w *world) learns(n intercept.Network) []netip.Addr {
	w.t.Helper()
	_, err := w.e.intercept.SetNetwork(n)
	fatal.If(w.t, err)
	serving, err := w.e.Refresh(context.Background())
	fatal.If(w.t, err)
	return serving
}

// track opens an admitted connection.
func (w *world) track(src, dst string) conntrack.Flow { return w.tracked(flow(src, dst)) }

// unadmitted opens a connection without an admission.
func (w *world) unadmitted(src, dst string) conntrack.Flow {
	f := flow(src, dst)
	f.Mark &^= DefaultMark
	return w.tracked(f)
}

func (w *world) tracked(f conntrack.Flow) conntrack.Flow {
	w.flows.Track(f)
	return f
}

// expire lets time pass and the agent look at its deadlines.
func (w *world) expire(d time.Duration) {
	w.t.Helper()
	w.clock.Pass(d)
	fatal.If(w.t, w.e.grants.Expire())
}

// setNames returns the names of all sets, sorted.
func (w *world) setNames() []string {
	sizes, _ := w.sets.Sizes()
	return slices.Sorted(maps.Keys(sizes))
}

// entries returns the live entries of a pod's set, sorted.
func (w *world) entries(pod policy.Pod, ports policy.PortSet, f iptables.Family) []ipset.Entry {
	w.t.Helper()
	es, err := w.sets.List(xtables.GrantSetName(pod.PodRef, ports, f))
	if ipset.IsNotFound(err) {
		return nil
	}
	fatal.If(w.t, err)
	if protocol, port, single := ports.Single(); single {
		es = slices.DeleteFunc(es, func(e ipset.Entry) bool { return e.Protocol != uint8(protocol) || e.Port != port })
	}
	slices.SortFunc(es, func(a, b ipset.Entry) int { return a.Addr.Compare(b.Addr) })
	return es
}

// left returns how long an address stays open by the kernel alone, 0 if it is not.
func (w *world) left(pod policy.Pod, ports policy.PortSet, a string) time.Duration {
	w.t.Helper()
	for _, e := range w.entries(pod, ports, versionOf(addr(a))) {
		if e.Addr == addr(a) {
			return e.Timeout
		}
	}
	return 0
}

// dump renders everything the node's kernel holds, with the entries' comments
// and what they have left.
func (w *world) dump() string {
	w.t.Helper()
	lines := strings.Split(w.sets.Dump(), "\n")
	for _, n := range w.setNames() {
		es, err := w.sets.List(n)
		fatal.If(w.t, err)
		for _, e := range es {
			if e.Timeout != 0 {
				lines = append(lines, fmt.Sprintf("%s %s %v %s", n, e.Addr, e.Timeout, e.Comment))
			}
		}
	}
	slices.Sort(lines)
	for _, f := range ipVersions {
		for _, table := range allTables {
			for line := range strings.Lines(w.chains.Dump(f, table)) {
				lines = append(lines, fmt.Sprintf("%v %s %s", f, table, strings.TrimSpace(line)))
			}
		}
	}
	var elements []string
	for line := range strings.Lines(w.inet.Dump() + w.bridge.Dump() + w.net.Dump()) {
		if strings.HasPrefix(line, "add element") {
			elements = append(elements, strings.TrimSpace(line))
		} else {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	slices.Sort(elements)
	return strings.Join(append(lines, elements...), "\n")
}

const https = policy.PortSet("tcp/443")

// httpsEntry is the entry of an address in a pod's set for https.
func httpsEntry(a netip.Addr) ipset.Entry {
	return ipset.Entry{Addr: a, Protocol: uint8(policy.TCP), Port: 443}
}

// web is one pod that one policy allows two names.
func web(t testing.TB) (*world, policy.Pod) {
	w := newWorld(t)
	p := pod("web", "10.1.0.5 2001:db8:1::5", "allow")
	w.apply([]policy.Pod{p}, pol("allow", "tcp/443 www.example.org *.example.net"))
	return w, p
}

// near tells whether the kernel's own timeout is right for a lifetime: never
// less than it and the hold, and at most two seconds of rounding more.
func near(got, lifetime time.Duration) bool {
	want := lifetime + DefaultHold
	return got >= want && got <= want+2*time.Second
}

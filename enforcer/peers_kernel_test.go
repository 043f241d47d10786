package enforcer_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/enforcer"
	"github.com/namegate/namegate/enforcer/intercept"
	"github.com/namegate/namegate/kernel/conntrack"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/policytest"
)

// peering is a node with the pods client, db and other, each of which echoes on port
// 80 and 81, a Service of db, and an enforcer. One FQDNNetworkPolicy that allows nothing selects
// the pods with the label gated.
type peering struct {
	*lab.Lab
	t     *testing.T
	plane string
	// resolvers are those of pods, none for the lab's of IPv4.
	resolvers []netip.Addr
	e         *enforcer.Enforcer
	flows     *conntrack.Kernel
	compiler  *compile.Compiler
	labels    map[string]string // of each pod: words
	// addrs are the addresses of pods that do not have all of their hosts'.
	addrs   map[string][]netip.Addr
	netpols []*networkingv1.NetworkPolicy
	audit   bool // the FQDNNetworkPolicy is only audited
	// ordered are rules of the Admin and the Baseline tier, by pod, and ask peerSets.
	ordered  map[string][]*policy.Rule
	peerSets []*policy.PeerSet
	// node is the node as a subject, nil for none, with nodeRules.
	node      *policy.Node
	nodeRules []*policy.Rule
	// confirmed are those of nodeRules that do not wait for confirmation, nil: none waits.
	confirmed []*policy.Rule
	allowed   []string         // rules of the FQDNNetworkPolicy, as policytest.Policy has them
	snapshot  *policy.Snapshot // the last one applied
	services  []netip.Addr     // that count by name, sorted
	relay     *relay           // nil: none
	ingress   bool             // rules for ingress of NetworkPolicies count
	// looked is called after each listing of connections, before anything follows from it; nil: nothing is.
	looked func(conntrack.Query)
}

// The Service of db.
var service4, service6 = netip.MustParseAddr("10.96.0.7"), netip.MustParseAddr("fd00:96::7")

func newPeering(t *testing.T, plane string, network lab.Network, resolvers ...netip.Addr) *peering {
	t.Helper()
	l, err := lab.New(network)
	fatal.If(t, err)
	t.Cleanup(func() {
		if err := l.Remove(); err != nil {
			t.Error(err)
		}
	})
	p := &peering{Lab: l, t: t, plane: plane, resolvers: resolvers, labels: map[string]string{"client": "gated client", "db": "db", "other": "other"}, services: []netip.Addr{service4, service6}}
	for i, name := range []string{"client", "db", "other"} {
		pod, err := l.AddPod(name, 5+i)
		fatal.If(t, err)
		serves, err := pod.Serve(80, 81, 82)
		fatal.If(t, err)
		t.Cleanup(serves.Close)
	}
	world, err := l.ServeWorld(nil, 80, 81, 82)
	fatal.If(t, err)
	t.Cleanup(world.Close)
	db := l.Pod("db")
	err = errors.Join(l.SetServices(
		lab.Service{Addr: service4, Protocol: "tcp", Port: 5432, To: []netip.AddrPort{netip.AddrPortFrom(db.Addr4, 80)}},
		lab.Service{Addr: service6, Protocol: "tcp", Port: 5432, To: []netip.AddrPort{netip.AddrPortFrom(db.Addr6, 80)}},
	), l.Ready())
	fatal.If(t, err)
	p.restart()
	return p
}

// restart lets another enforcer follow, which knows nothing.
func (p *peering) restart() {
	p.t.Helper()
	p.compiler = compile.New()
	fatal.If(p.t, p.Node.Do(func() (err error) {
		if p.e, p.flows, err = p.open(); err != nil {
			return err
		}
		_, err = p.e.Start(context.Background())
		return err
	}))
	p.countByName(p.services...)
}

// countByName has connections by name led on from addresses of Services alone.
func (p *peering) countByName(services ...netip.Addr) {
	p.t.Helper()
	var network intercept.Network
	for _, a := range services {
		network.Services = append(network.Services, netip.PrefixFrom(a, a.BitLen()))
	}
	p.services = services
	if p.relay != nil {
		network.RelayPort = p.relay.port
	}
	fatal.If(p.t, p.Node.Do(func() error {
		if _, err := p.e.Interception().SetNetwork(network); err != nil {
			return err
		}
		if p.relay != nil {
			p.relay.listen(p)
		}
		_, err := p.e.Refresh(context.Background())
		return err
	}))
}

// apply brings labels and NetworkPolicies into force.
func (p *peering) apply(netpols ...*networkingv1.NetworkPolicy) {
	p.t.Helper()
	if netpols != nil {
		p.netpols = netpols
	}
	p.prepare()
	p.commit()
}

// prepare prepares a snapshot.
func (p *peering) prepare() {
	p.t.Helper()
	in := compile.Input{NetworkPolicies: p.netpols, EnforceNetworkPolicies: p.ingress, Policies: []*v1alpha1.FQDNNetworkPolicy{policytest.Policy("gated", p.allowed...)}}
	if p.audit {
		in.Policies[0].Spec.Enforcement = v1alpha1.EnforcementAudit
	}
	for name, words := range p.labels {
		host := p.Pod(name)
		pod := policytest.Pod(name, "", strings.Fields(words)...)
		pod.IPs, pod.Ports = []netip.Addr{host.Addr4, host.Addr6}, []policy.NamedPort{{Name: "http", Protocol: policy.TCP, Port: 80}}
		if addrs, fewer := p.addrs[name]; fewer {
			pod.IPs = addrs
		}
		in.Pods = append(in.Pods, pod)
	}
	s := p.compiler.Compile(in)
	if len(s.Problems) > 0 {
		p.t.Fatal(s.Problems)
	}
	if p.ordered != nil {
		s = p.withOrdered(s)
	}
	p.snapshot = s
	fatal.If(p.t, p.Node.Do(func() error { return p.e.Prepare(context.Background(), s) }))
}

// commit brings what is prepared into force.
func (p *peering) commit() {
	p.t.Helper()
	fatal.If(p.t, p.Node.Do(func() error { return p.e.Commit(context.Background()) }))
}

func (p *peering) expect(from string, to netip.Addr, port uint16, want lab.Outcome) {
	p.t.Helper()
	diff.Equal(p.t, want, p.Pod(from).ProbeFor("tcp", netip.AddrPortFrom(to, port), lab.PatienceFor(want)), from, "to", to, "port", port)
}

// dial opens a connection, which is answered once.
func (p *peering) dial(from string, to netip.Addr, port uint16) net.Conn {
	p.t.Helper()
	c, err := p.Pod(from).Dial("tcp", netip.AddrPortFrom(to, port).String(), lab.Limit)
	fatal.If(p.t, err)
	p.t.Cleanup(func() { c.Close() })
	p.goOn("just opened", true, c)
	return c
}

// goOn asserts whether connections go on.
func (p *peering) goOn(when string, want bool, all ...net.Conn) {
	p.t.Helper()
	patience := map[bool]time.Duration{true: lab.Limit, false: lab.Patience}[want]
	for _, c := range all {
		if got := lab.Echo(c, patience); (got == lab.Answered) != want {
			p.t.Errorf("%s: %s to %s is %s", when, c.LocalAddr(), c.RemoteAddr(), got)
		}
	}
}

// view is that of a pod or the node in the last snapshot, nil for none.
func (p *peering) view(name string) *policy.View {
	for _, v := range p.snapshot.Views {
		if v.Pod.Name == name {
			return v
		}
	}
	return nil
}

var netpol = policytest.NetworkPolicy

// eachPeering runs a test on every network with each dataplane, at the same time.
func eachPeering(t *testing.T, f func(t *testing.T, p *peering)) {
	for _, network := range networks {
		t.Run(string(network), eachPlane(func(t *testing.T, plane string) { f(t, newPeering(t, plane, network)) }))
	}
}

// TestAnswersAdmitNothing: what a selected pod answers to whom it may reach anyhow is
// no admission of the other's connection, nor are its errors: once the other is
// selected, it may not go on.
func TestAnswersAdmitNothing(t *testing.T) {
	t.Parallel()
	eachPeering(t, func(t *testing.T, p *peering) {
		p.apply(netpol("client", "any other"))
		client, other := p.Pod("client"), p.Pod("other")
		var cs []net.Conn
		for _, a := range []netip.Addr{client.Addr4, client.Addr6} {
			cs = append(cs, p.dial("other", a, 80))
			p.expect("client", map[bool]netip.Addr{true: other.Addr4, false: other.Addr6}[a.Is4()], 80, lab.Answered)
			diff.Equal(t, lab.Refused, other.ProbeFor("udp", netip.AddrPortFrom(a, 99), lab.Limit), "the client's error")
		}
		for _, a := range []netip.Addr{other.Addr4, other.Addr6} {
			flows, err := p.flows.Flows(conntrack.Query{Sources: []netip.Addr{a}})
			if err != nil || len(flows) < 2 {
				t.Fatalf("%d connections, %v", len(flows), err)
			}
			for _, f := range flows {
				if f.Mark&enforcer.DefaultMark != 0 {
					t.Errorf("protocol %d from %s to %s is admitted by an answer", f.Protocol, f.Src, f.Dst)
				}
			}
		}
		p.labels["other"] += " gated"
		p.apply()
		p.goOn("its pod is selected", false, cs...)
	})
}

// TestDatagramsToAReusedAddress: a flow of UDP to a peer that is gone stops, for any
// new owner of its address and however long conntrack has the flow.
func TestDatagramsToAReusedAddress(t *testing.T) {
	t.Parallel()
	eachPeering(t, func(t *testing.T, p *peering) {
		db, other := p.Pod("db"), p.Pod("other")
		p.apply(netpol("client", "any db"))
		var cs []net.Conn
		for _, a := range []netip.Addr{db.Addr4, db.Addr6} {
			c, err := p.Pod("client").Dial("udp", netip.AddrPortFrom(a, 80).String(), lab.Limit)
			fatal.If(t, err)
			defer c.Close()
			for range 3 { // until it is assured
				p.goOn("to a peer", true, c)
			}
			cs = append(cs, c)
		}
		p.labels["db"], p.labels["other"] = "someone", "other db"
		p.apply()
		p.goOn("its peer is gone", false, cs...)
		p.expect("client", other.Addr4, 80, lab.Answered)
	})
}

// TestAuditedPodsPeersMarkNothing: what a NetworkPolicy allows a pod that is only audited
// leaves no admission behind that would outlast it.
func TestAuditedPodsPeersMarkNothing(t *testing.T) {
	t.Parallel()
	eachPeering(t, func(t *testing.T, p *peering) {
		p.audit = true
		p.apply(netpol("client", "tcp/80 db"))
		p.dial("client", p.Pod("db").Addr4, 80)
		p.dial("client", service6, 5432)
		client := p.Pod("client")
		flows, err := p.flows.Flows(conntrack.Query{Sources: []netip.Addr{client.Addr4, client.Addr6}, Mark: enforcer.DefaultMark, Mask: enforcer.DefaultMark})
		if err != nil || len(flows) != 0 {
			t.Errorf("connections %v are admitted, %v", flows, err)
		}
		if s := p.e.Status(); s.PeerSets != 0 {
			t.Errorf("%d sets for nobody", s.PeerSets)
		}
	})
}

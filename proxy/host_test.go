package proxy

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"
	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/proxy/upstream"
	"github.com/namegate/namegate/proxy/wire"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/policytest"
)

var (
	firstHost, secondHost = mustAddr("198.51.100.1"), mustAddr("198.51.100.2")
	hostServing           = map[netip.Addr]netip.Addr{mustAddr("169.254.20.70"): firstHost, mustAddr("169.254.20.71"): secondHost}
)

// hostLab is a lab whose node a policy selects, with two resolvers of the host.
type hostLab struct {
	*lab
	hosts map[netip.Addr]*memory
}

var hostConfig = strings.Replace(labConfig, "forward . 198.51.100.53", "forward . 198.51.100.53\n    cache", 1)

const hostPolicy = `
metadata: {name: host}
spec:
  nodeSelector: {}
  priority: 1
  egress:
  - {action: Accept, matches: [{name: www.example.org}, {pattern: "*.corp.test"}], ports: [{protocol: TCP, port: 443}]}
  - {action: Deny, matches: [{pattern: "**.denied.test"}]}
  - {action: Deny}
`

func newHostLab(t *testing.T) *hostLab {
	t.Helper()
	config, err := corefile.Parse("Corefile", hostConfig)
	fatal.If(t, err)
	l := &hostLab{newLab(t, map[string][]string{"www.example.org A": {"www.example.org. 300 IN A 192.0.2.99"}}), map[netip.Addr]*memory{}}
	l.s.Configure(config)
	l.use(config, l.up)
	l.s.hostResolver = func(local netip.Addr) (netip.Addr, bool) { r, ok := hostServing[local]; return r, ok }
	for r, address := range map[netip.Addr]string{firstHost: "192.0.2.1", secondHost: "192.0.2.2", everyResolver: "192.0.2.1"} {
		l.hosts[r] = &memory{table: map[string][]string{
			"www.example.org A":    {"www.example.org. 300 IN A " + address},
			"www.example.org AAAA": {"www.example.org. 300 IN AAAA 2001:db8::1"},
			"a.denied.test A":      {"a.denied.test. 300 IN A " + address},
			"other.test A":         {"other.test. 300 IN A " + address},
		}}
	}
	l.setHost(Host{Resolvers: []netip.Addr{firstHost, secondHost}})
	l.publish(hostPolicy)
	return l
}

// setHost has the resolvers answer from memory.
func (l *hostLab) setHost(h Host) {
	l.s.SetHost(h)
	for r, z := range l.s.setup.Load().hosts {
		z.upstreams = resolving{l.s, l.hosts[r]}
	}
}

// publish compiles a policy for a node.
func (l *hostLab) publish(text string) {
	l.t.Helper()
	var p v1alpha1.NodeNetworkPolicy
	fatal.If(l.t, yaml.UnmarshalStrict([]byte(text), &p))
	l.s.Publish(compile.New().Compile(compile.Input{
		Policies: policiesOf(l.t, labPolicies), Namespaces: map[string]map[string]string{"shop": {}}, Pods: labPods,
		NodePolicies: []*v1alpha1.NodeNetworkPolicy{&p}, Node: &policy.Node{Name: "n1", Interfaces: []string{"eth0"}},
	}))
}

// asks has a program at an address ask a resolver, by the packet cache if that has the answer.
func (l *hostLab) asks(from string, resolver netip.Addr, name string) *dns.Msg {
	l.t.Helper()
	q := newQuery(name, dns.TypeA)
	for serving, r := range hostServing {
		if r == resolver {
			h := l.s.newHandler(serving)
			who := h.identify(mustAddr(from))
			m := new(dns.Msg)
			fatal.If(l.t, m.Unpack(l.s.handle(packed(l.t, q), who, false)))
			return m
		}
	}
	return nil
}

// TestTheNodesQueriesGoToTheirResolver: by the view of the node, whatever address they come from; what
// one resolver answers is no answer to a query to another.
func TestTheNodesQueriesGoToTheirResolver(t *testing.T) {
	l := newHostLab(t)
	node := policy.NodeRef("n1")
	for _, from := range []string{"192.0.2.250", "203.0.113.9", "127.0.0.1", "2001:db8::77"} {
		for r, want := range map[netip.Addr]string{firstHost: "192.0.2.1", secondHost: "192.0.2.2"} {
			for range 2 { // the second from the cache
				reply := l.asks(from, r, "www.example.org")
				if got := data(reply.Answer); len(got) != 1 || !strings.HasSuffix(got[0], want) {
					t.Errorf("from %s by %s: %q", from, r, got)
				}
				rec := l.log.last(t)
				if rec.Pod != node || rec.Verdict != audit.Allowed || rec.Workload != "" || !rec.Address.IsLoopback() {
					t.Errorf("from %s by %s: logged %+v", from, r, rec)
				}
			}
		}
	}
	for r, m := range l.hosts {
		if n := len(m.asked); r != everyResolver && n != 1 {
			t.Errorf("%s was asked %q", r, m.asked)
		}
	}
	diff.Equal(t, 0, len(l.up.asked), "questions to the cluster's resolver", l.up.asked)
	for _, g := range l.granter.Grants() {
		if g.Pod != node || g.View == nil || g.View.Node == nil {
			t.Errorf("granted to %v", g.Pod)
		}
	}
	if n := len(l.granter.Grants()); n == 0 {
		t.Error("nothing is granted")
	}
	if r := l.asks("192.0.2.250", firstHost, "a.denied.test"); r.Rcode != dns.RcodeNameError || l.log.last(t).Verdict != audit.NameDenied {
		t.Errorf("a denied name: %v", r)
	}
	if r := l.asks("192.0.2.250", firstHost, "other.test"); r.Rcode != dns.RcodeSuccess || len(r.Answer) != 1 || l.log.last(t).Verdict != audit.Unmatched {
		t.Errorf("a name that no rule has: %v", r)
	}
}

// TestPodsCannotAskForTheNode: a packet with a pod's address is refused at an address of the node.
func TestPodsCannotAskForTheNode(t *testing.T) {
	l := newHostLab(t)
	for _, from := range []string{"10.1.0.2", "10.1.0.6"} {
		wantCode(t, dns.RcodeRefused, l.asks(from, firstHost, "www.example.org"), "from", from)
	}
	// And the node's queries on the pods' address are as they were.
	if c := l.s.identify(mustAddr("127.0.0.1"), mustAddr("169.254.20.53")); !c.node || c.view != nil || c.host.IsValid() {
		t.Errorf("loopback at the pods' address is %+v", c)
	}
}

// TestQueriesBeforeTheGuard: until the kernel guards the address, a query from anywhere may be another host's.
func TestQueriesBeforeTheGuard(t *testing.T) {
	l, guarded := newHostLab(t), false
	l.s.hostResolver = func(local netip.Addr) (netip.Addr, bool) { return hostServing[local], guarded }
	if reply := l.asks("203.0.113.9", firstHost, "www.example.org"); reply.Rcode == dns.RcodeSuccess {
		t.Errorf("unguarded: %v", reply)
	}
	guarded = true
	if reply := l.asks("203.0.113.9", firstHost, "www.example.org"); reply.Rcode != dns.RcodeSuccess {
		t.Errorf("guarded: %v", reply)
	}
}

// TestANodeThatNoPolicySelects, or a resolver that is gone.
func TestANodeThatNoPolicySelects(t *testing.T) {
	l := newHostLab(t)
	l.s.Publish(compiled(t, labPolicies, labPods))
	if r := l.asks("192.0.2.250", firstHost, "a.denied.test"); r.Rcode != dns.RcodeSuccess || len(r.Answer) != 1 || len(l.granter.Grants()) != 0 {
		t.Errorf("%v", r)
	}
	l.setHost(Host{Resolvers: []netip.Addr{secondHost}})
	wantCode(t, dns.RcodeServerFailure, l.asks("192.0.2.250", firstHost, "a.denied.test"), "by a resolver that is gone")
	wantCode(t, dns.RcodeSuccess, l.asks("192.0.2.250", secondHost, "a.denied.test"), "by one that stays")
}

// TestTheGuardOfTheNode: its names open nodes, and Services from outside, and no pods, cluster
// addresses, metadata or loopback.
func TestTheGuardOfTheNode(t *testing.T) {
	l := newHostLab(t)
	for address, open := range map[string]bool{
		"192.0.2.250": true, "203.0.113.250": true, "198.51.100.53": true, "10.7.0.1": true,
		"10.1.0.2": false, "10.1.9.9": false, "10.96.0.1": false, "169.254.169.254": false, "169.254.1.1": false, "127.0.0.1": false,
	} {
		name := "h" + strings.ReplaceAll(address, ".", "-") + ".corp.test"
		l.hosts[firstHost].table[name+" A"] = []string{name + ". 300 IN A " + address}
		r := l.asks("192.0.2.250", firstHost, name)
		granted := slices.ContainsFunc(l.granter.Grants(), func(g policy.Grant) bool { return slices.Contains(g.Addrs, mustAddr(address)) })
		if granted != open || (len(r.Answer) == 1) != open {
			t.Errorf("%s: granted %v, answer %q; want %v", address, granted, data(r.Answer), open)
		}
	}
}

// TestTheAgentAsksForTheNode: warm-ups, renewals and names in use go to the resolvers of the host.
func TestTheAgentAsksForTheNode(t *testing.T) {
	l := newHostLab(t)
	v := l.s.snapshot.Load().Node()
	opened, _ := v.ExactNames()
	fatal.If(t, l.s.WarmNames(t.Context(), v, opened))
	if asked := l.hosts[everyResolver].asked; len(asked) != 2 || len(l.up.asked) != 0 {
		t.Errorf("asked %q, and the cluster's %q", asked, l.up.asked)
	}
	got := l.granted()
	slices.Sort(got)
	if len(got) != 2 || !strings.Contains(got[0], "[192.0.2.1]") || !strings.Contains(got[1], "[2001:db8::1]") {
		t.Errorf("granted %q", got)
	}
	l.hosts[everyResolver].table["dead.corp.test A"] = []string{"error"}
	diff.Fails(t, "for node n1", l.s.WarmNames(t.Context(), v, []fqdn.Name{policytest.Name("dead.corp.test")}), "a failure")
}

// TestConfigurationsOfHostResolvers: another Corefile keeps the resolvers and, if answers are the
// same by it, what they answered.
func TestConfigurationsOfHostResolvers(t *testing.T) {
	l := newHostLab(t)
	l.asks("192.0.2.250", firstHost, "www.example.org")
	for _, c := range []struct {
		text string
		kept bool
	}{{strings.Replace(hostConfig, "search corp.test", "search more.test", 1), true}, {strings.Replace(hostConfig, "198.51.100.53", "198.51.100.54", 1), false}} {
		config, err := corefile.Parse("Corefile", c.text)
		fatal.If(t, err)
		l.s.Configure(config)
		for r, z := range l.s.setup.Load().hosts {
			if up, ok := z.upstreams.(*upstream.Zone); !ok || up == nil {
				t.Errorf("%s has no upstreams", r)
			}
			z.upstreams = resolving{l.s, l.hosts[r]}
		}
		before := len(l.hosts[firstHost].asked)
		l.asks("192.0.2.250", firstHost, "www.example.org")
		if asked := len(l.hosts[firstHost].asked) - before; (asked == 0) != c.kept {
			t.Errorf("asked %d times more", asked)
		}
	}
}

// TestUnansweredQueriesOfTheNode: a resolver is in doubt where a question ends without an answer and
// the same question came meanwhile.
func TestUnansweredQueriesOfTheNode(t *testing.T) {
	l := newHostLab(t)
	doubt := make(chan netip.Addr, 8)
	l.s.unanswered = func(r netip.Addr) { doubt <- r }
	// Without a second question it is not in doubt: the doubt below is the first.
	l.hosts[secondHost].table["other.test A"] = []string{"error"}
	l.asks("192.0.2.250", secondHost, "other.test")
	l.hosts[firstHost].table["other.test A"] = []string{"error"}
	z := l.s.setup.Load().hosts[firstHost]
	c, _ := l.s.calls.join(queryOf("other.test"), z, new(unheard))
	l.s.calls.join(queryOf("other.test"), z, new(unheard))
	c.start(nil)
	if got := <-doubt; got != firstHost || len(doubt) > 0 {
		t.Errorf("%s is in doubt, and %d more", got, len(doubt))
	}
}

func queryOf(name string) wire.Query {
	return wire.Query{Question: wire.Question{Name: policytest.Name(name), Type: dns.TypeA, Class: dns.ClassINET}, Flags: wire.RD}
}

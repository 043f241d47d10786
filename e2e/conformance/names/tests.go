package names

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	api "sigs.k8s.io/network-policy-api/apis/v1beta1"
	"sigs.k8s.io/network-policy-api/conformance/utils/suite"
)

// The features of the tests.
const (
	// SupportDomainNames is what NPEP-133 expects.
	SupportDomainNames suite.SupportedFeature = "ClusterNetworkPolicyDomainNames"
	// SupportDomainNamesBaseline is names in the tier Baseline, which NPEP-133 leaves out and
	// the schema lets in.
	SupportDomainNamesBaseline suite.SupportedFeature = "ClusterNetworkPolicyDomainNamesBaseline"
	// SupportDomainNamesPerPod is that the answer to one pod opens nothing to another.
	SupportDomainNamesPerPod suite.SupportedFeature = "ClusterNetworkPolicyDomainNamesPerPod"
	// SupportDomainNamesIPv6 is names with AAAA records.
	SupportDomainNamesIPv6 suite.SupportedFeature = "ClusterNetworkPolicyDomainNamesIPv6"
)

// Features are all of them.
var Features = []suite.SupportedFeature{SupportDomainNames, SupportDomainNamesBaseline, SupportDomainNamesPerPod, SupportDomainNamesIPv6}

// Tests are the tests of an environment. The one that waits longest comes first.
func (e *Environment) Tests() (all []suite.ConformanceTest) {
	add := func(name, description string, body func(*subject), beyond ...suite.SupportedFeature) {
		all = append(all, suite.ConformanceTest{
			ShortName: "DomainNames" + name, Description: description, Features: append([]suite.SupportedFeature{SupportDomainNames}, beyond...), Parallel: true,
			Test: func(t *testing.T, _ *suite.ConformanceTestSuite) { body(e.client(t, strings.ToLower(name))) },
		})
	}
	add("TTL", "4: an address closes after its TTL, each answer starts the time anew, and an open connection outlives it", testTTL)
	add("Resolver", "1: a rule for names lets no query through to the cluster's resolver; another rule does", testResolver)
	add("NoDNSFilter", "2: names that no rule has resolve, and their addresses are closed", testNoDNSFilter)
	add("ForgedServer", "3: what another DNS server answers opens nothing", testForgedServer)
	add("Exact", "A name without wildcard is that name alone, in any case of letters", testExact)
	add("Wildcard", "*.name is one or more labels, and not the name itself", testWildcard)
	add("100Addresses", "5: a hundred addresses of one name, also of each name of a wildcard", test100Addresses)
	add("WithoutPTR", "6: no PTR record is needed", testWithoutPTR)
	add("HeadlessService", "7: the name of a headless Service is its pods", testHeadlessService)
	add("PodRecord", "7: the generated name of a pod is that pod", testPodRecord)
	add("CNAME", "8: a chain of aliases in one answer counts as the name that was asked", testCNAME)
	add("PolicyAddedLater", "A policy that comes after a query is in force for the next one", testPolicyAddedLater)
	add("PolicyRemoved", "A rule that goes away closes the address for new connections, and an open connection goes on", testPolicyRemoved)
	add("Precedence", "A Deny of networks before the Accept of names wins, one after it does not, across policies and in one", testPrecedence)
	add("Ports", "A rule with ports opens these ports of the name's addresses", testPorts)
	add("AdminBeforeBaseline", "An allowlist of names in the tier Admin before a Deny in the tier Baseline", testAdminBeforeBaseline)
	add("BaselineTier", "Names in the tier Baseline", testBaselineTier, SupportDomainNamesBaseline)
	add("OwnQueries", "What another pod asked opens nothing", testOwnQueries, SupportDomainNamesPerPod)
	add("IPv6", "AAAA records", testIPv6, SupportDomainNamesIPv6)
	return all
}

func testExact(p *subject) {
	p.policy(api.AdminTier, 100, p.dns(), accept(p.named("exact", "host.parent", "case")), everything())
	p.enforced()
	p.opens("exact")
	p.opens("host.parent")
	for _, labels := range []string{"below.exact", "not-exact", "parent"} {
		p.opensNot(labels)
	}
	p.same(p.addresses("case"), p.resolves(strings.ToUpper(p.name("case"))))
	p.open(p.addresses("case")...)
}

func testWildcard(p *subject) {
	p.policy(api.AdminTier, 100, p.dns(), accept(p.named("*.wild")), everything())
	p.enforced()
	p.opens("one.wild")
	p.opens("two.one.wild")
	p.opensNot("wild")
	p.opensNot("not-wild")
}

func testResolver(p *subject) {
	policy := p.policy(api.AdminTier, 100, accept(p.named("exact")), everything())
	p.enforced()
	for _, args := range [][]string{nil, {"--tcp"}} {
		a, err := p.lookup(p.name("exact"), "A", args...)
		require.NoError(p, err)
		assert.Emptyf(p, a.Records, "a query %v was answered without a rule for DNS", args)
	}
	p.change(policy, p.dns(), accept(p.named("exact")), everything())
	p.opens("exact")
}

func testNoDNSFilter(p *subject) {
	p.policy(api.AdminTier, 100, p.dns(), accept(p.named("exact")), everything())
	p.enforced()
	p.opensNot("unrelated")
	p.closed(p.resolves(p.headless())...)
	a, err := p.lookup(p.name("missing"), "A")
	require.NoError(p, err)
	assert.Equal(p, "NXDOMAIN", a.Rcode, "of a name that does not exist")
}

func testForgedServer(p *subject) {
	server := p.ready(p.T, "forged").Status.PodIP
	to := accept(network(netip.MustParseAddr(server)))
	to.Protocols = []api.ClusterNetworkPolicyProtocol{udp(53), tcp(53)}
	p.policy(api.AdminTier, 100, p.dns(), to, accept(p.named("trusted")), everything())
	p.enforced()
	for _, args := range [][]string{{"--server", server}, {"--tcp", "--server", server}} {
		a, err := p.lookup(p.name("trusted"), "A", args...)
		require.NoError(p, err)
		require.Equal(p, []string{p.at(forgedAt).String()}, a.Records, "what the other server answers: %+v", a)
		p.closed(p.at(forgedAt))
	}
	p.opens("trusted")
	p.closed(p.at(forgedAt))
}

func test100Addresses(p *subject) {
	p.policy(api.AdminTier, 100, p.dns(), accept(p.named("many", "*.many")), everything())
	p.enforced()
	for _, labels := range []string{"many", "docs.many", "blog.many"} {
		p.looksUp(labels)
		args := []string{"sweep", "--timeout", p.suite.TimeoutConfig.PokeTimeout.String()}
		for _, a := range p.addresses(labels) {
			args = append(args, netip.AddrPortFrom(a, uint16(p.Port)).String())
		}
		failed, err := run[map[string]string](p.Environment, p.podName, args...)
		require.NoError(p, err)
		assert.Emptyf(p, failed, "connections to the addresses of %s", labels)
	}
	p.enforced()
}

func testWithoutPTR(p *subject) {
	p.policy(api.AdminTier, 100, p.dns(), accept(p.named("exact")), everything())
	p.enforced()
	b := p.addresses("exact")[0].As4()
	a, err := p.lookup(fmt.Sprintf("%d.%d.%d.%d.in-addr.arpa", b[3], b[2], b[1], b[0]), "PTR")
	require.NoError(p, err)
	require.Empty(p, a.Records, "the PTR records of the address: the test needs an address without")
	p.opens("exact")
}

// headless is the name of a Service without an address of its own.
func (e *Environment) headless() string {
	return "headless." + Namespace + ".svc." + e.ClusterDomain + "."
}

func testHeadlessService(p *subject) {
	p.policy(api.AdminTier, 100, p.dns(), accept(p.named(p.headless())), everything())
	p.enforced()
	addrs := p.resolves(p.headless())
	require.Len(p, addrs, 2, "the pods of the headless Service")
	p.open(addrs...)
	p.closed(netip.MustParseAddr(p.ready(p.T, "dns").Status.PodIP))
}

func testPodRecord(p *subject) {
	addr := netip.MustParseAddr(p.ready(p.T, "server-0").Status.PodIP)
	name := strings.NewReplacer(".", "-", ":", "-").Replace(addr.String()) + "." + Namespace + ".pod." + p.ClusterDomain + "."
	p.policy(api.AdminTier, 100, p.dns(), accept(p.named(name)), everything())
	p.enforced()
	p.same([]netip.Addr{addr}, p.resolves(name))
	p.open(addr)
	p.closed(netip.MustParseAddr(p.ready(p.T, "server-1").Status.PodIP))
}

func testCNAME(p *subject) {
	p.policy(api.AdminTier, 100, p.dns(), accept(p.named("alias")), everything())
	p.enforced()
	p.same(p.addresses("target"), p.resolves(p.name("alias")))
	p.open(p.addresses("target")...)
}

func testPolicyAddedLater(p *subject) {
	p.opens("later")
	p.opens("unrelated")
	p.policy(api.AdminTier, 100, p.dns(), accept(p.named("later")), everything())
	p.enforced()
	p.opens("later")
	p.opensNot("unrelated")
}

func testPolicyRemoved(p *subject) {
	rules := []api.ClusterNetworkPolicyEgressRule{p.dns(), everything()}
	first := p.policy(api.AdminTier, 100, accept(p.named("removed")))
	p.policy(api.AdminTier, 200, rules...)
	p.enforced()
	p.opens("removed")
	goesOn := p.holds("removed")
	p.remove(first)
	p.closed(p.addresses("removed")...)
	goesOn()
	p.opensNot("removed")
}

func testPrecedence(p *subject) {
	at := network(p.addresses("precedence")...)
	policy := p.policy(api.AdminTier, 200, p.dns(), accept(p.named("precedence")), deny(at), everything())
	p.enforced()
	p.opens("precedence")
	before := p.policy(api.AdminTier, 100, deny(at))
	p.closed(p.addresses("precedence")...)
	p.opensNot("precedence")
	p.remove(before)
	p.opens("precedence")
	p.change(policy, p.dns(), deny(at), accept(p.named("precedence")), everything())
	p.closed(p.addresses("precedence")...)
	p.opensNot("precedence")
}

func testPorts(p *subject) {
	rule := accept(p.named("ports"))
	rule.Protocols = []api.ClusterNetworkPolicyProtocol{tcp(p.Port), udp(p.OtherPort)}
	p.policy(api.AdminTier, 100, p.dns(), rule, everything())
	p.enforced()
	p.opens("ports")
	p.poke(p.OtherPort, false, p.addresses("ports")...)
}

func testAdminBeforeBaseline(p *subject) {
	p.policy(api.AdminTier, 100, p.dns(), accept(p.named("exact")))
	p.policy(api.BaselineTier, 100, everything())
	p.enforced()
	p.opens("exact")
	p.opensNot("unrelated")
}

func testBaselineTier(p *subject) {
	p.policy(api.AdminTier, 100, deny(network(p.addresses("denied")...)))
	p.policy(api.BaselineTier, 100, p.dns(), accept(p.named("baseline", "denied")), everything())
	p.enforced()
	p.opens("baseline")
	p.opensNot("denied")
	p.opensNot("unrelated")
}

// testOwnQueries has a wildcard: an implementation may resolve exact names itself.
func testOwnQueries(p *subject) {
	other := p.another()
	p.policy(api.AdminTier, 100, p.dns(), accept(p.named("*.own")), everything())
	p.enforced()
	other.enforced()
	p.opens("one.own")
	other.closed(p.addresses("one.own")...)
	other.opens("one.own")
}

func testIPv6(p *subject) {
	if !p.Outside6.IsValid() {
		p.Skip("there is no network of IPv6 outside")
	}
	p.policy(api.AdminTier, 100, p.dns(), accept(p.named("exact")), everything())
	p.closed(p.at6(nowhereAt))
	p.same([]netip.Addr{p.at6(exactAt)}, p.resolvesType(p.name("exact"), "AAAA"))
	p.open(p.at6(exactAt))
	p.resolvesType(p.name("unrelated"), "AAAA")
	p.closed(p.at6(unrelatedAt))
}

package layout

import (
	"slices"
	"strings"
	"sync"

	"github.com/namegate/namegate/enforcer/ruleset/lists"
	"github.com/namegate/namegate/kernel/nft"
	"github.com/namegate/namegate/kernel/nft/timed"
)

// addr stands for the type of the addresses of a family. So do IP and LOOPBACK for its words.
const addr = "ADDR"

// familySets are the sets and maps of the table inet that are there for each family, whose names end with it.
var familySets = []nft.Set{
	{Name: "selected", Key: addr, Comment: "addresses that are default-deny"},
	{Name: "dropped", Key: addr, Comment: "of selected: denied packets get no answer"},
	{Name: "intercepted", Key: addr, Comment: "pods whose queries to resolvers go to the agent"},
	{Name: "known", Key: addr, Comment: "pods of this node: queries to the endpoint go to the agent"},
	{Name: "plain", Key: addr, Comment: "known pods whose queries are not intercepted"},
	{Name: "endpoint", Key: addr, Comment: "virtual addresses of DNS"},
	{Name: "homed", Key: addr, Comment: "addresses that are genuine at their home alone"},
	{Name: "home", Key: "ifname . " + addr, Comment: "interfaces and the addresses that are genuine there"},
	{Name: "own", Key: addr + " . " + addr, Comment: "pairs of addresses of one pod"},
	{Name: "podrange", Key: addr, Fill: nft.Ranges, Comment: "address ranges of this node's pods"},
	{Name: "intercept", Key: addr, Value: addr, Comment: "resolvers to the agent's addresses"},
	{Name: "giveback", Key: addr, Value: addr, Comment: "the agent's addresses to what pods dialled"},
	{Name: "backends", Key: "inet_service", Value: addr + " . inet_service", Comment: "who answers the endpoint while no agent is alive, by slots of ports"},
	{Name: auditedSet, Key: addr, Comment: "pods whose new connections are logged"},
	{Name: servingSet, Key: addr, Comment: "addresses on which agents serve DNS"},
	{Name: dnsSet, Key: addr, Comment: "resolvers that subjects may dial"},
	{Name: dnsByRulesSet, Key: addr, Comment: "subjects whose rules decide about DNS to resolvers"},
	{Name: tiersMap, Key: addr, Value: "verdict", Comment: "subjects to the first chain of their ordered rules"},
	{Name: podsMap, Key: addr, Value: "verdict", Comment: "subjects to the chain of their Namespace tier"},
	{Name: subjectsSet, Key: "ifname . " + addr, Comment: "the IDs of subjects, as words, and their addresses"},
	{Name: ingressSet, Key: addr, Comment: "addresses with rules for ingress"},
	{Name: postponedSet, Key: addr, Comment: "the same addresses, to which rules for egress admit nothing, and from which no reply goes without an admission"},
	{Name: ingressMap, Key: addr, Value: "verdict", Comment: "subjects to the first chain of their rules for ingress"},
	{Name: stagedSet, Key: addr, Comment: "addresses that are about to become default-deny"},
	{Name: recheckSet, Key: addr, Comment: "addresses whose connections are still to be judged again"},
	{Name: lists.NetworksSet, Key: addr, Fill: nft.Ranges, Comment: "networks of all rules of long lists"},
	{Name: servicesSet, Key: addr, Fill: nft.Ranges, Comment: "ranges of Services, by which a rule by name may be led on"},
	{Name: timed.KeySet, Key: addr + " . " + addr, Fill: nft.Keys, Comment: "subjects and addresses of all entries of rules by name"},
	{Name: probedSet, Key: addr, Fill: nft.Kernel, Timeout: probedFor, Size: maxProbed, Comment: "pods whose self-test was seen lately"},
	{Name: loggedSet, Key: addr, Fill: nft.Kernel, Timeout: loggedFor, Size: maxLogged, Comment: "pods whose packets were logged lately, each with its share"},
	{Name: loggedIngressSet, Key: addr, Fill: nft.Kernel, Timeout: loggedFor, Size: maxLogged, Comment: "pods to which packets were logged lately, each with its share"},
	{Name: watchedSet, Key: addr + " . " + addr + " . inet_proto . inet_service . mark", Fill: nft.Kernel, Timeout: watchedFor, Size: maxWatched, Comment: "connections that Audit policies are asked about and that were logged lately"},
	{Name: answeringSet, Key: addr + " . inet_service", Comment: "addresses behind the resolvers"},
	{Name: bypassingSet, Key: addr, Fill: nft.Kernel, Timeout: bypassingFor, Size: maxBypassing, Comment: "pods that asked an address behind a resolver lately"},
	{Name: flowsSet, Key: addr + " . inet_service . " + addr, Fill: nft.Kernel, Timeout: flowTimeout, Size: maxFlows, Comment: "open connections of DNS over TCP to the agent"},
	{Name: formerMap, Key: addr, Value: addr, Comment: "the agent's addresses to those of the agent before"},
	{Name: flowSharesSet, Key: addr, Fill: nft.Kernel, Timeout: loggedFor, Size: maxLogged, Comment: "pods that opened connections of DNS over TCP lately, each with its share"},
	{Name: flowlessSet, Key: addr, Fill: nft.Kernel, Timeout: bypassingFor, Size: maxBypassing, Comment: "pods whose connection of DNS over TCP found no room lately"},
	{Name: nodeInterceptMap, Key: addr, Value: addr, Comment: "resolvers of the host to the agent's addresses for the node's own queries"},
	{Name: nodeGiveBackMap, Key: addr, Value: addr, Comment: "the agent's addresses for the node's own queries to the resolvers"},
	{Name: nodeServingSet, Key: addr, Comment: "the agent's addresses for the node's own queries"},
	{Name: testedSet, Key: "IP daddr . " + nameRest, TypeOf: true, Fill: nft.Kernel, Timeout: testedFor, Size: maxTested, Comment: "resolvers that lead queries back to this node"},
	{Name: unledSet, Key: "uid . ifname . " + addr, Fill: nft.Kernel, Timeout: unledFor, Size: maxUnled, Comment: "users, interfaces and resolvers of the node's queries that the agent did not get"},
	{Name: relaysSet, Key: addr + " . inet_service", Comment: "where relays accept connections whose TLS server name is checked"},
	{Name: diallingSet, Key: "inet_service . " + addr + " . inet_service", Fill: nft.Kernel, Timeout: diallingFor, Size: maxDialling, Comment: "local ports and destinations that the relay connects for pods"},
	{Name: heldSet, Key: addr, Fill: nft.Renewed, Renewed: "LOOPBACK", Timeout: UnconfirmedTimeout, Comment: "the node while rules that wait for confirmation count"},
}

// of is such a set of a family.
func of(f lists.Family, s nft.Set) *nft.Set {
	words := strings.NewReplacer(addr, f.Addr, "IP", f.IP, "LOOPBACK", f.Loopback)
	s.Name += f.Suffix
	s.Key, s.Value, s.Renewed = words.Replace(s.Key), words.Replace(s.Value), words.Replace(s.Renewed)
	return &s
}

// setsOf are the sets with a name of both families.
func setsOf(name string) (out []*nft.Set) {
	for _, s := range familySets {
		if s.Name == name {
			out = append(out, of(lists.Families[0], s), of(lists.Families[1], s))
		}
	}
	return out
}

// alive holds the port of DNS while an agent is alive.
var alive = &nft.Set{
	Name: "alive", Key: "inet_service", Fill: nft.Renewed, Renewed: dnsPort, Timeout: HeartbeatTimeout,
	Comment: "the port of DNS while an agent is alive; without it no query is intercepted",
}

// ifaces, bound and loopTests have no family.
var (
	ifaces    = &nft.Set{Name: "ifaces", Key: "ifname", Comment: "interfaces of one pod each: nothing else may come from them"}
	bound     = &nft.Set{Name: boundSet, Key: "ifname", Comment: "interfaces of one pod each: no other source may come from them"}
	loopTests = &nft.Set{Name: loopTestSet, Key: nameBegin, TypeOf: true, Comment: "beginnings of names that test for loops"}
)

// inetSets are the sets and maps of the layout of the table inet.
var inetSets = sync.OnceValue(func() []*nft.Set {
	out := []*nft.Set{alive, ifaces, bound, loopTests}
	for _, s := range familySets {
		out = append(out, of(lists.Families[0], s), of(lists.Families[1], s))
	}
	return out
})

// bridgeSets are those of the table bridge.
var bridgeSets = append([]*nft.Set{
	{Name: "ports", Key: "ifname", Comment: "bridge ports of pods"},
	{Name: gatewaySet, Key: "ipv6_addr", Comment: "link-local addresses of the node, which no pod may claim"},
	{Name: gatewayNumbers, Key: advertised, TypeOf: true, Comment: "gateways as numbers, for neighbour advertisements"},
	{Name: claimSet, Key: "iifname . " + advertised, TypeOf: true, Comment: "bridge ports and the addresses that they may advertise, as numbers"},
	{Name: ingressPorts, Key: "ifname", Comment: "bridge ports of pods with rules for ingress"},
}, slices.Concat(setsOf("home"), setsOf("homed"))...)

var prefixComments = [...]struct{ prefix, comment string }{
	{adminPrefix, "ordered rules: Admin tier"}, {restPrefix, "ordered rules: tiers behind the Admin tier"}, {lists.PartPrefix, "a part of a list of rules"},
	{ingressPrefix, "rules for ingress"}, {podPrefix, "Namespace tier of one pod"}, {listPrefix, "rules about peers that pods share"}, {nodePrefix, "rules of the node itself"},
	{relayPrefix, "connections whose TLS server name is checked"},
	{lists.PeersPrefix, "members of a peer of rules"}, {timed.EntriesPrefix, "subjects and addresses that a rule by name has open"}, {timed.GrantsPrefix, "addresses that names opened to a pod"},
}

// describe returns the comment of an object of a state.
func describe(name string) string {
	for _, p := range prefixComments {
		if strings.HasPrefix(name, p.prefix) {
			return p.comment
		}
	}
	return ""
}

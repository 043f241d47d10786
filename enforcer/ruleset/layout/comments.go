package layout

import (
	"cmp"
	"strings"

	"github.com/namegate/namegate/kernel/nft/timed"
)

// setComments say what sets and maps hold, by their names without the family.
var setComments = map[string]string{
	aliveSet:         "the port of DNS while an agent is alive; without it no query is intercepted",
	"selected":       "addresses that are default-deny",
	"dropped":        "of selected: denied packets get no answer",
	"intercepted":    "pods whose queries to resolvers go to the agent",
	"known":          "pods of this node: queries to the endpoint go to the agent",
	"plain":          "known pods whose queries are not intercepted",
	"endpoint":       "virtual addresses of DNS",
	"homed":          "addresses that are genuine at their home alone",
	"home":           "interfaces and the addresses that are genuine there",
	"ifaces":         "interfaces of one pod each: nothing else may come from them",
	"own":            "pairs of addresses of one pod",
	"podrange":       "address ranges of this node's pods",
	"intercept":      "resolvers to the agent's addresses",
	"giveback":       "the agent's addresses to what pods dialled",
	"backends":       "who answers the endpoint while no agent is alive, by slots of ports",
	"ports":          "bridge ports of pods",
	gatewaySet:       "link-local addresses of the node, which no pod may claim",
	gatewayNumbers:   "gateways as numbers, for neighbour advertisements",
	claimSet:         "bridge ports and the addresses that they may advertise, as numbers",
	auditedSet:       "pods whose new connections are logged",
	servingSet:       "addresses on which agents serve DNS",
	dnsSet:           "resolvers that subjects may dial",
	tiersMap:         "subjects to the first chain of their ordered rules",
	podsMap:          "subjects to the chain of their Namespace tier",
	stagedSet:        "addresses that are about to become default-deny",
	recheckSet:       "addresses whose connections are still to be judged again",
	networksSet:      "networks of all rules of long lists",
	servicesSet:      "ranges of Services, by which a rule by name may be led on",
	timed.KeySet:     "subjects and addresses of all entries of rules by name",
	probedSet:        "pods whose self-test was seen lately",
	loggedSet:        "pods whose packets were logged lately, each with its share",
	watchedSet:       "connections of audited pods that were logged lately",
	watchedBareSet:   "the same of protocols without ports",
	answeringSet:     "addresses behind the resolvers",
	bypassingSet:     "pods that asked an address behind a resolver lately",
	flowsSet:         "open connections of DNS over TCP to the agent",
	formerMap:        "the agent's addresses to those of the agent before",
	flowSharesSet:    "pods that opened connections of DNS over TCP lately, each with its share",
	flowlessSet:      "pods whose connection of DNS over TCP found no room lately",
	nodeInterceptMap: "resolvers of the host to the agent's addresses for the node's own queries",
	nodeGiveBackMap:  "the agent's addresses for the node's own queries to the resolvers",
	nodeServingSet:   "the agent's addresses for the node's own queries",
	testedSet:        "resolvers that lead queries back to this node",
	unledSet:         "users, interfaces and resolvers of the node's queries that the agent did not get",
	loopTestSet:      "beginnings of names that test for loops",
	heldSet:          "the node while rules that wait for confirmation count",
}

// chainComments say what chains do.
var chainComments = map[string]string{
	"home": "drops packets with an address that is not at home where they come from", "claims": "judges neighbour advertisements of bridged pods",
	"bypass": "notes pods that ask an address behind a resolver", "prerouting": "home check and interception of DNS",
	"dnsfull": "notes and drops a connection without room", "dnsflow": "adds or renews a connection of DNS over TCP", "dnsshare": "bounds the connections of a pod",
	"dnsfollow": "finds the agent of an open connection", "dnsforget": "ends the record of an old connection", "dnssyn": "leads a new connection to the agent", "dnstcp": "DNS over TCP",
	"watch": "logs a new connection of an audited pod", "dialled": "passes over what was logged lately", "dial": "audit log and fallback of the endpoint", "giveback": "gives replies of the agent the source that was dialled",
	"original": "undoes a translated destination before a denial", "tell": "logs a denied packet", "refuse": "answers a denied packet", "errors": "ICMP errors about own connections alone",
	"admit": "the only chain that admits", namedChain: "where a connection by name may lead", "deny": "denies as the subject wants it", "denyreject": "denies with an answer", "denydrop": "denies without an answer",
	"undeniable": "what no ordered rule denies", "undeniablebare": "the same for untracked packets", "resolve": "DNS to resolvers", "resolvebare": "the same for untracked packets",
	"pods": "leads subjects to their Namespace tier", "namespace": "the Namespace tier", candidatesChain: "admits what rules outside of this table allow", stagedSet: "admits what rules of coming subjects allow, and denies nothing",
	"judge": "judges a packet of a selected address", "cut": "ends a connection without admission", "forward": "judges forwarded packets", "input": "judges packets to the node",
	"unadmitted": "drops what is not admitted", "foreign": "drops other sources from interfaces of pods",
}

// prefixComments are of the objects that states add to the layout, by the beginnings of their names.
var prefixComments = [...]struct{ prefix, comment string }{
	{adminPrefix, "ordered rules: Admin tier"}, {restPrefix, "ordered rules: tiers behind the Admin tier"}, {partPrefix, "a part of a list of rules"},
	{podPrefix, "Namespace tier of one pod"}, {listPrefix, "rules about peers that pods share"}, {nodePrefix, "rules of the node itself"},
	{peersPrefix, "members of a peer of rules"}, {timed.EntriesPrefix, "subjects and addresses that a rule by name has open"}, {timed.GrantsPrefix, "addresses that names opened to a pod"},
}

// describe returns the comment of a set or map, or of a chain, "" without one.
func describe(name string, chain bool) string {
	comment := chainComments[name]
	if !chain {
		comment = cmp.Or(setComments[name], setComments[strings.TrimRight(name, "46")])
	}
	for _, p := range prefixComments {
		if comment == "" && strings.HasPrefix(name, p.prefix) {
			comment = p.comment
		}
	}
	return comment
}

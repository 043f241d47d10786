package layout

import (
	"fmt"
	"slices"
	"time"

	"github.com/namegate/namegate/enforcer/ruleset/lists"
	"github.com/namegate/namegate/kernel/nflog"
)

// deniedCounter is the named counter of all packets that are denied, logged or not.
const deniedCounter = "denied"

// auditedSet, with the family, holds the pods that Audit policies could deny connections.
const auditedSet = "audited"

// Sets that the kernel fills, each with the family.
const (
	// loggedSet holds the pods whose packets were logged lately: each has a share of the
	// log, so that none silences another.
	loggedSet = "told"
	// watchedSet has the connections of audited subjects that were logged lately.
	watchedSet = "watched"
)

const (
	// podLogLimit bounds the log of one pod, logLimit that of all pods.
	podLogLimit = "limit rate 20/second burst 100 packets"
	logLimit    = "500/second burst 500 packets"
	// loggedFor is as long as a share takes to be whole again, and longer.
	loggedFor = 10 * time.Second
	maxLogged = 4096
	// watchedFor is how long a logged destination of an audited pod is not logged again.
	watchedFor = 10 * time.Second
	maxWatched = 65536
)

// share is the rest of a rule, which applies within the pod's share.
const share = "update @" + loggedSet + "%[1]s { %[2]s saddr " + podLogLimit + " } "

// loggedRule leads a denied packet to the log, within the pod's share. A packet with a
// source that is no pod's is not logged: such sources could be made up without end.
const loggedRule = "%[2]s saddr @selected%[1]s " + share + "jump tell"

// ported are the protocols with ports that rules name.
const ported = "{ tcp, udp, sctp }"

// dialledAgain undoes another program's translation of the destination of a packet that is
// going to be denied: the log has the packet as the pod sent it, and on a bridge too the
// refusal comes from the address that the pod dialled.
func dialledAgain() []string {
	return append([]string{"meta l4proto " + ported + " th dport set ct original proto-dst"},
		lists.Each("%[2]s daddr set ct original %[2]s daddr")...)
}

// logRules are the rules that log a packet that is going to be denied, before that as it was
// translated, if it was.
func logRules() []string {
	return []string{"ct status dnat " + logRule(nflog.PrefixReached), "ct status dnat jump original", "limit rate " + logLimit + " " + logRule(nflog.PrefixDenied)}
}

func logRule(prefix string) string { return fmt.Sprintf("log prefix %q group %d", prefix, LogGroup) }

// auditedRules lead what begins a connection of an audited pod to be logged, before any
// translation of the destination.
func auditedRules() []string { return lists.Each("%[2]s saddr @" + auditedSet + "%[1]s jump dialled") }

// dialledRules lead what begins a connection of a pod, or of the node, to be logged. Discovery on a link is no connection.
func dialledRules() []string {
	return slices.Concat(onLink, loggedOnce(1, "return", share, "jump watch"))
}

// loggedOnce passes a connection over that was logged lately by the rules of a number, or if the share of its subject is
// used up. In that case it is not remembered either, so that a subject that tries everything does not
// take the others' room. A protocol without ports has port 0.
func loggedOnce(number int, pass, share, log string) (rules []string) {
	for _, of := range [...][2]string{{"meta l4proto " + ported + " ", "th dport"}, {"meta l4proto != " + ported + " ", "th dport & 0"}} {
		which, port := of[0], of[1]
		key := fmt.Sprintf("%%[2]s saddr . %%[2]s daddr . meta l4proto . %s . meta mark & 0 ^ %d", port, number)
		rules = append(rules, lists.Each(which+key+" @"+watchedSet+"%[1]s "+pass, which+share+"update @"+watchedSet+"%[1]s { "+key+" } "+log)...)
	}
	return rules
}

// watchRules log the first packet of such a connection.
func watchRules() []string {
	return []string{"limit rate " + logLimit + " " + logRule(nflog.PrefixAudited)}
}

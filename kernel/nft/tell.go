package nft

import (
	"fmt"
	"slices"
	"time"

	"github.com/namegate/namegate/kernel/nflog"
	"sigs.k8s.io/knftables"
)

// deniedCounter is the named counter of all packets that are denied, logged or not.
const deniedCounter = "denied"

// auditedSet, with the family, holds the pods that only Audit policies select.
const auditedSet = "audited"

// Sets that the kernel fills, each with the family.
const (
	// toldSet holds the pods of which packets were logged of late: each has a share, so
	// that none silences another.
	toldSet = "told"
	// watchedSet and watchedBareSet hold what audited pods dialled of late: the latter
	// by protocols without ports.
	watchedSet     = "watched"
	watchedBareSet = "watchedbare"
)

const (
	// toldShare is how much of one pod is logged, toldAll of all pods.
	toldShare = "limit rate 20/second burst 100 packets"
	toldAll   = "500/second burst 500 packets"
	// toldFor is as long as a share takes to be whole again, and longer.
	toldFor  = 10 * time.Second
	toldMost = 4096
	// watchedFor is how long what was told of an audited pod is not told again.
	watchedFor  = 10 * time.Second
	watchedMost = 65536
)

// tellSets are the sets that the rules of this file need.
func (l layout) tellSets(f family) {
	l.dynamic(toldSet+f.suffix, f.addr, toldMost, toldFor)
	l.dynamic(watchedSet+f.suffix, f.addr+" . "+f.addr+" . inet_proto . inet_service", watchedMost, watchedFor)
	l.dynamic(watchedBareSet+f.suffix, f.addr+" . "+f.addr+" . inet_proto", watchedMost, watchedFor)
	if f == families[0] {
		l.tx.Add(&knftables.Counter{Name: deniedCounter})
	}
}

// share is the rest of a rule: it goes on within the pod's share.
const share = "update @" + toldSet + "%[1]s { %[2]s saddr " + toldShare + " } "

// toldRule leads what is denied to be logged, within the pod's share. What has a source
// that is no pod's is not told of: that could be made up without end.
const toldRule = "%[2]s saddr @selected%[1]s " + share + "jump tell"

// ported are the protocols with ports that rules name.
const ported = "{ tcp, udp, sctp }"

// dialledAgain takes back what another program's translation made of the destination of
// a packet that is going to be denied: it is told of as the pod sent it, and on a bridge
// too the refusal comes from whom the pod dialled.
func dialledAgain() []string {
	return append([]string{"meta l4proto " + ported + " th dport set ct original proto-dst"},
		each("%[2]s daddr set ct original %[2]s daddr")...)
}

// tellRules log a packet that is going to be denied.
func tellRules() []string {
	return []string{"limit rate " + toldAll + " " + logRule(nflog.PrefixDenied)}
}

func logRule(prefix string) string { return fmt.Sprintf("log prefix %q group %d", prefix, LogGroup) }

// auditedRules lead what begins a connection of an audited pod to be logged, before any
// translation of the destination.
func auditedRules() []string { return each("%[2]s saddr @" + auditedSet + "%[1]s jump dialled") }

// dialledRules leave it alone if it was told of late, or if the pod's share is used up:
// then it is not remembered either, so that one that tries everything does not take the
// others' room. Discovery on a link is no connection.
func dialledRules() []string {
	const dialled = "%[2]s saddr . %[2]s daddr . meta l4proto"
	once := func(which, set, what string) []string {
		return each(which+" "+what+" @"+set+"%[1]s return", which+" "+share+"update @"+set+"%[1]s { "+what+" } jump watch")
	}
	return slices.Concat(onLink,
		once("meta l4proto "+ported, watchedSet, dialled+" . th dport"),
		once("meta l4proto != "+ported, watchedBareSet, dialled))
}

// watchRules log them.
func watchRules() []string {
	return []string{"limit rate " + toldAll + " " + logRule(nflog.PrefixAudited)}
}

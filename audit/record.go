// Package audit is the decision log: one JSON line for each DNS decision and for similar
// denied connections, to the standard output or to a file that it rotates by size, and to
// followers.
package audit

import (
	"net/netip"
	"time"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
)

// Verdict is the result of a decision.
type Verdict uint8

// The verdicts of DNS.
const (
	None       Verdict = iota // no decision: nothing is logged
	Allowed                   // a match covers the name: its addresses were granted
	Unmatched                 // nothing matches: answered, nothing granted
	Refused                   // nothing matches, and the policy withholds the answer; or a rule denies the resolver
	Blocked                   // allowed, but the guard left no address of the answer
	Failed                    // no honest answer in time, or the kernel did not take the grant
	NameDenied                // a rule of a cluster policy denies the name
	Renewed                   // addresses that the pod uses stay open, see Record.Renewed
)

// verdictWords are the verdicts as a line has them.
var verdictWords = [...]string{
	None: "", Allowed: "allowed", Unmatched: "unmatched", Refused: "refused", Blocked: "blocked", Failed: "failed", NameDenied: "denied", Renewed: "renewed",
}

// String returns the verdict as a line has it, "" for None.
func (v Verdict) String() string { return verdictWords[v] }

// Reasons for which addresses in use stay open.
const (
	ByAnswer     = "answer"     // the answer to the agent's query holds them
	ByConnection = "connection" // it does not, and connections to them are active
	Unanswered   = "unanswered" // there was none
)

// Cache is how the answer was found.
type Cache uint8

// The ways to an answer.
const (
	CacheNone     Cache = iota // an upstream answered, or no answer was needed
	CacheHit                   // in the cache
	CacheStale                 // in the cache, beyond its TTL, since no upstream answers
	CachePrefetch              // in the cache, and the query started its renewal
)

// String returns the source of the answer as a line has it, "" for CacheNone.
func (c Cache) String() string { return [...]string{"", "hit", "stale", "prefetch"}[c] }

// Record is one decision. It is a value: a Log has read it when Write returns.
type Record struct {
	Time time.Time     // when the question arrived
	Pod  policy.PodRef // policy.NodeRef of the node itself
	// Workload is the pod's, as of policy.View.
	Workload string
	Address  netip.Addr // the pod's, that asked
	Name     fqdn.Name
	Type     uint16 // of the question, RFC 1035 §3.2.3
	Class    uint16 // RFC 1035 §3.2.5
	Verdict  Verdict
	// Would is the verdict if the Audit policies were enforced, None where they
	// change nothing.
	Would Verdict
	Cache Cache
	TCP   bool
	// Via is the name for which the first of the deciding matches counts, where that is not
	// the question's: its answer pointed at the question (SRV, MX, SVCB, HTTPS), or it is an
	// alias that a rule denies, or it is Left. "" for none.
	Via fqdn.Name
	// Left is the name outside the cluster domain that is decided in place of the question's, to
	// which the answer for that name leads; "" for none. The log has it as Via.
	Left fqdn.Name
	// Matches are the matches that decided, those of Audit policies only with Would.
	Matches []*policy.Match
	// Rule is the rule that denies the name or the resolver, by Verdict or else by Would; nil
	// for none.
	Rule    *policy.Rule
	Answers []Answer
	// Chain are the CNAME targets from the question to the addresses.
	Chain    []fqdn.Name
	Rcode    int            // of the reply, 0 to 23
	Upstream netip.AddrPort // invalid if none was asked
	Latency  time.Duration
	Error    string // why the verdict is failed
	// Limit is the limit by which the verdict is Refused, or LimitGrants for an answer of which
	// addresses are taken out, or LimitOpenings for a name of which rules are left out; NoLimit for none.
	Limit   policy.Limit
	Renewed string // why the verdict is renewed: ByAnswer, ByConnection or Unanswered
}

// BlockedOutside is the guard's reason for an address outside of the cluster, of a name inside:
// tenants write such names.
const BlockedOutside = "outside"

// BlockedInside is the reason for an address of the cluster that only rules which require the server name accept: the
// answer has it, and nothing is opened.
const BlockedInside = "inside"

// Answer is one address that the upstream's answer held.
type Answer struct {
	Addr netip.Addr
	// TTL is the TTL of the answer in seconds. No line has it.
	TTL uint32
	// Openings are the grants of the address; none if it was not granted.
	Openings []Opened
	// Blocked is the guard's reason, or BlockedInside, "" if it had none.
	Blocked string
}

// Opened is one port set that was opened, and until when.
type Opened struct {
	Ports policy.PortSet
	Until time.Time
}

// Package audit is the decision log: one JSON line for each DNS decision, to
// the standard output or to a file that it rotates by size.
package audit

import (
	"net/netip"
	"time"

	"github.com/namegate/namegate/policy"
)

// Verdict is what a decision came to.
type Verdict uint8

// The verdicts of DNS.
const (
	None      Verdict = iota // no decision: nothing is logged
	Allowed                  // a match covers the name: its addresses were granted
	Unmatched                // nothing matches: answered, nothing granted
	Refused                  // nothing matches, and the policy withholds the answer
	Blocked                  // allowed, but the guard left no address of the answer
	Failed                   // no honest answer in time, or the kernel did not take the grant
)

// String returns the verdict as it stands in the log, "" for None.
func (v Verdict) String() string {
	switch v {
	case Allowed:
		return "allowed"
	case Unmatched:
		return "unmatched"
	case Refused:
		return "refused"
	case Blocked:
		return "blocked"
	case Failed:
		return "failed"
	}
	return ""
}

// Record is one decision. It is a value: who writes it to a Log must not change
// the slices afterwards.
type Record struct {
	Time    time.Time // when the question arrived
	Pod     policy.PodRef
	Address netip.Addr // the pod's, that asked
	Name    policy.Name
	Type    uint16 // of the question, RFC 1035 §3.2.3
	Class   uint16 // RFC 1035 §3.2.5
	Verdict Verdict
	// Would is the verdict if the Audit policies were enforced, None where they
	// change nothing.
	Would Verdict
	// Matches are those that decided; Audit policies' ones only with Would.
	Matches []*policy.Match
	Answers []Answer
	// Chain are the CNAME targets from the question to the addresses.
	Chain    []policy.Name
	Rcode    int            // of the reply, 0 to 23
	Upstream netip.AddrPort // invalid if none was asked
	Latency  time.Duration
	TCP      bool
	Error    string // why the verdict is failed
}

// Answer is one address that the upstream's answer held.
type Answer struct {
	Addr netip.Addr
	// Openings are what was granted; none if the address was not.
	Openings []Opened
	// Blocked is the guard's reason, "" if it had none.
	Blocked string
}

// Opened is one port set that was opened, and until when.
type Opened struct {
	Ports policy.PortSet
	Until time.Time
}

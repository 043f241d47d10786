package counters

import (
	"slices"
	"sync/atomic"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/audit"
)

// byName are the query types that are counted by name, the frequent ones first. All other types count
// as one, so that clients cannot create any number of series.
var byName = [...]uint16{dns.TypeA, dns.TypeAAAA, dns.TypeHTTPS, dns.TypeSVCB, dns.TypeSRV, dns.TypeMX, dns.TypeTXT, dns.TypePTR, dns.TypeCNAME, dns.TypeNS, dns.TypeSOA}

// other is where all other types are counted.
const other = len(byName)

// TypeVerdicts are the decisions about questions of one type.
type TypeVerdicts struct {
	Type                                                          string // A, AAAA, …, or "other"
	Allowed, Unmatched, Refused, Blocked, Failed, Denied, Renewed uint64
}

// verdicts are decisions by verdict and type.
type verdicts [audit.Renewed + 1][other + 1]atomic.Uint64

// Add counts a decision about a question of the type.
func (v *verdicts) Add(verdict audit.Verdict, qtype uint16) {
	i := slices.Index(byName[:], qtype)
	if i < 0 {
		i = other
	}
	v[verdict][i].Add(1)
}

// types returns the counts by type.
func (v *verdicts) types() (out [other + 1]TypeVerdicts) {
	for i := range out {
		out[i] = TypeVerdicts{Type: "other", Allowed: v[audit.Allowed][i].Load(), Unmatched: v[audit.Unmatched][i].Load(),
			Refused: v[audit.Refused][i].Load(), Blocked: v[audit.Blocked][i].Load(), Failed: v[audit.Failed][i].Load(), Denied: v[audit.NameDenied][i].Load(), Renewed: v[audit.Renewed][i].Load()}
		if i < other {
			out[i].Type = dns.TypeToString[byName[i]]
		}
	}
	return out
}

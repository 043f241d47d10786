package counters

import (
	"sync/atomic"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/audit"
)

// The query types that are counted by name. All other types count as one, so that clients
// cannot create any number of series.
const (
	typeA = iota
	typeAAAA
	typeHTTPS
	typeSVCB
	typeSRV
	typeMX
	typeTXT
	typePTR
	typeCNAME
	typeNS
	typeSOA
	typeOther
	maxTypes
)

var typeNames = [maxTypes]string{"A", "AAAA", "HTTPS", "SVCB", "SRV", "MX", "TXT", "PTR", "CNAME", "NS", "SOA", "other"}

// typeIndex returns where a question's type is counted.
func typeIndex(qtype uint16) int {
	switch qtype {
	case dns.TypeA:
		return typeA
	case dns.TypeAAAA:
		return typeAAAA
	case dns.TypeHTTPS:
		return typeHTTPS
	case dns.TypeSVCB:
		return typeSVCB
	case dns.TypeSRV:
		return typeSRV
	case dns.TypeMX:
		return typeMX
	case dns.TypeTXT:
		return typeTXT
	case dns.TypePTR:
		return typePTR
	case dns.TypeCNAME:
		return typeCNAME
	case dns.TypeNS:
		return typeNS
	case dns.TypeSOA:
		return typeSOA
	}
	return typeOther
}

// TypeVerdicts are the decisions about questions of one type.
type TypeVerdicts struct {
	Type                                                          string // A, AAAA, …, or "other"
	Allowed, Unmatched, Refused, Blocked, Failed, Denied, Renewed uint64
}

// verdicts are decisions by verdict and type.
type verdicts [audit.Renewed + 1][maxTypes]atomic.Uint64

// Add counts a decision about a question of the type.
func (v *verdicts) Add(verdict audit.Verdict, qtype uint16) { v[verdict][typeIndex(qtype)].Add(1) }

// types returns the counts by type.
func (v *verdicts) types() (out [maxTypes]TypeVerdicts) {
	for i := range out {
		out[i] = TypeVerdicts{Type: typeNames[i], Allowed: v[audit.Allowed][i].Load(), Unmatched: v[audit.Unmatched][i].Load(),
			Refused: v[audit.Refused][i].Load(), Blocked: v[audit.Blocked][i].Load(), Failed: v[audit.Failed][i].Load(), Denied: v[audit.NameDenied][i].Load(), Renewed: v[audit.Renewed][i].Load()}
	}
	return out
}

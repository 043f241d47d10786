package explain

import (
	"fmt"
	"strings"

	"github.com/namegate/namegate/policy"
)

// limited says why a limit keeps a question from being answered, "" if none does.
func limited(d *policy.Decision) string {
	switch d.Limit {
	case policy.LimitTypes:
		return fmt.Sprintf("a query for its addresses gets an empty answer: the policies answer queries of the types %s alone (dns.types)", allowedTypes(d.Limits))
	case policy.LimitLabels:
		zone, below := policy.RegisteredZone(d.Query.Name)
		return fmt.Sprintf("its question gets REFUSED: it has %d labels below %s, and the policies allow %d (dns.maxLabels); list it as name in the tier of the limit, or in an earlier tier", below, zone, d.Limits.MaxLabels)
	case policy.LimitEncrypted:
		return fmt.Sprintf("its question gets %s, so that clients use no encrypted resolver (dns.encrypted: Deny)", map[policy.Unmatched]string{policy.NXDomain: "NXDOMAIN", policy.NoData: "an empty answer"}[d.Reply])
	}
	return ""
}

// allowedTypes writes the types that limits leave.
func allowedTypes(l policy.DNSLimits) string {
	if names := (^l.Withheld).Names(); len(names) > 0 {
		return strings.Join(names, ", ")
	}
	return "(none)"
}

// limits says which limits hold for queries for the name.
func (in *inquiry) limits(d *policy.Decision) {
	if d.Limits.Withheld != 0 && d.Limit != policy.LimitTypes {
		in.note("queries of other types than %s get an empty answer (dns.types)", allowedTypes(d.Limits))
	}
	if d.Rate.PerMinute > 0 {
		in.note("at most %d queries a minute for names of %s are sent for the pod, the others get REFUSED (dns.maxQueryRate)", d.Rate.PerMinute, d.Rate.Zone)
	}
}

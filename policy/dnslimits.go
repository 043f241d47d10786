package policy

import (
	"strings"

	"golang.org/x/net/publicsuffix"

	"github.com/namegate/namegate/policy/fqdn"
)

// DNSLimits are the limits that policies set for the DNS queries of a pod. The zero value
// limits nothing.
type DNSLimits struct {
	// Withheld are the query types that are answered without data.
	Withheld QueryTypes
	// MaxLabels is how many labels a name may have below its registered zone, 0 for any
	// number. Names that an exact name of a rule of the same tier or an earlier one covers, and
	// names of the cluster, may have more.
	MaxLabels int
	// MaxRate is how many queries a minute the node sends for the pod for names of one
	// registered zone, 0 for any number. The same names do not count.
	MaxRate int
	// NoEncrypted: names by which clients find encrypted resolvers have no answer.
	NoEncrypted bool
}

// Strictest returns the stricter of both in each field.
func (l DNSLimits) Strictest(o DNSLimits) DNSLimits {
	return DNSLimits{
		Withheld:  l.Withheld | o.Withheld,
		MaxLabels: least(l.MaxLabels, o.MaxLabels),
		MaxRate:   least(l.MaxRate, o.MaxRate),

		NoEncrypted: l.NoEncrypted || o.NoEncrypted,
	}
}

// least returns the lower of two limits, of which 0 is none.
func least(a, b int) int {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// Limit is the limit by which a question is not answered.
type Limit uint8

// The limits.
const (
	NoLimit        Limit = iota
	LimitTypes           // the type is withheld
	LimitLabels          // the name has too many labels
	LimitRate            // too many queries for its zone; Decide never says so
	LimitEncrypted       // the name leads to encrypted resolvers
	LimitGrants          // the pod has no room for all addresses of the answer; Decide never says so
	LimitOpenings        // rules that accept are left out, see MaxOpenings; Decide says Over
)

// String returns the word of the log and the metrics, "" for NoLimit.
func (l Limit) String() string {
	return [...]string{"", "types", "labels", "rate", "encrypted", "grants", "openings"}[l]
}

// ZoneRate is the rate that limits queries for a name. The zero value limits nothing.
type ZoneRate struct {
	Zone      fqdn.Name // the registered zone of the name
	PerMinute int
}

// limited puts the limits of the tiers that the question reaches into the decision: Admin, and the
// next. A tier's exact names are exempt from its own limits and those of the next, so that no
// namespace lifts a limit of the administrator.
func (d *Decision) limited(admin, next DNSLimits) {
	if admin == (DNSLimits{}) && next == (DNSLimits{}) {
		return
	}
	if d.exact(Admin) {
		admin, next = admin.ofExactNames(), next.ofExactNames()
	} else if d.exact(Baseline) {
		next = next.ofExactNames()
	}
	l := next.Strictest(admin)
	d.Limits = l
	if l == (DNSLimits{}) || d.Denied != nil && d.Reply != Resolve {
		return
	}
	if l.NoEncrypted && (d.Query.Name == canaryName || leadsToResolvers(d.Query.Name)) {
		d.Limit, d.Reply = LimitEncrypted, NoData
		if d.Query.Name == canaryName {
			d.Reply = NXDomain
		}
		return
	}
	if d.Reply != Resolve {
		return
	}
	if l.Withheld.Has(d.Query.Type) {
		d.Limit, d.Reply = LimitTypes, NoData
		return
	}
	if l.MaxLabels == 0 && l.MaxRate == 0 || d.Query.InCluster {
		return
	}
	zone, below := RegisteredZone(d.Query.Name)
	if l.MaxLabels > 0 && below > l.MaxLabels && !isReverse(d.Query.Name) {
		d.Limit, d.Reply = LimitLabels, Refuse
		return
	}
	if l.MaxRate > 0 {
		d.Rate = ZoneRate{zone, l.MaxRate}
	}
}

// canaryName does not exist where a network wants no DNS over HTTPS of Firefox. Source:
// https://support.mozilla.org/kb/canary-domain-use-application-dnsnet.
const canaryName = fqdn.Name("\x13use-application-dns\x03net")

// leadsToResolvers tells whether clients find encrypted resolvers by the name: those of their own
// resolver by _dns.resolver.arpa (RFC 9462 §4), those of a resolver with a name by _dns.NAME (§5),
// both also behind a prefix with a port (RFC 9461 §4).
func leadsToResolvers(n fqdn.Name) bool {
	for label := range n.Labels() {
		if label == "_dns" {
			return true
		}
	}
	return false
}

// ofExactNames returns the limits without those of names and their number: who writes an exact
// name knows what a query for it says.
func (l DNSLimits) ofExactNames() DNSLimits {
	l.MaxLabels, l.MaxRate = 0, 0
	return l
}

// exact tells whether an exact name of a rule that accepts or passes covers the question, in a
// tier up to last.
func (d *Decision) exact(last Tier) bool {
	for _, m := range d.Matches {
		if _, exact := m.Pattern.Exact(); exact && d.counts(m) && m.Tier <= last && m.Action != Deny {
			return true
		}
	}
	return false
}

// RegisteredZone returns the zone of a name that somebody registered: the public suffix and one
// label. Only suffixes of registries count (publicsuffix.org): below a suffix that a company
// runs, its servers get the queries. below is how many labels the name has below the zone. A
// name that is a public suffix is its own zone.
func RegisteredZone(n fqdn.Name) (zone fqdn.Name, below int) {
	var labels []string
	for label := range n.Labels() {
		labels = append(labels, strings.ReplaceAll(label, ".", "_")) // a dot in a label is none between two
	}
	below = max(0, len(labels)-suffixLabels(strings.Join(labels, "."))-1)
	zone = n
	for _, label := range labels[:below] {
		zone = zone[1+len(label):]
	}
	return zone, below
}

// suffixLabels returns how many labels the registry's suffix of a name has.
func suffixLabels(name string) int {
	for {
		suffix, registry := publicsuffix.PublicSuffix(name)
		_, above, more := strings.Cut(suffix, ".")
		if registry || !more {
			return 1 + strings.Count(suffix, ".")
		}
		name = above
	}
}

// The zones of reverse lookups, in which each label is a part of an address (RFC 1035 §3.5,
// RFC 3596 §2.5).
const (
	reverse4 = fqdn.Name("\x07in-addr\x04arpa")
	reverse6 = fqdn.Name("\x03ip6\x04arpa")
)

// isReverse tells whether a name is that of a reverse lookup of one address.
func isReverse(n fqdn.Name) bool {
	parts, longest := 4, 3
	if n.HasSuffix(reverse6) {
		parts, longest = 32, 1
	} else if !n.HasSuffix(reverse4) {
		return false
	}
	if n.NumLabels() != parts+2 {
		return false
	}
	i := 0
	for label := range n.Labels() {
		if i++; i <= parts && (len(label) > longest || strings.Trim(label, "0123456789abcdef") != "") {
			return false
		}
	}
	return true
}

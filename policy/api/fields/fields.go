package fields

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
)

// The bounds of lifetimes, as in the schemas. Seconds are bounded far below the kernel's
// longest set timeout, 2147483 s (IPSET_MAX_TIMEOUT).
const (
	MaxTTLSeconds   = 604800
	MaxGraceSeconds = 86400
)

// Report takes one problem: the path of a field, and what to write there.
type Report func(path, format string, args ...any)

// Match reads one name or pattern.
func (r Report) Match(path string, m *v1alpha1.Match) (fqdn.Pattern, bool) {
	if (m.Name == nil) == (m.Pattern == nil) {
		r(path, "write exactly one of name and pattern")
		return fqdn.Pattern{}, false
	}
	parse, text := fqdn.ParseExact, m.Name
	field := ".name"
	if text == nil {
		parse, text, field = fqdn.ParsePattern, m.Pattern, ".pattern"
	}
	pattern, err := parse(*text)
	if err != nil {
		r(path+field, "%v", err)
		return fqdn.Pattern{}, false
	}
	return pattern, true
}

// Network reads a network. Bits below its length mean nothing.
func (r Report) Network(path, text string) (netip.Prefix, bool) {
	p, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		r(path, "%q is no network; write an address and its length: 192.0.2.0/24, 2001:db8::/32", text)
	case p.Addr().Is4In6():
		r(path, "%q is an IPv4 network written as IPv6; write the IPv4 network", text)
	default:
		return p.Masked(), true
	}
	return netip.Prefix{}, false
}

// word returns the word of a setting that counts: otherwise if none is written, and the strictest for an
// unknown one, so that a typing error opens nothing.
func word[W ~string](r Report, path string, written, otherwise, strictest W, known ...W) W {
	switch {
	case written == "":
		return otherwise
	case slices.Contains(known, written):
		return written
	}
	names, last := strings.Trim(fmt.Sprint(known[:len(known)-1]), "[]"), known[len(known)-1]
	r(path, "%q is unknown; write %s or %s (it counts as %s)", written, strings.ReplaceAll(names, " ", ", "), last, strictest)
	return strictest
}

// Audit reads spec.enforcement.
func (r Report) Audit(e v1alpha1.Enforcement) bool {
	return word(r, "spec.enforcement", e, v1alpha1.EnforcementEnforce, v1alpha1.EnforcementEnforce, v1alpha1.EnforcementEnforce, v1alpha1.EnforcementAudit) == v1alpha1.EnforcementAudit
}

// Denied reads spec.denied.
func (r Report) Denied(d v1alpha1.Denied) policy.Denied {
	if word(r, "spec.denied", d, v1alpha1.DeniedReject, v1alpha1.DeniedDrop, v1alpha1.DeniedReject, v1alpha1.DeniedDrop) == v1alpha1.DeniedDrop {
		return policy.Drop
	}
	return policy.Reject
}

// Reply reads the response to a query at path; otherwise is that of an empty field.
func (r Report) Reply(path string, u, otherwise v1alpha1.Unmatched) policy.Unmatched {
	switch word(r, path, u, otherwise, v1alpha1.UnmatchedRefuse, v1alpha1.UnmatchedResolve, v1alpha1.UnmatchedNXDomain, v1alpha1.UnmatchedRefuse) {
	case v1alpha1.UnmatchedResolve:
		return policy.Resolve
	case v1alpha1.UnmatchedNXDomain:
		return policy.NXDomain
	}
	return policy.Refuse
}

// TTL reads spec.ttl. The default counts for a number that cannot be.
func (r Report) TTL(from *v1alpha1.TTL) policy.TTL {
	t := policy.TTL{
		InUse: policy.Renew,
		Min:   r.seconds("spec.ttl.minSeconds", from.MinSeconds, policy.DefaultMinTTL, MaxTTLSeconds),
		Max:   r.seconds("spec.ttl.maxSeconds", from.MaxSeconds, policy.DefaultMaxTTL, MaxTTLSeconds),
		Grace: r.seconds("spec.ttl.graceSeconds", from.GraceSeconds, policy.DefaultGrace, MaxGraceSeconds),
		Reuse: r.seconds("spec.ttl.reuseSeconds", from.ReuseSeconds, policy.DefaultReuse, MaxTTLSeconds),
	}
	if word(r, "spec.ttl.inUse", from.InUse, v1alpha1.InUseRenew, v1alpha1.InUseExpire, v1alpha1.InUseRenew, v1alpha1.InUseExpire) == v1alpha1.InUseExpire {
		t.InUse = policy.Expire
	}
	if t.Max < t.Min {
		r("spec.ttl", "maxSeconds %d is below minSeconds %d; write both, the greater as maxSeconds (the defaults %d and %d count)",
			t.Max/time.Second, t.Min/time.Second, policy.DefaultMaxTTL/time.Second, policy.DefaultMinTTL/time.Second)
		t.Min, t.Max = policy.DefaultMinTTL, policy.DefaultMaxTTL
	}
	return t
}

func (r Report) seconds(path string, written *int64, otherwise time.Duration, most int64) time.Duration {
	switch {
	case written == nil:
		return otherwise
	case *written < 1 || *written > most:
		r(path, "%d seconds; write 1 to %d (the default %d counts)", *written, most, otherwise/time.Second)
		return otherwise
	}
	return time.Duration(*written) * time.Second
}

package fields

import (
	"net/netip"
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

// An unknown word of a setting counts as the strictest one, so that a typing error opens
// nothing.

// Audit reads spec.enforcement.
func (r Report) Audit(e v1alpha1.Enforcement) bool {
	switch e {
	case "", v1alpha1.EnforcementEnforce, v1alpha1.EnforcementAudit:
	default:
		r("spec.enforcement", "%q is unknown; write Enforce or Audit (it counts as Enforce)", e)
	}
	return e == v1alpha1.EnforcementAudit
}

// Denied reads spec.denied.
func (r Report) Denied(d v1alpha1.Denied) policy.Denied {
	switch d {
	case "", v1alpha1.DeniedReject:
		return policy.Reject
	case v1alpha1.DeniedDrop:
	default:
		r("spec.denied", "%q is unknown; write Reject or Drop (it counts as Drop)", d)
	}
	return policy.Drop
}

// Reply reads the response to a query at path; otherwise is that of an empty field.
func (r Report) Reply(path string, u v1alpha1.Unmatched, otherwise policy.Unmatched) policy.Unmatched {
	switch u {
	case "":
		return otherwise
	case v1alpha1.UnmatchedResolve:
		return policy.Resolve
	case v1alpha1.UnmatchedNXDomain:
		return policy.NXDomain
	case v1alpha1.UnmatchedRefuse:
	default:
		r(path, "%q is unknown; write Resolve, NXDomain or Refuse (it counts as Refuse)", u)
	}
	return policy.Refuse
}

// TTL reads spec.ttl. The default counts for a number that cannot be.
func (r Report) TTL(from *v1alpha1.TTL) policy.TTL {
	t := policy.TTL{
		Min:   r.seconds("spec.ttl.minSeconds", from.MinSeconds, policy.DefaultMinTTL, MaxTTLSeconds),
		Max:   r.seconds("spec.ttl.maxSeconds", from.MaxSeconds, policy.DefaultMaxTTL, MaxTTLSeconds),
		Grace: r.seconds("spec.ttl.graceSeconds", from.GraceSeconds, policy.DefaultGrace, MaxGraceSeconds),
		Reuse: r.seconds("spec.ttl.reuseSeconds", from.ReuseSeconds, policy.DefaultReuse, MaxTTLSeconds),
		InUse: r.inUse(from.InUse),
	}
	if t.Max < t.Min {
		r("spec.ttl", "maxSeconds %d is below minSeconds %d; write both, the greater as maxSeconds (the defaults %d and %d count)",
			t.Max/time.Second, t.Min/time.Second, policy.DefaultMaxTTL/time.Second, policy.DefaultMinTTL/time.Second)
		t.Min, t.Max = policy.DefaultMinTTL, policy.DefaultMaxTTL
	}
	return t
}

// inUse reads spec.ttl.inUse. An unknown word opens nothing for longer.
func (r Report) inUse(u v1alpha1.InUse) policy.InUse {
	switch u {
	case "", v1alpha1.InUseRenew:
		return policy.Renew
	case v1alpha1.InUseExpire:
	default:
		r("spec.ttl.inUse", "%q is unknown; write Renew or Expire (it counts as Expire)", u)
	}
	return policy.Expire
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

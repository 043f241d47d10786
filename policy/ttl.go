package policy

import "time"

// The TTL settings of a policy that names none, as in the schema of its kind.
const (
	DefaultMinTTL = 30 * time.Second
	DefaultMaxTTL = 3600 * time.Second
	DefaultGrace  = 60 * time.Second
	DefaultReuse  = 24 * time.Hour
)

// TTL says how long the addresses of an answer count. Reuse is how long an application may
// use an address after the last answer that held it: addresses count that long for Deny and Pass.
type TTL struct {
	Min, Max, Grace, Reuse time.Duration
}

// Lifetime returns how long an address that came with a TTL of ttl seconds is
// open: clamp(ttl, Min, Max) + Grace. A TTL with the top bit set counts as 0
// (RFC 2181 §8).
func (t TTL) Lifetime(ttl uint32) time.Duration {
	if ttl > 1<<31-1 {
		ttl = 0
	}
	return min(max(time.Duration(ttl)*time.Second, t.Min), t.Max) + t.Grace
}

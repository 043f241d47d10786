package policy

import "time"

// The TTL settings of a policy that names none, as in the schema of its kind.
const (
	DefaultMinTTL = 30 * time.Second
	DefaultMaxTTL = 3600 * time.Second
	DefaultGrace  = 60 * time.Second
	DefaultReuse  = 24 * time.Hour
)

// InUse is what happens at a grant's deadline to an address that its pod uses. The zero value
// is Expire.
type InUse uint8

// The values of InUse.
const (
	Expire InUse = iota // it ends
	Renew               // the name is asked again
)

// String returns the word of the API.
func (u InUse) String() string { return [...]string{"Expire", "Renew"}[u] }

// TTL says how long the addresses of an answer count. Reuse is how long an application may
// use an address after the last answer that held it: addresses count that long for Deny and Pass,
// and with Renew as long as a connection to them lives, but not for longer.
type TTL struct {
	Min, Max, Grace, Reuse time.Duration
	InUse                  InUse
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

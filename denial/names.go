// Package denial says what connections were denied on this node and why: packets
// from the kernel's log become flows of the audit log, with the names under which
// the destination was seen, and alike ones are counted.
package denial

import (
	"net/netip"
	"time"

	"github.com/namegate/namegate/policy"
)

// Sighting is one answer that held an address.
type Sighting struct {
	Pod     policy.PodRef // who asked
	Name    policy.Name
	Address netip.Addr
	Asked   time.Time
	// TTL of the address in the answer, in seconds.
	TTL uint32
	// Blocked is the guard's reason, "" if it had none.
	Blocked string
}

package enforcer

import (
	"net/netip"
	"time"

	"github.com/namegate/namegate/policy"
)

// Open is one grant as it is shown: an address of a set, by one of its names.
type Open struct {
	Pod   policy.PodRef
	Addr  netip.Addr
	Ports policy.PortSet
	Name  policy.Name
	// Until is the deadline; in the past for one that has ended and is remembered.
	Until time.Time
	// By are the matches that opened it, as "namespace/policy pattern", joined by
	// commas; "" where that is not known any more.
	By string
}

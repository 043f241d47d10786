package policy

import (
	"cmp"
	"net/netip"
	"strings"
	"time"

	"github.com/namegate/namegate/policy/fqdn"
)

// PodRef names one pod for as long as it lives. It is comparable. UID may be
// empty where the source has none; namespace and name then tell pods apart.
type PodRef struct {
	Namespace, Name, UID string
}

// String returns "namespace/name".
func (r PodRef) String() string {
	if r.Namespace == "" && r.Name != "" {
		return "node " + r.Name
	}
	return r.Namespace + "/" + r.Name
}

// Compare orders by namespace, name and UID.
func (r PodRef) Compare(o PodRef) int {
	return cmp.Or(strings.Compare(r.Namespace, o.Namespace), strings.Compare(r.Name, o.Name), strings.Compare(r.UID, o.UID))
}

// Grant says that a pod may open new connections to each of Addrs on Ports
// until Deadline, because an answer to Name said so. With a Rule it says that
// Addrs count for that, whatever its action is.
type Grant struct {
	Pod      PodRef
	Name     fqdn.Name
	Addrs    []netip.Addr
	Ports    PortSet
	Rule     RuleID // see Rule.ID
	Deadline time.Time
	// By lists the matches that decided, as "namespace/policy pattern".
	By []string
	// View is the pod's view that made this decision, nil if it is unknown: a holder of
	// that same view need not evaluate it again.
	View *View
}

// GrantInfo is one address that a pod may connect to, by one of its names.
type GrantInfo struct {
	Pod   PodRef
	Addr  netip.Addr
	Ports PortSet
	Rule  RuleID // see Rule.ID
	Name  fqdn.Name
	// Until is the deadline; in the past for a grant that has ended and is remembered.
	Until time.Time
	// By are the matches that decided, as "namespace/policy pattern", joined by
	// commas; "" where they are not known any more.
	By string
	// Held is when the last answer held the address, where only its use keeps it open since;
	// zero where an answer does.
	Held time.Time
}

// NameInUse is a name of a pod with addresses in use whose time has ended.
type NameInUse struct {
	Pod  PodRef
	Name fqdn.Name
	Held []netip.Addr // all addresses that are open for the name
	Due  []netip.Addr // those in use whose time has ended
}

package names

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// A record of the zone: labels below it, and the addresses by their place in Outside.
type record struct {
	labels string
	first  int
	count  int
}

// many is how many addresses of one name an implementation has to support.
const many = 100

// Addresses by their place in Outside. Names that a test compares have different ones.
const (
	exactAt = 10 + iota
	belowExactAt
	besideExactAt
	hostExactAt
	parentExactAt
	caseAt
	wildAt
	deepWildAt
	apexWildAt
	likeWildAt
	expireAt
	flowAt
	expiredAt
	resetAt
	aliasAt
	laterAt
	removedAt
	baselineAt
	deniedAt
	precedenceAt
	portsAt
	ownAt
	forgedAt
	trueAt
	unrelatedAt
	nowhereAt // no name has it
	firstManyAt
)

// shortTTL is that of the names whose lifetime is tested, in seconds.
const shortTTL = 5

var records = []record{
	{"exact", exactAt, 1}, {"below.exact", belowExactAt, 1}, {"not-exact", besideExactAt, 1},
	{"host.parent", hostExactAt, 1}, {"parent", parentExactAt, 1}, {"case", caseAt, 1},
	{"one.wild", wildAt, 1}, {"two.one.wild", deepWildAt, 1}, {"wild", apexWildAt, 1}, {"not-wild", likeWildAt, 1},
	{"expire", expireAt, 1}, {"flow", flowAt, 1}, {"reset", resetAt, 1}, {"target", aliasAt, 1}, {"later", laterAt, 1}, {"removed", removedAt, 1},
	{"baseline", baselineAt, 1}, {"denied", deniedAt, 1}, {"precedence", precedenceAt, 1}, {"ports", portsAt, 1}, {"one.own", ownAt, 1},
	{"trusted", trueAt, 1}, {"unrelated", unrelatedAt, 1},
	{"many", firstManyAt, many}, {"docs.many", firstManyAt + many, many}, {"blog.many", firstManyAt + 2*many, many},
}

// name is one of the zone.
func (e *Environment) name(labels string) string { return labels + "." + e.Zone }

// at is an address of Outside by its place.
func (e *Environment) at(place int) netip.Addr {
	b := e.Outside.Masked().Addr().As4()
	n := uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
	n += uint32(place)
	return netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
}

// at6 is the same of Outside6.
func (e *Environment) at6(place int) netip.Addr {
	b := e.Outside6.Masked().Addr().As16()
	b[14], b[15] = byte(place>>8), byte(place)
	return netip.AddrFrom16(b)
}

// addresses are those of a name.
func (e *Environment) addresses(labels string) (all []netip.Addr) {
	i := slices.IndexFunc(records, func(r record) bool { return r.labels == labels })
	for n := range records[i].count {
		all = append(all, e.at(records[i].first+n))
	}
	return all
}

// zone is the text that the DNS server reads.
func (e *Environment) zone() string {
	var b strings.Builder
	for _, r := range records {
		for _, a := range e.addresses(r.labels) {
			fmt.Fprintf(&b, "%s. %d A %s\n", e.name(r.labels), shortTTL, a)
		}
		if e.Outside6.IsValid() && r.count == 1 {
			fmt.Fprintf(&b, "%s. %d AAAA %s\n", e.name(r.labels), shortTTL, e.at6(r.first))
		}
	}
	fmt.Fprintf(&b, "%s. %d CNAME %s.\n", e.name("alias"), shortTTL, e.name("hop"))
	fmt.Fprintf(&b, "%s. %d CNAME %s.\n", e.name("hop"), shortTTL, e.name("target"))
	return b.String()
}

// forged is what another DNS server says, that the cluster does not ask: the address of an
// accepted name is another.
func (e *Environment) forged() string {
	return fmt.Sprintf("%s. 3600 A %s\n", e.name("trusted"), e.at(forgedAt))
}

package policy

import "slices"

// QueryTypes is a set of types of DNS queries. It knows the types that a policy can list one by
// one, and all others together.
type QueryTypes uint64

// otherTypes stands for the types that no policy can list.
const otherTypes QueryTypes = 1 << 63

// queryTypes are the types that a policy can list. Source:
// https://www.iana.org/assignments/dns-parameters.
var queryTypes = [...]struct {
	name   string
	number uint16
}{
	{"A", 1}, {"NS", 2}, {"CNAME", 5}, {"SOA", 6}, {"PTR", 12}, {"HINFO", 13}, {"MX", 15}, {"TXT", 16}, {"AAAA", 28}, {"LOC", 29}, {"SRV", 33},
	{"NAPTR", 35}, {"CERT", 37}, {"DNAME", 39}, {"DS", 43}, {"SSHFP", 44}, {"RRSIG", 46}, {"NSEC", 47}, {"DNSKEY", 48}, {"NSEC3", 50},
	{"NSEC3PARAM", 51}, {"TLSA", 52}, {"SMIMEA", 53}, {"CDS", 59}, {"CDNSKEY", 60}, {"OPENPGPKEY", 61}, {"SVCB", 64}, {"HTTPS", 65},
	{"ANY", 255}, {"URI", 256}, {"CAA", 257},
}

// The types of addresses.
const (
	TypeA    uint16 = 1
	TypeAAAA uint16 = 28
)

// QueryTypeNames returns the names of the types that a policy can list.
func QueryTypeNames() (out []string) {
	for _, t := range queryTypes {
		out = append(out, t.name)
	}
	return out
}

// QueryTypesNamed returns the set of the type with a name, and whether there is one.
func QueryTypesNamed(name string) (QueryTypes, bool) {
	for i, t := range queryTypes {
		if t.name == name {
			return 1 << i, true
		}
	}
	return 0, false
}

// Has tells whether the set has a type. No set has type 0, which stands for no query.
func (t QueryTypes) Has(number uint16) bool {
	if t == 0 || number == 0 {
		return false
	}
	for i := range queryTypes {
		if queryTypes[i].number == number {
			return t&(1<<i) != 0
		}
	}
	return t&otherTypes != 0
}

// Names returns the names of the types in the set that a policy can list, sorted.
func (t QueryTypes) Names() (out []string) {
	for i := range queryTypes {
		if t&(1<<i) != 0 {
			out = append(out, queryTypes[i].name)
		}
	}
	slices.Sort(out)
	return out
}

package fields

import (
	"fmt"
	"strings"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
)

// The bounds of limits of DNS queries, as in the schemas.
const (
	MaxTypes     = 32
	MaxLabels    = 126 // a name of 255 bytes has 127 at most (RFC 1035 §2.3.4)
	MaxQueryRate = 600000
)

// Limits reads the limits of spec.dns. A type that cannot be is not allowed, and the strictest
// number counts for one that cannot be.
func (r Report) Limits(from *v1alpha1.DNSLimits) policy.DNSLimits {
	l := policy.DNSLimits{
		MaxLabels: r.limit("spec.dns.maxLabels", from.MaxLabels, MaxLabels),
		MaxRate:   r.limit("spec.dns.maxQueryRate", from.MaxQueryRate, MaxQueryRate),
	}
	types := from.Types
	if types == nil {
		return l
	}
	if len(types) == 0 {
		r("spec.dns.types", "the list is empty; write the types, or leave it out for all (no query is answered)")
	}
	if len(types) > MaxTypes {
		r("spec.dns.types", "%d types; write at most %d (the rest is not allowed)", len(types), MaxTypes)
		types = types[:MaxTypes]
	}
	var allowed policy.QueryTypes
	for i, t := range types {
		of, known := policy.QueryTypesNamed(string(t))
		if !known {
			r(fmt.Sprintf("spec.dns.types[%d]", i), "%q is unknown; write one of %s (it allows no type)", t, strings.Join(policy.QueryTypeNames(), ", "))
		}
		allowed |= of
	}
	l.Withheld = ^allowed
	return l
}

// EncryptedPath is the path of the rule that denies DNS over TLS and QUIC.
const EncryptedPath = "spec.dns.encrypted"

// EncryptedPorts are the ports of DNS over TLS (RFC 7858 §3.1), DTLS (RFC 8094 §3.1) and QUIC (RFC 9250 §4.1.1).
const EncryptedPorts policy.PortSet = "tcp/853,udp/853"

// DeniesEncrypted reads spec.dns.encrypted.
func (r Report) DeniesEncrypted(e v1alpha1.EncryptedDNS) bool {
	return word(r, EncryptedPath, e, v1alpha1.EncryptedDNSAccept, v1alpha1.EncryptedDNSDeny, v1alpha1.EncryptedDNSAccept, v1alpha1.EncryptedDNSDeny) == v1alpha1.EncryptedDNSDeny
}

// limit reads a number from 1 to most, 0 if none is written.
func (r Report) limit(path string, written *int32, most int32) int {
	switch {
	case written == nil:
		return 0
	case *written < 1 || *written > most:
		r(path, "%d; write 1 to %d (1 counts)", *written, most)
		return 1
	}
	return int(*written)
}

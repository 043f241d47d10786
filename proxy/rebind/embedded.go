package rebind

import "net/netip"

// carriers are the IPv6 ranges whose addresses carry an IPv4 address in their
// last 32 bits.
var carriers = []netip.Prefix{
	netip.MustParsePrefix("::/96"),           // IPv4-compatible, RFC 4291 §2.5.5.1
	netip.MustParsePrefix("::ffff:0:0/96"),   // IPv4-mapped, RFC 4291 §2.5.5.2
	netip.MustParsePrefix("::ffff:0:0:0/96"), // IPv4-translated, RFC 2765 §2.1
	netip.MustParsePrefix("64:ff9b::/96"),    // NAT64, RFC 6052 §2.1
}

var (
	nat64Local = netip.MustParsePrefix("64:ff9b:1::/48") // RFC 8215
	sixToFour  = netip.MustParsePrefix("2002::/16")      // RFC 3056 §2
	teredo     = netip.MustParsePrefix("2001::/32")      // RFC 4380 §4
)

// embedded returns the IPv4 addresses to which a translator or a tunnel may send a
// packet that goes to the IPv6 address. nat64 are the translation prefixes beside
// the well-known ones. An IPv4 address embeds none.
func embedded(a netip.Addr, nat64 []netip.Prefix) (inner []netip.Addr) {
	if a.Is4() {
		return nil
	}
	b := a.As16()
	if contains(carriers, a) {
		inner = append(inner, v4(b[12:]))
	}
	if nat64Local.Contains(a) {
		// The operator chooses any prefix length from 48 bits on inside it. By the
		// wrong one the address begins with a zero, which is no host's.
		for _, bits := range []int{48, 56, 64, 96} {
			if in := after(b, bits); in.As4()[0] != 0 {
				inner = append(inner, in)
			}
		}
	}
	for _, p := range nat64 {
		if p.Contains(a) {
			inner = append(inner, after(b, p.Bits()))
		}
	}
	if sixToFour.Contains(a) {
		inner = append(inner, v4(b[2:]))
	}
	if teredo.Contains(a) {
		inner = append(inner, v4(b[4:]), v4([]byte{^b[12], ^b[13], ^b[14], ^b[15]}))
	}
	return inner
}

// after returns the IPv4 address behind a translation prefix of that many
// bits; bits 64 to 71 are skipped (RFC 6052 §2.2).
func after(b [16]byte, bits int) netip.Addr {
	var ip [4]byte
	at := bits / 8
	for i := range ip {
		if at == 8 {
			at++
		}
		ip[i] = b[at]
		at++
	}
	return netip.AddrFrom4(ip)
}

func v4(b []byte) netip.Addr { return netip.AddrFrom4([4]byte(b[:4])) }

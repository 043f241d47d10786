package answer

import (
	"net"
	"net/netip"
	"slices"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/proxy/wire"
)

// hints returns the address hints of a record in service mode (RFC 9460 §7.3);
// in alias mode, priority 0, parameters mean nothing.
func hints(rr *dns.SVCB) (ips []net.IP) {
	if rr.Priority == 0 {
		return nil
	}
	for _, kv := range rr.Value {
		switch kv := kv.(type) {
		case *dns.SVCBIPv4Hint:
			for _, ip := range kv.Hint {
				if ip = ip.To4(); ip != nil {
					ips = append(ips, ip)
				}
			}
		case *dns.SVCBIPv6Hint:
			ips = append(ips, kv.Hint...)
		}
	}
	return ips
}

func hasHints(rr *dns.SVCB) bool {
	return slices.ContainsFunc(rr.Value, func(kv dns.SVCBKeyValue) bool { return kv.Key() == dns.SVCB_IPV4HINT || kv.Key() == dns.SVCB_IPV6HINT })
}

// reduce returns the record with these of its addresses only; nil if it says
// nothing without them.
func reduce(rr dns.RR, kept []wire.Address) dns.RR {
	switch full := rr.(type) {
	case *dns.HTTPS:
		c := dns.Copy(full).(*dns.HTTPS)
		if !reduceHints(&c.SVCB, kept) {
			return nil
		}
		return c
	case *dns.SVCB:
		c := dns.Copy(full).(*dns.SVCB)
		if !reduceHints(c, kept) {
			return nil
		}
		return c
	}
	if len(kept) == 0 {
		return nil
	}
	return rr
}

// reduceHints takes every hint out that was not kept. False: the record calls a
// hint mandatory that is gone, so a client may not use it (RFC 9460 §8).
func reduceHints(rr *dns.SVCB, kept []wire.Address) bool {
	gone := map[dns.SVCBKey]bool{}
	values := rr.Value[:0]
	for _, kv := range rr.Value {
		switch hint := kv.(type) {
		case *dns.SVCBIPv4Hint:
			hint.Hint = keptOf(hint.Hint, kept)
			gone[kv.Key()] = len(hint.Hint) == 0
		case *dns.SVCBIPv6Hint:
			hint.Hint = keptOf(hint.Hint, kept)
			gone[kv.Key()] = len(hint.Hint) == 0
		}
		if !gone[kv.Key()] {
			values = append(values, kv)
		}
	}
	rr.Value = values
	for _, kv := range rr.Value {
		if m, ok := kv.(*dns.SVCBMandatory); ok && slices.ContainsFunc(m.Code, func(k dns.SVCBKey) bool { return gone[k] }) {
			return false
		}
	}
	return true
}

func keptOf(ips []net.IP, kept []wire.Address) []net.IP {
	return slices.DeleteFunc(ips, func(ip net.IP) bool {
		a, ok := netip.AddrFromSlice(ip)
		return !ok || !slices.ContainsFunc(kept, func(k wire.Address) bool { return k.Addr == a.Unmap() })
	})
}

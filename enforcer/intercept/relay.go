package intercept

import "net/netip"

// relayFamilies stand for the addresses of the relay, one of each family.
func (n *Network) relayFamilies() []netip.Addr {
	if n.RelayPort == 0 {
		return nil
	}
	return []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()}
}

// Relays returns where the relay of this agent accepts connections, sorted: by the last SetNetwork, and those of them that
// are in force. An address stays this agent's until GiveBack.
func (i *Interception) Relays() (assigned, inForce []netip.AddrPort) {
	i.mu.RLock()
	defer i.mu.RUnlock()
	at := func(port uint16) (out []netip.AddrPort) {
		for _, a := range sortedValues(i.relays) {
			out = append(out, netip.AddrPortFrom(a, port))
		}
		return out
	}
	if i.coming.RelayPort != 0 {
		assigned = at(i.coming.RelayPort)
	}
	if i.network.RelayPort != 0 {
		inForce = at(i.network.RelayPort)
	}
	return assigned, inForce
}

package lab

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Service is a port of a Service as a node leads it to pods.
type Service struct {
	Addr     netip.Addr
	Protocol string // tcp, udp or sctp
	Port     uint16
	// To are the pods' addresses, of Addr's family, and ports: one at least.
	To []netip.AddrPort
}

// SetServices makes the node lead Services to pods as kube-proxy does, by translation
// of destinations before routing, and those alone: earlier ones end. A pod that is led
// to itself gets there from the node's address.
func (l *Lab) SetServices(services ...Service) error {
	var pre, post []string
	for _, s := range services {
		family, match := "ip", fmt.Sprintf("ip daddr %s %s dport %d", s.Addr, s.Protocol, s.Port)
		if s.Addr.Is6() {
			family, match = "ip6", "ip6"+strings.TrimPrefix(match, "ip")
		}
		var to []string
		for i, at := range s.To {
			to = append(to, fmt.Sprintf("%d : %s . %d", i, at.Addr(), at.Port()))
			own := fmt.Sprintf("%[1]s saddr %[2]s %[1]s daddr %[2]s ct status dnat masquerade", family, at.Addr())
			if !slices.Contains(post, own) {
				post = append(post, own)
			}
		}
		pre = append(pre, fmt.Sprintf("%s dnat %s to numgen random mod %d map { %s }", match, family, len(to), strings.Join(to, ", ")))
	}
	chain := func(name, hook string, rules []string) string {
		return "chain " + name + " {\n" + hook + "\n" + strings.Join(rules, "\n") + "\n}\n"
	}
	// The table is made first, so that deleting it never fails.
	return l.Node.Pipe("table inet services {}\ndelete table inet services\ntable inet services {\n"+
		chain("pre", "type nat hook prerouting priority -100;", pre)+chain("out", "type nat hook output priority -100;", pre)+
		chain("post", "type nat hook postrouting priority 100;", post)+"}\n",
		"nft", "-f", "-")
}

package nft

import (
	"strconv"
	"strings"
)

// portList is the ports of a rule of one protocol, in words of nft; "" for every one.
type portList struct{ protocol, ports string }

// reached matches ports that are reached.
func (p portList) reached() string {
	if p.ports == "" {
		return p.pinned()
	}
	return p.protocol + " dport { " + p.ports + " } "
}

// pinned matches the protocol.
func (p portList) pinned() string {
	if p.protocol == "" {
		return ""
	}
	return "meta l4proto " + p.protocol + " "
}

// dialled matches ports that were dialled.
func (p portList) dialled() string {
	if p.ports == "" {
		return p.pinned()
	}
	return p.pinned() + "ct original proto-dst { " + p.ports + " } "
}

// portLists divides ports by protocol. Every protocol and port is one list.
func portLists(ports []PortRange) (out []portList) {
	if ports == nil {
		return []portList{{}}
	}
	lists := map[string][]string{}
	for _, p := range ports {
		text := strconv.Itoa(int(p.First))
		if p.First != p.Last {
			text += "-" + strconv.Itoa(int(p.Last))
		}
		if p.First == 0 && p.Last == 65535 {
			out = append(out, portList{protocol: p.Protocol})
		} else {
			lists[p.Protocol] = append(lists[p.Protocol], text)
		}
	}
	for _, protocol := range []string{"tcp", "udp", "sctp"} {
		if list := lists[protocol]; list != nil {
			out = append(out, portList{protocol, strings.Join(list, ", ")})
		}
	}
	return out
}

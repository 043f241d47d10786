package lists

import (
	"strconv"
	"strings"

	"github.com/namegate/namegate/policy"
)

// PortList is the ports of a rule of one protocol, in words of nft; "" for every one.
type PortList struct{ Protocol, ports string }

// Reached matches ports that are reached.
func (p PortList) Reached() string {
	if p.ports == "" {
		return p.Pinned()
	}
	return p.Protocol + " dport { " + p.ports + " } "
}

// Answering matches the ports of what answers.
func (p PortList) Answering() string { return strings.Replace(p.Reached(), " dport ", " sport ", 1) }

// Pinned matches the protocol.
func (p PortList) Pinned() string {
	if p.Protocol == "" {
		return ""
	}
	return "meta l4proto " + p.Protocol + " "
}

// Dialled matches ports that were dialled.
func (p PortList) Dialled() string {
	if p.ports == "" {
		return p.Pinned()
	}
	return p.Pinned() + "ct original proto-dst { " + p.ports + " } "
}

// PortLists divides ports by protocol. Every protocol and port is one list.
func PortLists(ports []policy.PortRange) (out []PortList) {
	if ports == nil {
		return []PortList{{}}
	}
	lists := map[policy.Protocol][]string{}
	for _, p := range ports {
		text := strconv.Itoa(int(p.First))
		if p.First != p.Last {
			text += "-" + strconv.Itoa(int(p.Last))
		}
		if p.First == 0 && p.Last == 65535 {
			out = append(out, PortList{Protocol: p.Protocol.String()})
		} else {
			lists[p.Protocol] = append(lists[p.Protocol], text)
		}
	}
	for _, protocol := range []policy.Protocol{policy.TCP, policy.UDP, policy.SCTP} {
		if list := lists[protocol]; list != nil {
			out = append(out, PortList{protocol.String(), strings.Join(list, ", ")})
		}
	}
	return out
}

package layout

import (
	"slices"
	"strconv"
	"strings"

	"github.com/namegate/namegate/policy"
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

// answering matches the ports of what answers.
func (p portList) answering() string { return strings.Replace(p.reached(), " dport ", " sport ", 1) }

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
func portLists(ports []policy.PortRange) (out []portList) {
	if ports == nil {
		return []portList{{}}
	}
	lists := map[policy.Protocol][]string{}
	for _, p := range ports {
		text := strconv.Itoa(int(p.First))
		if p.First != p.Last {
			text += "-" + strconv.Itoa(int(p.Last))
		}
		if p.First == 0 && p.Last == 65535 {
			out = append(out, portList{protocol: p.Protocol.String()})
		} else {
			lists[p.Protocol] = append(lists[p.Protocol], text)
		}
	}
	for _, protocol := range []policy.Protocol{policy.TCP, policy.UDP, policy.SCTP} {
		if list := lists[protocol]; list != nil {
			out = append(out, portList{protocol.String(), strings.Join(list, ", ")})
		}
	}
	return out
}

const (
	servicesSet = "services" // State.Services
	namedChain  = "named"
)

// namedRules are asked of a connection that a rule by name accepts, which looks at what was dialled. Its
// translation may lead anywhere: tenants write Services with spec.externalIPs. A packet that returns is not
// accepted by the rule.
func namedRules(accept string) []string {
	return slices.Concat([]string{"ct status & dnat == 0 " + accept},
		each("ct original %[2]s daddr @"+servicesSet+"%[1]s "+accept), []string{"fib daddr type local " + accept})
}

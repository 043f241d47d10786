package xtables

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/kernel/iptables"
	"github.com/namegate/namegate/kernel/link"
	"github.com/namegate/namegate/policy"
)

// tables are those that we have chains in, in the order in which they are
// written: the nets before what allows.
var tables = []string{"security", "mangle"}

// discoveryTypes and listenerTypes are the ICMPv6 types that conntrack never
// tracks and that a host must send for its link to have IPv6: solicitations and
// advertisements of neighbours (RFC 4861), reports of listeners (RFC 2710, RFC
// 3810). What routers and queriers send is not among them.
var (
	discoveryTypes = []int{133, 135, 136}
	listenerTypes  = []int{131, 132, 143}
)

// ruleset renders our chains of one family from pods, by table.
type ruleset struct {
	family iptables.Family
	// mark admits a connection, candidate marks what the judge may admit.
	mark, candidate uint32
	subjects        []*dataplane.Subject
	// kept are the rules of pods as they were rendered last; nil keeps none.
	kept map[podFamily]podRules
	// refused has the names of grant sets that the kernel refused: they open nothing.
	refused map[string]error
}

type podFamily struct {
	pod    policy.PodRef
	family iptables.Family
}

// podRules is the rules of a pod, and what they were made of.
type podRules struct {
	ports []policy.PortSet
	rules []string
}

// render renders our chains, and the jumps to them.
func (r ruleset) render() map[string]iptables.Chains {
	return map[string]iptables.Chains{"mangle": r.mangle(), "security": r.security()}
}

func (r ruleset) set(name string) string { return setPrefix(r.family) + name }

func (r ruleset) icmp() string {
	if r.family == iptables.IPv6 {
		return "ipv6-icmp"
	}
	return "icmp"
}

// hasBit matches a mark that has a bit.
func hasBit(bit uint32) string { return fmt.Sprintf("--mark %#x/%#x", bit, bit) }

// setBit sets a bit of a mark, clearBit clears it. target is MARK or CONNMARK.
func setBit(target string, bit uint32) string {
	return fmt.Sprintf("-j %s --set-xmark %#x/%#x", target, bit, bit)
}

func clearBit(target string, bit uint32) string {
	return fmt.Sprintf("-j %s --set-xmark 0x0/%#x", target, bit)
}

// homes drops what does not come from its home. ports tells whether homes are bridge ports.
// other matches packets that pass, "" nothing: from other sources, and other interfaces.
func (r ruleset) homes() (c iptables.Chains, ports bool, other string) {
	homes := map[netip.Addr][]string{}
	var ifaces, bridgePorts []string
	for _, p := range r.subjects {
		if !p.Isolated {
			continue // the nft tables check the homes of others
		}
		for a, h := range p.Homes {
			switch {
			case versionOf(a) != r.family:
				continue
			case !byIface(p, h):
				homes[a] = []string{"-m physdev --physdev-in " + h.Port + " -j RETURN"}
				bridgePorts = append(bridgePorts, h.Port)
			case !h.Bridged():
				ifaces = append(ifaces, h.Iface)
			}
			homes[a] = append(homes[a], "-j DROP")
		}
		for _, a := range p.Homeless {
			if versionOf(a) == r.family {
				homes[a] = []string{"-j DROP"}
			}
		}
	}
	outside, unlike := otherSources(homes), unlike(ifaces, bridgePorts)
	c = iptables.Chains{chainHome: {}, chainIfaces: {}, chainSpoofed: r.spoofed()}
	if outside != "" {
		c[chainHome] = []string{outside + "-g " + chainIfaces}
	}
	if unlike != "" {
		c[chainIfaces] = []string{unlike + "-j RETURN"}
	}
	if outside != "" && unlike != "" {
		other = outside + unlike
	}
	c[chainHome] = append(c[chainHome], "-m set --match-set "+r.set(setHome)+" src,src -j RETURN", "-g "+chainPorts)
	dispatch(c, chainPorts, homes, "-g "+chainIfaces)
	ifaceDispatch(c, chainIfaces, "-i", ifaces, "-g "+chainSpoofed)
	ifaceDispatch(c, chainIfaces, "-m physdev --physdev-in", bridgePorts, "-g "+chainSpoofed)
	return c, len(bridgePorts) > 0, other
}

// spoofed drops what comes from a pod's interface with a source that is not the
// pod's. Neighbour and listener discovery pass from the two sources that the
// kernel never forwards.
func (r ruleset) spoofed() []string {
	var out []string
	if r.family == iptables.IPv6 {
		for _, source := range []string{"::/128", "fe80::/10"} {
			for _, t := range slices.Concat(discoveryTypes, listenerTypes) {
				out = append(out, fmt.Sprintf("-s %s -p ipv6-icmp -m icmp6 --icmpv6-type %d -j RETURN", source, t))
			}
		}
	}
	return append(out, "-j DROP")
}

// neighbours exempts neighbour and listener discovery from the verdict as long as
// it cannot leave the link: a router has counted the hop limit of 255 down before
// it asks, and does not forward to multicast groups.
func (r ruleset) neighbours() []string {
	if r.family == iptables.IPv4 {
		return nil
	}
	var out []string
	for _, t := range discoveryTypes {
		out = append(out, fmt.Sprintf("-p ipv6-icmp -m conntrack --ctstate UNTRACKED -m hl --hl-eq 255 -m icmp6 --icmpv6-type %d -j RETURN", t))
	}
	for _, t := range listenerTypes {
		out = append(out, fmt.Sprintf("-d ff00::/8 -p ipv6-icmp -m conntrack --ctstate UNTRACKED -m icmp6 --icmpv6-type %d -j RETURN", t))
	}
	return out
}

// mangle checks homes and finds candidates by what the pod dialled. Packets of admitted
// connections, which are nearly all there are, leave by one of the first rules. A candidate has
// its bit in the packet's mark and in the connection's: a packet mark that another program writes
// makes none, and a connection's bit outlives no packet.
//
// The home check of the nft tables marks the packets that it found at home, with the bit that
// admits connections, which means nothing in a packet's mark: they are not checked again.
// Without these tables no packet is marked, and each is checked here. The nft tables of the
// inet family do not see bridge ports: where homes are such, every packet is checked.
func (r ruleset) mangle() iptables.Chains {
	atHome := "-m mark " + hasBit(r.mark) + " "
	established := "-m connmark " + hasBit(r.mark) + " -m conntrack --ctstate ESTABLISHED "
	c, ports, other := r.homes()
	first := []string{atHome + established + "-g " + chainMarked, "-m mark ! " + hasBit(r.mark) + " -j " + chainHome}
	if ports {
		first = []string{"-j " + chainHome, first[0]}
	}
	if other != "" {
		first = slices.Insert(first, 0, other+established+"-j RETURN")
	}
	maps.Copy(c, iptables.Chains{
		"PREROUTING": {"-j " + chainNames},
		chainNamed:   {setBit("MARK", r.candidate), setBit("CONNMARK", r.candidate)},
		chainMarked:  {clearBit("MARK", r.mark)},
		chainNames: append(first,
			established+"-j RETURN",
			// The nft tables mark packets of subjects alone.
			"-m set ! --match-set "+r.set(setDispatched)+" src -j RETURN",
			clearBit("MARK", r.mark|r.candidate),
			// What a pod answers, and what it says of another's connection, admits nothing: that
			// is judged for who began it.
			"-m conntrack --ctdir REPLY -j RETURN",
			clearBit("CONNMARK", r.candidate),
			"-p "+r.icmp()+" -m conntrack --ctstate RELATED -j RETURN",
			// What a helper expects inherits its master's mark. The judge clears the bit too.
			"-m conntrack --ctstate NEW,RELATED "+clearBit("CONNMARK", r.mark),
		),
	})
	names := map[netip.Addr][]string{}
	for _, p := range r.subjects {
		chain := ""
		for _, a := range p.Judged {
			if versionOf(a) != r.family {
				continue
			}
			if chain == "" {
				chain = podChain(p.Pod)
				c[chain] = r.podRules(p)
			}
			names[a] = []string{"-g " + chain}
		}
	}
	dispatch(c, chainNames, names)
	return c
}

// podRules asks each of the pod's sets on the ports that it is for. Ports are asked
// before sets: a packet has one port and a pod many sets. The entries of the set of single
// ports have the ports themselves.
func (r ruleset) podRules(p *dataplane.Subject) []string {
	keeps, key := r.kept != nil && len(r.refused) == 0, podFamily{p.Pod, r.family}
	if k, there := r.kept[key]; there && keeps && slices.Equal(k.ports, p.Grants) {
		return k.rules
	}
	var out []string
	comment := p.Pod.String()
	comment = ` -m comment --comment "` + comment[:min(len(comment), iptables.CommentLengthMax)] + `" -g ` + chainNamed
	add := func(match, set string) { out = append(out, match+"-m set --match-set "+set+comment) }
	shared := false
	for _, ports := range p.Grants {
		set := GrantSetName(p.Pod, ports, r.family)
		if r.refused[set] != nil {
			continue
		}
		if _, _, single := ports.Single(); single {
			if !shared {
				shared = true
				add("", set+" dst,dst")
			}
			continue
		}
		for _, match := range portMatches(ports) {
			add(match, set+" dst")
		}
	}
	if keeps {
		r.kept[key] = podRules{p.Grants, out}
	}
	return out
}

// portsPerRule is how many ports one multiport match takes, a range counting as two
// (XT_MULTI_PORTS of linux/netfilter/xt_multiport.h).
const portsPerRule = 15

// portMatches renders a port set as matches of iptables, as few as its protocols and multiport's
// limit allow; "" matches every packet. A port or range alone is asked by the protocol's own match,
// which costs less.
func portMatches(ports policy.PortSet) (out []string) {
	proto, list, room := policy.AnyProtocol, []string(nil), 0
	end := func() {
		switch {
		case len(list) == 1 && proto != policy.SCTP:
			out = append(out, fmt.Sprintf("-p %s -m %[1]s --dport %s ", proto, list[0]))
		case len(list) > 0:
			out = append(out, fmt.Sprintf("-p %s -m multiport --dports %s ", proto, strings.Join(list, ",")))
		}
		list, room = nil, portsPerRule
	}
	for _, pr := range ports.Ranges() {
		text, cost := fmt.Sprint(pr.First), 1
		if pr.First != pr.Last {
			text, cost = fmt.Sprintf("%d:%d", pr.First, pr.Last), 2
		}
		if pr.Protocol != proto || room < cost {
			end()
		}
		proto = pr.Protocol
		switch {
		case proto == policy.AnyProtocol:
			return []string{""}
		case pr.First == 0 && pr.Last == 65535:
			out = append(out, "-p "+proto.String()+" ")
		default:
			list, room = append(list, text), room-cost
		}
	}
	end()
	return out
}

// security is the second net: the question of the first, by iptables alone.
func (r ruleset) security() iptables.Chains {
	admitted, reply := "-m connmark "+hasBit(r.mark)+" -j RETURN", "-m conntrack --ctdir REPLY -j "
	selected, ingress := "--match-set "+r.set(setSelected), "--match-set "+r.set(setIngress)
	unadmitted := slices.Concat([]string{
		reply + "RETURN",
		"-p " + r.icmp() + " -m conntrack --ctstate RELATED -j RETURN",
		"-m conntrack --ctstate UNTRACKED -m mark " + hasBit(r.candidate) + " -j RETURN",
	}, r.neighbours(), []string{"-j DROP"})
	jump := []string{"-j " + chainDrop}
	out := iptables.Chains{"INPUT": jump, "FORWARD": jump, chainDrop: append([]string{
		admitted,
		"-m set " + selected + " dst " + reply + "DROP",
		"-m set ! " + selected + " src -j RETURN",
	}, unadmitted...)}
	if slices.ContainsFunc(r.subjects, func(p *dataplane.Subject) bool { return p.Ingress != nil }) {
		// A reply to the node's own processes is not forwarded.
		out["FORWARD"] = append(slices.Clone(jump), "-j "+chainIngress)
		out[chainIngress] = append([]string{
			admitted,
			"-m set " + ingress + " src " + reply + "DROP",
			"-m set ! " + ingress + " dst -j RETURN",
		}, unadmitted...)
	}
	return out
}

// byIface tells whether iptables checks a home by the interface of the IP layer, and not
// by the bridge port.
func byIface(p *dataplane.Subject, h link.Home) bool { return !h.Bridged() || p.BridgesUnseen }

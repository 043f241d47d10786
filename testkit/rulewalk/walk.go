package rulewalk

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/namegate/namegate/kernel/iptables"
)

// Packet is what rules look at.
type Packet struct {
	Src, Dst    netip.Addr
	Protocol    uint8
	DstPort     uint16
	Iface, Port string // where it came in; Port is of a bridge
	State       string // NEW unless said otherwise
	Reply       bool
	ICMP, Hops  int
	Mark, Conn  uint32
}

// Machine walks packets through chains.
type Machine struct {
	Chains iptables.Chains
	// InSet tells whether a set has a packet, by "src" or "dst,dst" and the like.
	InSet  func(set, by string, p *Packet) bool
	Walked int // rules looked at
}

// frame is a place to come back to.
type frame struct {
	chain string
	at    int
}

// Run walks from a chain's first rule and returns DROP or ACCEPT. Coming back
// from the first chain is ACCEPT, as it is at the end of a built-in one.
func (m *Machine) Run(chain string, p *Packet) string {
	var stack []frame
	at := frame{chain, 0}
	for {
		rules := m.Chains[at.chain]
		target, goes := "RETURN", false
		if at.at < len(rules) {
			rule := rules[at.at]
			m.Walked++
			at.at++
			if !m.Matches(rule, p) {
				continue
			}
			target, goes = iptables.Target(rule), strings.Contains(rule, "-g ")
			if act(target, rule, p) {
				continue
			}
		}
		switch {
		case target == "DROP" || target == "ACCEPT":
			return target
		case target == "RETURN" && len(stack) == 0:
			return "ACCEPT"
		case target == "RETURN":
			at, stack = stack[len(stack)-1], stack[:len(stack)-1]
		default:
			if _, there := m.Chains[target]; !there {
				panic("no chain " + target)
			}
			if !goes {
				stack = append(stack, at)
			}
			at = frame{target, 0}
		}
	}
}

// act performs a target that does not end the walk, and tells whether it is such a
// target.
func act(target, rule string, p *Packet) bool {
	if target != "MARK" && target != "CONNMARK" {
		return false
	}
	words := strings.Fields(rule)
	value, mask := parseMark(words[slices.Index(words, "--set-xmark")+1])
	if target == "MARK" {
		p.Mark = p.Mark&^mask ^ value
	} else {
		p.Conn = p.Conn&^mask ^ value
	}
	return true
}

// Matches tells whether a rule matches a packet.
func (m *Machine) Matches(rule string, p *Packet) bool {
	words := strings.Fields(rule)
	module := ""
	for i := 0; i < len(words); {
		not := words[i] == "!"
		if not {
			i++
		}
		option := words[i]
		if option == "-j" || option == "-g" {
			return true
		}
		if option == "-m" {
			module = words[i+1]
			i += 2
			continue
		}
		if option == "--comment" {
			for i++; !strings.HasSuffix(words[i], `"`); i++ {
			}
			i++
			continue
		}
		took, yes := m.match(module, option, words[i+1:], p)
		if yes == not {
			return false
		}
		i += 1 + took
	}
	return true
}

// match asks one option and returns how many words its arguments are.
func (m *Machine) match(module, option string, args []string, p *Packet) (int, bool) {
	switch option {
	case "-s":
		return 1, inMask(args[0], p.Src)
	case "-d":
		return 1, inMask(args[0], p.Dst)
	case "-i":
		return 1, likeIface(args[0], p.Iface)
	case "--physdev-in":
		return 1, likeIface(args[0], p.Port)
	case "-p":
		return 1, protocol(p.Protocol) == args[0]
	case "--dports", "--dport":
		return 1, InPorts(args[0], p.DstPort)
	case "--match-set":
		return 2, m.InSet(args[0], args[1], p)
	case "--ctstate":
		state := p.State
		if state == "" {
			state = "NEW"
		}
		return 1, slices.Contains(strings.Split(args[0], ","), state)
	case "--ctdir":
		return 1, p.Reply == (args[0] == "REPLY")
	case "--hl-eq":
		return 1, args[0] == strconv.Itoa(p.Hops)
	case "--icmpv6-type":
		return 1, p.ICMP != 0 && args[0] == strconv.Itoa(p.ICMP)
	case "--mark":
		value, mask := parseMark(args[0])
		if module == "mark" {
			return 1, p.Mark&mask == value
		}
		return 1, p.Conn&mask == value
	}
	panic("the test knows no option " + option)
}

// parseMark reads VALUE/MASK.
func parseMark(s string) (value, mask uint32) {
	v, m, _ := strings.Cut(s, "/")
	v64, err1 := strconv.ParseUint(v, 0, 32)
	m64, err2 := strconv.ParseUint(m, 0, 32)
	if err1 != nil || err2 != nil {
		panic("mark " + s)
	}
	return uint32(v64), uint32(m64)
}

func protocol(p uint8) string {
	if name, known := map[uint8]string{1: "icmp", 6: "tcp", 17: "udp", 58: "ipv6-icmp", 132: "sctp"}[p]; known {
		return name
	}
	return strconv.Itoa(int(p))
}

func likeIface(pattern, name string) bool {
	if prefix, wild := strings.CutSuffix(pattern, "+"); wild {
		return name != "" && strings.HasPrefix(name, prefix)
	}
	return name == pattern
}

// inMask takes ADDRESS/BITS and ADDRESS/MASK.
func inMask(s string, a netip.Addr) bool {
	text, mask, _ := strings.Cut(s, "/")
	value := netip.MustParseAddr(text).AsSlice()
	if value = slices.Clone(value); len(value) != a.BitLen()/8 {
		panic("a rule of the other family: " + s)
	}
	var bits []byte
	if n, err := strconv.Atoi(mask); err == nil {
		bits = netip.PrefixFrom(a, n).Masked().Addr().AsSlice()
		return slices.Equal(bits, netip.PrefixFrom(netip.MustParseAddr(text), n).Masked().Addr().AsSlice())
	}
	bits = netip.MustParseAddr(mask).AsSlice()
	for i, b := range a.AsSlice() {
		if b&bits[i] != value[i] {
			return false
		}
	}
	return true
}

// InPorts tells whether a list of ports and ranges, as multiport has it, has a port.
func InPorts(list string, port uint16) bool {
	for part := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(part, ":")
		if !isRange {
			last = first
		}
		f, err1 := strconv.ParseUint(first, 10, 16)
		l, err2 := strconv.ParseUint(last, 10, 16)
		if err1 != nil || err2 != nil {
			panic("ports " + list)
		}
		if uint64(port) >= f && uint64(port) <= l {
			return true
		}
	}
	return false
}

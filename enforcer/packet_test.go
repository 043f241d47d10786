package enforcer

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/namegate/namegate/kernel/ipset"
	"github.com/namegate/namegate/kernel/iptables"
	"github.com/namegate/namegate/policy"
)

// packet is what rules look at.
type packet struct {
	src, dst    netip.Addr
	proto       policy.Protocol
	dport       uint16
	iface, port string // where it came in; port is of a bridge
	state       string // NEW unless said otherwise
	reply       bool
	icmp, hops  int
	mark, conn  uint32
}

// machine walks a packet through chains as the kernel does.
type machine struct {
	chains iptables.Chains
	inSet  func(set, by string, p *packet) bool
	walked int // rules looked at
}

// frame is a place to come back to.
type frame struct {
	chain string
	at    int
}

// run walks from a chain's first rule and returns DROP or ACCEPT. Coming back
// from the first chain is ACCEPT, as it is at the end of a built-in one.
func (m *machine) run(chain string, p *packet) string {
	var stack []frame
	at := frame{chain, 0}
	for {
		rules := m.chains[at.chain]
		target, goes := "RETURN", false
		if at.at < len(rules) {
			rule := rules[at.at]
			m.walked++
			at.at++
			if !m.matches(rule, p) {
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
			if _, there := m.chains[target]; !there {
				panic("no chain " + target)
			}
			if !goes {
				stack = append(stack, at)
			}
			at = frame{target, 0}
		}
	}
}

// act does what a target that does not end the walk does, and tells whether it
// is such a target.
func act(target, rule string, p *packet) bool {
	if target != "MARK" && target != "CONNMARK" {
		return false
	}
	words := strings.Fields(rule)
	value, mask, ok := parseMark(words[slices.Index(words, "--set-xmark")+1])
	if !ok {
		panic(rule)
	}
	if target == "MARK" {
		p.mark = p.mark&^mask ^ value
	} else {
		p.conn = p.conn&^mask ^ value
	}
	return true
}

func (m *machine) matches(rule string, p *packet) bool {
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
func (m *machine) match(module, option string, args []string, p *packet) (int, bool) {
	switch option {
	case "-s":
		return 1, inMask(args[0], p.src)
	case "-d":
		return 1, inMask(args[0], p.dst)
	case "-i":
		return 1, likeIface(args[0], p.iface)
	case "--physdev-in":
		return 1, likeIface(args[0], p.port)
	case "-p":
		return 1, protoName(p.proto) == args[0]
	case "--dports", "--dport":
		return 1, inPorts(args[0], p.dport)
	case "--match-set":
		return 2, m.inSet(args[0], args[1], p)
	case "--ctstate":
		state := p.state
		if state == "" {
			state = "NEW"
		}
		return 1, args[0] == state
	case "--ctdir":
		return 1, p.reply == (args[0] == "REPLY")
	case "--hl-eq":
		return 1, args[0] == strconv.Itoa(p.hops)
	case "--icmpv6-type":
		return 1, p.icmp != 0 && args[0] == strconv.Itoa(p.icmp)
	case "--mark":
		value, mask, _ := parseMark(args[0])
		if module == "mark" {
			return 1, p.mark&mask == value
		}
		return 1, p.conn&mask == value
	}
	panic("the test knows no option " + option)
}

func protoName(p policy.Protocol) string {
	switch p {
	case 1:
		return "icmp"
	case 58:
		return "ipv6-icmp"
	}
	return p.String()
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

func inPorts(list string, port uint16) bool {
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

// machine returns the walk through one table of the node.
func (w *world) machine(f iptables.Family, table string) *machine {
	m := &machine{chains: iptables.Chains{}}
	for line := range strings.Lines(w.chains.Dump(f, table)) {
		chain, rule, _ := strings.Cut(strings.TrimSpace(line)[3:], " ")
		m.chains[chain] = append(m.chains[chain], rule)
	}
	for name := range m.chains {
		for _, r := range m.chains[name] {
			if to := iptables.Target(r); strings.HasPrefix(to, chainPrefix) && m.chains[to] == nil {
				m.chains[to] = nil // an empty chain, which the dump leaves out
			}
		}
	}
	m.inSet = func(set, by string, p *packet) bool {
		es, err := w.sets.List(set)
		if err != nil {
			panic(fmt.Sprint("a rule asks ", set, ": ", err))
		}
		return slices.ContainsFunc(es, func(e ipset.Entry) bool { return inSet(e, by, p) })
	}
	return m
}

func inSet(e ipset.Entry, by string, p *packet) bool {
	first, second, _ := strings.Cut(by, ",")
	a := p.src
	if first == "dst" {
		a = p.dst
	}
	switch {
	case e.Bits != 0:
		return netip.PrefixFrom(e.Addr, int(e.Bits)).Contains(a)
	case e.Addr != a:
		return false
	case e.Iface != "":
		return second == "src" && e.Iface == p.iface
	case e.Port != 0:
		return second == "dst" && e.Port == p.dport && e.Protocol == uint8(p.proto)
	}
	return true
}

// passes walks a packet through all three tables as it is forwarded, and tells
// whether it gets through. The packet keeps the marks it was given.
func (w *world) passes(p *packet) bool {
	f := versionOf(p.src)
	for _, h := range [][2]string{{"raw", "PREROUTING"}, {"mangle", "PREROUTING"}, {"mangle", "FORWARD"}, {"security", "FORWARD"}} {
		if w.machine(f, h[0]).run(h[1], p) == "DROP" {
			return false
		}
	}
	return true
}

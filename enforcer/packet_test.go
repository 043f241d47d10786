package enforcer

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/knftables"

	"github.com/namegate/namegate/kernel/ipset"
	"github.com/namegate/namegate/kernel/iptables"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/rulewalk"
)

type (
	packet  = rulewalk.Packet
	machine = rulewalk.Machine
)

// machine returns the walk through one table of the node.
func (w *world) machine(f iptables.Family, table string) *machine {
	m := &machine{Chains: iptables.Chains{}}
	for line := range strings.Lines(w.chains.Dump(f, table)) {
		chain, rule, _ := strings.Cut(strings.TrimSpace(line)[3:], " ")
		m.Chains[chain] = append(m.Chains[chain], rule)
	}
	for name := range m.Chains {
		for _, r := range m.Chains[name] {
			if to := iptables.Target(r); strings.HasPrefix(to, chainPrefix) && m.Chains[to] == nil {
				m.Chains[to] = nil // an empty chain, which the dump leaves out
			}
		}
	}
	m.InSet = func(set, by string, p *packet) bool {
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
	a := p.Src
	if first == "dst" {
		a = p.Dst
	}
	switch {
	case e.Addr != a:
		return false
	case e.Iface != "":
		return second == "src" && e.Iface == p.Iface
	case e.Port != 0:
		return second == "dst" && e.Port == p.DstPort && e.Protocol == p.Protocol
	}
	return true
}

// passes walks a packet through both tables as it is forwarded, with the judge of the nft
// tables between, and tells whether it gets through. The packet keeps the
// marks it was given.
func (w *world) passes(p *packet) bool {
	f := versionOf(p.Src)
	return w.machine(f, "mangle").Run("PREROUTING", p) != "DROP" && w.judges(p) && w.machine(f, "security").Run("FORWARD", p) != "DROP"
}

// judges asks the Namespace tier of the nft tables about a packet, and tells whether they let it
// through. An admitted packet gets the mark.
func (w *world) judges(p *packet) bool {
	if p.Reply || p.Conn&w.cfg.Mark != 0 && p.State == "ESTABLISHED" {
		return true
	}
	suffix, selected := "-4", w.inSet("selected", p.Src)
	if p.Src.Is6() {
		suffix = "-6"
	}
	if !selected && !w.inSet("staged", p.Src) {
		return true
	}
	named := p.Mark&w.cfg.Candidate != 0 && p.Conn&w.cfg.Candidate != 0
	dns := p.DstPort == dnsPort && (w.inSet("serving", p.Dst) || w.inSet("dns", p.Dst))
	if named || dns || w.inSet("own", p.Src, p.Dst) || w.accepts("pods"+suffix[1:], p) {
		p.Conn = p.Conn&^w.cfg.Candidate | w.cfg.Mark
		return true
	}
	return !selected
}

// inSet tells whether a set of the nft tables has an address, or two.
func (w *world) inSet(set string, addrs ...netip.Addr) bool {
	set += map[bool]string{false: "4", true: "6"}[addrs[0].Is6()]
	var key []string
	for _, a := range addrs {
		key = append(key, a.String())
	}
	return w.inet.Table != nil && w.inet.Table.Sets[set] != nil && w.inet.Table.Sets[set].FindElement(key...) != nil
}

// accepts tells whether the chain to which a verdict map leads a packet accepts it.
func (w *world) accepts(verdicts string, p *packet) bool {
	if w.inet.Table == nil || w.inet.Table.Maps[verdicts] == nil {
		return false
	}
	e := w.inet.Table.Maps[verdicts].FindElement(p.Src.String())
	return e != nil && w.admits(strings.TrimPrefix(e.Value[0], "goto "), p)
}

// admits walks a chain of rules about what is reached.
func (w *world) admits(chain string, p *packet) bool {
	for _, r := range w.inet.Table.Chains[chain].Rules {
		at := strings.LastIndex(r.Rule, "goto ")
		if at < 0 {
			at = strings.LastIndex(r.Rule, "jump ")
		}
		switch {
		case at < 0: // return
			return false
		case !w.matches(r.Rule[:at], p):
		case r.Rule[at:] == "goto admit" || w.admits(r.Rule[at+len("goto "):], p):
			return true
		case r.Rule[at] == 'g':
			return false
		}
	}
	return false
}

// reachedMatch is one match of a rule about what is reached.
var reachedMatch = regexp.MustCompile(`^(?:meta l4proto (\{.*?\}|\S+)|(\w+) dport (\{.*?\})|(ip6?) daddr (?:& \S+ )?(?:\. meta l4proto \. th dport @(\S+)|(@?)(\S+))) `)

func (w *world) matches(rule string, p *packet) bool {
	protocol, family := policy.Protocol(p.Protocol).String(), map[bool]string{false: "ip", true: "ip6"}[p.Dst.Is6()]
	for rule != "" {
		m := reachedMatch.FindStringSubmatch(rule)
		if m == nil {
			w.t.Fatalf("the test knows no rule %q", rule)
		}
		rule = rule[len(m[0]):]
		var is bool
		switch {
		case m[1] != "":
			is = slices.Contains(strings.FieldsFunc(m[1], func(r rune) bool { return strings.ContainsRune("{, }", r) }), protocol)
		case m[2] != "":
			is = m[2] == protocol && slices.ContainsFunc(strings.Split(strings.Trim(m[3], "{ }"), ", "), func(ports string) bool { return rulewalk.InPorts(strings.ReplaceAll(ports, "-", ":"), p.DstPort) })
		case m[4] != family:
		case m[5] != "":
			is = w.inet.Table.Sets[m[5]].FindElement(p.Dst.String(), protocol, fmt.Sprint(p.DstPort)) != nil
		case m[6] == "":
			is = m[7] == p.Dst.String()
		default:
			is = w.holds(m[7], p.Dst)
		}
		if !is {
			return false
		}
	}
	return true
}

// holds tells whether a set of addresses or networks has an address.
func (w *world) holds(set string, a netip.Addr) bool {
	return slices.ContainsFunc(w.inet.Table.Sets[set].Elements, func(e *knftables.Element) bool {
		n, err := netip.ParsePrefix(e.Key[0])
		return err == nil && n.Contains(a) || e.Key[0] == a.String()
	})
}

package enforcer

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/namegate/namegate/kernel/ipset"
	"github.com/namegate/namegate/kernel/iptables"
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
	case e.Bits != 0:
		return netip.PrefixFrom(e.Addr, int(e.Bits)).Contains(a)
	case e.Addr != a:
		return false
	case e.Iface != "":
		return second == "src" && e.Iface == p.Iface
	case e.Port != 0:
		return second == "dst" && e.Port == p.DstPort && e.Protocol == p.Protocol
	}
	return true
}

// passes walks a packet through both tables as it is forwarded, with the nft tables'
// admission of candidates between, and tells whether it gets through. The packet keeps the
// marks it was given.
func (w *world) passes(p *packet) bool {
	f := versionOf(p.Src)
	for _, h := range [][2]string{{"mangle", "PREROUTING"}, {"mangle", "FORWARD"}, {"security", "FORWARD"}} {
		if h[0] == "security" && p.Mark&w.cfg.Candidate != 0 && p.Conn&w.cfg.Candidate != 0 {
			p.Conn = p.Conn&^w.cfg.Candidate | w.cfg.Mark
		}
		if w.machine(f, h[0]).Run(h[1], p) == "DROP" {
			return false
		}
	}
	return true
}

package layout

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/namegate/namegate/enforcer/ruleset/lists"
	"github.com/namegate/namegate/kernel/nft"
	"github.com/namegate/namegate/kernel/nft/timed"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/short"
)

// packet is the first packet of a connection from one subject, to what it dialled.
type packet struct {
	protocol string // "tcp", "udp", "sctp" or another one
	dialled  netip.Addr
	reached  netip.Addr
	port     uint16 // of both
	// untracked packets have no connection: they reach what they dialled.
	untracked bool
	// own packets are to an address of the subject, resolve packets are DNS to a resolver,
	// and candidates are allowed in the Namespace tier.
	own, resolve, candidate bool
	// elsewhere: it is led elsewhere, and names do not count for what accepts.
	elsewhere bool
}

// world is the members of sets, by the names that they have without prefix and family.
type world struct {
	peers   map[string]PeerSet
	entries map[string][]netip.Addr
}

func (w *world) ports(ports []policy.PortRange, p packet) bool {
	return ports == nil || slices.ContainsFunc(ports, func(r policy.PortRange) bool {
		return r.Protocol.String() == p.protocol && r.First <= p.port && p.port <= r.Last
	})
}

func (w *world) member(s PeerSet, p packet) bool {
	switch s.Kind {
	case policy.PeerNetworks:
		return slices.ContainsFunc(s.Networks, func(n netip.Prefix) bool { return n.Contains(p.reached) })
	case policy.PeerPorts:
		return slices.ContainsFunc(s.Ports, func(at policy.PeerPort) bool {
			return at.Addr == p.reached && at.Protocol.String() == p.protocol && at.Port == p.port
		})
	}
	return slices.Contains(s.Addrs, p.reached)
}

// walk is the verdict of rules, asked one by one.
func (w *world) walk(rules []*TierRule, p packet, pass, end string) string {
	for _, r := range rules {
		switch {
		case !w.ports(r.Ports, p):
		case r.Entries != "" && (!slices.Contains(w.entries[r.Entries], p.dialled) || p.elsewhere && r.Action == Accept), r.Peers != "" && !w.member(w.peers[r.Peers], p):
		default:
			return [...]string{Accept: "goto admit", Reject: "goto denyreject", Drop: "goto denydrop", Pass: pass}[r.Action]
		}
	}
	return end
}

// interpreter asks rendered chains, and counts the rules that it asks.
type interpreter struct {
	*world
	o      objects
	chains map[string][]string
	asked  int
}

// run returns the verdict of a chain that leads out of the chains, "" if none does.
func (in *interpreter) run(t *testing.T, rules []string, p packet) string {
	for _, r := range rules {
		in.asked++
		words := strings.Fields(r)
		verdict := strings.Join(words[len(words)-2:], " ")
		if !in.matches(t, words[:len(words)-2], p) {
			continue
		}
		// The chains of the layout are not rendered here.
		admits, there := map[string]bool{"jump undeniable": p.own, "jump resolve": p.resolve, "jump namespace": p.candidate, "jump named": !p.elsewhere}[verdict]
		switch {
		case admits:
			return "goto admit"
		case there:
			continue
		}
		inner, there := in.chains[words[len(words)-1]]
		if !there {
			return verdict
		}
		out := in.run(t, inner, p)
		if out != "" || words[len(words)-2] == "goto" {
			return out
		}
	}
	return ""
}

// matches interprets the matches of a rule.
func (in *interpreter) matches(t *testing.T, words []string, p packet) bool {
	family := map[bool]string{true: "ip6", false: "ip"}[p.reached.Is6()]
	for len(words) > 0 {
		text, used, ok := strings.Join(words, " "), 0, false
		set := ""
		if i := strings.Index(text, "@"); i >= 0 {
			set = strings.Fields(text[i+1:])[0]
		}
		switch braces := func() string { return text[strings.Index(text, "{")+1 : strings.Index(text, "}")] }; {
		case strings.HasPrefix(text, "ct state untracked"):
			used, ok = 3, p.untracked
		case p.untracked && words[0] == "ct":
			ok = false
		case strings.HasPrefix(text, "th dport {"):
			used, ok = strings.Count(text[:strings.Index(text, "}")], " ")+1, inPorts(t, braces(), p.port)
		case strings.HasPrefix(text, "meta l4proto {"):
			used, ok = strings.Count(text[:strings.Index(text, "}")], " ")+1, strings.Contains(braces(), " "+p.protocol+",") || strings.Contains(braces(), " "+p.protocol+" ")
		case strings.HasPrefix(text, "meta l4proto "):
			used, ok = 3, words[2] == p.protocol
		case strings.HasPrefix(text, "ct original proto-dst {"):
			used, ok = strings.Count(text[:strings.Index(text, "}")], " ")+1, inPorts(t, braces(), p.port)
		case len(words) > 2 && words[1] == "dport":
			used, ok = strings.Count(text[:strings.Index(text, "}")], " ")+1, words[0] == p.protocol && inPorts(t, braces(), p.port)
		case strings.HasPrefix(text, "update @"):
			used, ok = strings.Count(text[:strings.Index(text, "}")], " ")+1, true
		case p.untracked && strings.Contains(text, " saddr . ct original "):
			ok = false
		case len(words) > 1 && words[1] == "saddr":
			used = slices.Index(words, "@"+set) + 1
			ok = words[0] == family && in.hasEntry(strings.TrimSuffix(strings.TrimPrefix(set, timed.EntriesPrefix), "-"+timed.Suffix(p.dialled)), p)
		case words[1] == "daddr":
			used = slices.Index(words, "@"+set) + 1
			ok = words[0] == family && in.reaches(t, set, p)
		default:
			t.Fatalf("no meaning of %q", text)
		}
		if !ok {
			return false
		}
		words = words[used:]
	}
	return true
}

// hasEntry tells whether a set of entries, or that of all keys, has the packet's.
func (in *interpreter) hasEntry(set string, p packet) bool {
	if set != timed.KeySet+timed.Suffix(p.dialled) {
		return slices.Contains(in.entries[set], p.dialled)
	}
	for _, all := range in.entries {
		if slices.Contains(all, p.dialled) {
			return true
		}
	}
	return false
}

func (in *interpreter) reaches(t *testing.T, set string, p packet) bool {
	if set == lists.NetworksSet+timed.Suffix(p.reached) {
		return slices.ContainsFunc(in.o.networks, func(n netip.Prefix) bool { return n.Contains(p.reached) })
	}
	for _, s := range in.o.peers {
		if set == lists.PeersPrefix+s.Name+"-"+timed.Suffix(p.reached) {
			return in.member(s, p)
		}
	}
	t.Fatalf("no set %s", set)
	return false
}

func inPorts(t *testing.T, list string, port uint16) bool {
	for word := range strings.SplitSeq(list, ",") {
		first, last, is := strings.Cut(strings.TrimSpace(word), "-")
		if !is {
			last = first
		}
		a, err := strconv.Atoi(first)
		fatal.If(t, err)
		b, err := strconv.Atoi(last)
		fatal.If(t, err)
		if a <= int(port) && int(port) <= b {
			return true
		}
	}
	return false
}

// pick returns one of a few.
func pick[E any](rnd *rand.Rand, all ...E) E { return all[rnd.IntN(len(all))] }

func smallAddr(rnd *rand.Rand) netip.Addr {
	block := byte(rnd.IntN(3))
	if rnd.IntN(3) == 0 {
		return netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 7: block, 15: byte(rnd.IntN(16))})
	}
	return netip.AddrFrom4([4]byte{198, 18 + block, 2, byte(rnd.IntN(16))})
}

// randomTiers returns up to n random rules on a few addresses and ports, and their sets.
func randomTiers(rnd *rand.Rand, n int) (s State, w world) {
	w = world{map[string]PeerSet{}, map[string][]netip.Addr{}}
	ports := func() []policy.PortRange {
		if rnd.IntN(2) == 0 {
			return nil
		}
		of := func(p policy.Protocol, first, last uint16) policy.PortRange {
			return policy.PortRange{Protocol: p, First: first, Last: last}
		}
		out := []policy.PortRange{}
		for range 1 + rnd.IntN(3) {
			first := uint16(rnd.IntN(6))
			out = append(out, pick(rnd, of(policy.TCP, first, first), of(policy.TCP, first, first+2), of(policy.UDP, 0, 65535), of(policy.SCTP, first, first)))
		}
		return out
	}
	actions := pick(rnd, []Action{Accept, Reject, Drop, Pass}, []Action{Accept, Reject}, []Action{Reject}, []Action{Accept, Pass})
	kinds := pick(rnd, 10, 9, 4)
	shortest := pick(rnd, 0, 5, 10, 128)
	bits := func(a netip.Addr) int {
		if rnd.IntN(20) == 0 {
			return min(shortest, a.BitLen())
		}
		return a.BitLen() - rnd.IntN(3)
	}
	rules := func() (out []*TierRule) {
		for range rnd.IntN(n + 1) {
			r := &TierRule{Ports: ports(), Action: pick(rnd, actions...)}
			name := fmt.Sprintf("%d", len(w.peers)+len(w.entries))
			switch kind := rnd.IntN(kinds); {
			case kind < 4:
				r.Peers = name
				p := PeerSet{Name: name, Kind: policy.PeerNetworks}
				for range 1 + rnd.IntN(3) {
					a := smallAddr(rnd)
					p.Networks = append(p.Networks, netip.PrefixFrom(a, bits(a)).Masked())
				}
				p.Networks = lists.Disjoint(p.Networks)
				w.peers[name] = p
			case kind < 8:
				r.Entries = name
				w.entries[name] = nil
				for range rnd.IntN(3) {
					w.entries[name] = append(w.entries[name], smallAddr(rnd))
				}
			case kind < 9:
				r.Peers = name
				p := PeerSet{Name: name, Addrs: []netip.Addr{smallAddr(rnd)}}
				if rnd.IntN(2) == 0 {
					p, r.Ports = PeerSet{Name: name, Kind: policy.PeerPorts, Ports: []policy.PeerPort{{Addr: smallAddr(rnd), Protocol: policy.TCP, Port: uint16(rnd.IntN(6))}}}, nil
				}
				w.peers[name] = p
			case r.Ports == nil && rnd.IntN(4) > 0:
				continue
			}
			out = append(out, r)
		}
		return out
	}
	for i := range 1 + rnd.IntN(3) {
		s.Tiers = append(s.Tiers, Tiers{ID: fmt.Sprint("list", i), Admin: rules(), Baseline: rules(), Namespace: rnd.IntN(3) == 0, DNS: rnd.IntN(2) == 0})
	}
	for _, p := range w.peers {
		s.Peers = append(s.Peers, p)
	}
	for name := range w.entries {
		s.Entries = append(s.Entries, name)
	}
	return s, w
}

// TestDispatchEqualsWalk: whatever chains rules are rendered to, a packet's verdict is that of
// the rules one by one.
func TestDispatchEqualsWalk(t *testing.T) {
	t.Parallel()
	verdicts := map[string]int{}
	rounds := short.Rounds(100, 400, 4_000)
	for seed := range uint64(rounds) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		s, w := randomTiers(rnd, pick(rnd, 5, 40, 200))
		in := &interpreter{world: &w, o: s.objects(objects{}), chains: map[string][]string{}}
		defined := map[string]bool{}
		for _, c := range in.o.chains {
			for _, r := range c.Rules {
				words := strings.Fields(r)
				if to := words[len(words)-1]; slices.ContainsFunc(passing, func(prefix string) bool { return strings.HasPrefix(to, prefix) }) && !defined[to] {
					t.Fatalf("seed %d: %s leads to %s, which comes later", seed, c.Name, to)
				}
			}
			if defined[c.Name] {
				t.Fatalf("seed %d: two chains %s", seed, c.Name)
			}
			defined[c.Name], in.chains[c.Name] = true, c.Rules
		}
		for range 60 {
			p := packet{pick(rnd, "tcp", "tcp", "udp", "sctp", "icmp"), smallAddr(rnd), smallAddr(rnd), uint16(rnd.IntN(8)), rnd.IntN(4) == 0,
				rnd.IntN(8) == 0, rnd.IntN(8) == 0, rnd.IntN(2) == 0, rnd.IntN(2) == 0}
			if p.untracked || p.dialled.Is6() != p.reached.Is6() {
				p.dialled = p.reached
			}
			p.elsewhere = p.elsewhere && p.dialled != p.reached
			for _, l := range s.Tiers {
				want := w.walk(l.Admin, p, "rest", "rest")
				switch {
				case p.own || p.resolve && l.DNS:
					want = "goto admit"
				case want == "rest" && !l.Namespace:
					want = w.walk(l.Baseline, p, "goto admit", "goto admit")
				case want == "rest":
					want = map[bool]string{true: "goto admit", false: "goto deny"}[p.candidate]
				}
				got := in.run(t, in.chains[in.o.fronts[l.ID]], p)
				if got != want {
					t.Fatalf("seed %d: %+v of %s is %q, want %q", seed, p, l.ID, got, want)
				}
				verdicts[got]++
			}
		}
	}
	for _, v := range []string{"goto admit", "goto denyreject", "goto denydrop", "goto deny"} {
		if verdicts[v] < rounds*5/2 {
			t.Errorf("%d of %s", verdicts[v], v)
		}
	}
}

// TestAChangedRuleLeavesMostChains: where one rule of many changes, whatever lists have it, most
// chains stay.
func TestAChangedRuleLeavesMostChains(t *testing.T) {
	t.Parallel()
	const lists, changed = 5, 100
	state := func(at string) (s State) {
		for l := range lists {
			tiers := Tiers{ID: fmt.Sprint(l, at)}
			for i := range 200 {
				r := &TierRule{Entries: fmt.Sprint(i), Action: Reject}
				if i == changed {
					r.Entries = at
				}
				s.Entries = append(s.Entries, r.Entries)
				if i != 40*l {
					tiers.Admin = append(tiers.Admin, r)
				}
			}
			s.Tiers = append(s.Tiers, tiers)
		}
		return s
	}
	before := state("this").objects(objects{})
	after := state("that").objects(before)
	rules := func(all, without []*nft.Chain) (n int) {
		there := map[string]bool{}
		for _, c := range without {
			there[c.Name] = true
		}
		for _, c := range all {
			if !there[c.Name] {
				n += len(c.Rules)
			}
		}
		return n
	}
	all, added, removed := rules(after.chains, nil), rules(after.chains, before.chains), rules(before.chains, after.chains)
	if added == 0 || added > all/4 || removed > all/4 {
		t.Errorf("of %d rules %d are written, and %d go", all, added, removed)
	}
}

package nft

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Most packets match few of a long list's rules, and most rules are about names or networks.
// So a list asks first whether the subject has an entry of any rule for the dialled address,
// and whether the address that is reached is in a network of any rule, and walks only the
// rules that are left. A lookup in a set of networks takes as long as several in a set of
// addresses, so the block of the address is asked before. What no rule denies is asked where
// rules are walked: most packets match none. Rules with one action need no order among themselves: the networks of
// such a run are one set. What is walked is divided into chains that are named by their
// content: a changed rule is another chain or two, and lists share the others.

const (
	partPrefix  = "part-"
	namedSet    = "named"    // subject and address of all entries
	networksSet = "networks" // of all rules of lists that ask it
	// blocksPeers is the peer set of the blocks, one for each family, that have the networks
	// of networksSet.
	blocksPeers = "blocks"

	// fewRules is how many rules a list walks without asking first.
	fewRules = 8
	// mostInPart bounds the rules of a part, and oneInParts is how many there are on average.
	mostInPart, oneInParts = 32, 12
	// mostAtTop is how many rules of a list are left undivided beside those that ask first: a
	// change of any rule writes them anew.
	mostAtTop = 6
	// mostNested is how deep parts have parts: the kernel takes 15 chains that lead to each
	// other, and an ordered list leads to that of a NetworkPolicy.
	mostNested = 2
	// A block has at most 1/blockShare of an address's bits. One of less than leastBlock bits
	// holds too many addresses to be asked.
	blockShare, leastBlock = 2, 8
)

// dispatch makes the chains and sets of lists.
type dispatch struct {
	peers    map[string]PeerSet
	entries  map[string]EntrySet
	items    map[itemKey]*item
	before   map[itemKey]*item // of the last dispatch
	chains   []tierChain
	there    map[string]bool    // the names of chains
	sets     map[string]PeerSet // the sets of peers that rules ask
	networks map[string]bool    // the sets of networks that networksSet has
	blocks   map[string]int     // the lengths of blocks, by family; no family without networks
	first    []*item            // the items of the current list before those of rules
}

func newDispatch(s State, before map[itemKey]*item) *dispatch {
	d := &dispatch{
		peers: map[string]PeerSet{}, entries: map[string]EntrySet{}, items: map[itemKey]*item{}, before: before,
		there: map[string]bool{}, sets: map[string]PeerSet{}, networks: map[string]bool{}, blocks: map[string]int{},
	}
	for _, p := range s.Peers {
		d.peers[p.Name] = p
		if p.Kind == PeerNetworks {
			for _, n := range p.Networks {
				bits, there := d.blocks[suffix(n.Addr())]
				if !there {
					bits = n.Addr().BitLen() / blockShare
				}
				d.blocks[suffix(n.Addr())] = min(n.Bits(), bits)
			}
		}
	}
	for _, e := range s.Entries {
		d.entries[e.Name] = e
	}
	return d
}

// item is what one rule, or one jump, is in nft's words.
type item struct {
	texts []string
	sum   [16]byte // of texts
}

// itemKey tells the items of rules apart.
type itemKey struct {
	peers, entries, ports, pass string
	action                      Action
	kind                        PeerKind
	bare                        bool
	renew                       time.Duration
}

func newItem(texts ...string) *item {
	i := &item{texts: texts}
	sum := sha256.Sum256([]byte(strings.Join(texts, "\n")))
	copy(i.sum[:], sum[:])
	return i
}

// chain adds a chain of a prefix that is named by its content, and returns its name.
func (d *dispatch) chain(prefix string, items []*item) string {
	var sums []byte
	for _, i := range items {
		sums = append(sums, i.sum[:]...)
	}
	sum := sha256.Sum256(sums)
	name := prefix + hex.EncodeToString(sum[:8])
	if !d.there[name] {
		d.there[name] = true
		c := tierChain{name: name}
		for _, i := range items {
			c.rules = append(c.rules, i.texts...)
		}
		d.chains = append(d.chains, c)
	}
	return name
}

// listed is a rule of a list.
type listed struct {
	*TierRule
	*item    // nil for networks
	networks bool
}

func isNames(r listed) bool    { return r.Entries != "" }
func isNetworks(r listed) bool { return r.networks }

// listed returns the rules of a tier that packets come to.
func (d *dispatch) listed(rules []TierRule, pass string, bare bool) (all []listed) {
	for i := range rules {
		r := listed{TierRule: &rules[i]}
		if r.networks = r.Peers != "" && d.peers[r.Peers].Kind == PeerNetworks; !r.networks {
			r.item = d.item(rules[i], pass, bare)
		}
		all = append(all, r)
		if r.Peers == "" && r.Entries == "" && r.Ports == nil {
			break // no packet comes behind it
		}
	}
	return all
}

// list returns the items of a tier's rules. next is the verdict of Pass, and of no match.
func (d *dispatch) list(rules []TierRule, next string) (out []*item) {
	all := d.listed(rules, next, false)
	if without := slices.DeleteFunc(slices.Clone(all), isNames); len(all)-len(without) > fewRules {
		out = append(out, newItem(each("%[2]s saddr . ct original %[2]s daddr @"+namedSet+"%[1]s goto "+d.chain(partPrefix, d.walked(all, next)))...))
		all = without
	}
	if without := slices.DeleteFunc(slices.Clone(all), isNetworks); len(all)-len(without) > fewRules {
		for _, r := range all {
			if r.networks {
				d.networks[r.Peers] = true
			}
		}
		out = append(out, newItem(d.inNetworks("goto "+d.chain(partPrefix, d.walked(all, next)))...))
		all = without
	}
	return append(out, d.walked(all, next)...)
}

// inNetworks renders rules about packets that reach a network of networksSet.
func (d *dispatch) inNetworks(verdict string) (out []string) {
	for _, f := range families {
		bits, there := d.blocks[f.suffix]
		if !there {
			continue
		}
		match := f.ip + " daddr @" + networksSet + f.suffix + " "
		if bits >= leastBlock {
			mask := netip.PrefixFrom(ones[f.suffix], bits).Masked().Addr()
			match = fmt.Sprintf("%s daddr & %s @%s%s-%s ", f.ip, mask, peersPrefix, blocksPeers, f.suffix) + match
		}
		out = append(out, match+verdict)
	}
	return out
}

// ones are addresses without a zero bit, by family.
var ones = map[string]netip.Addr{"4": netip.AddrFrom4([4]byte(slices.Repeat([]byte{255}, 4))), "6": netip.AddrFrom16([16]byte(slices.Repeat([]byte{255}, 16)))}

// untracked is list for untracked packets, which are few.
func (d *dispatch) untracked(rules []TierRule, next string) []*item {
	return d.walked(d.listed(rules, next, true), next)
}

// walked returns items that are asked in order.
func (d *dispatch) walked(rules []listed, next string) (out []*item) {
	if len(rules) > 0 {
		out = slices.Concat(d.first, d.parted(d.inOrder(rules, next)))
	}
	return append(out, newItem(next))
}

// inOrder returns the items of rules, with one for the networks of each run of rules with
// one action and ports. It comes behind the names of the run, whose entries a packet renews.
func (d *dispatch) inOrder(rules []listed, pass string) (out []*item) {
	for len(rules) > 0 {
		n := slices.IndexFunc(rules, func(r listed) bool { return r.Action != rules[0].Action })
		if n < 0 {
			n = len(rules)
		}
		var last []TierRule // of networks, with different ports
		var names [][]string
		for _, r := range rules[:n] {
			if !r.networks {
				out = append(out, r.item)
				continue
			}
			i := slices.IndexFunc(last, func(o TierRule) bool { return slices.Equal(o.Ports, r.Ports) && (o.Ports == nil) == (r.Ports == nil) })
			if i < 0 {
				i, last, names = len(last), append(last, *r.TierRule), append(names, nil)
			}
			names[i] = append(names[i], r.Peers)
		}
		for i, r := range last {
			r.Peers = d.union(names[i])
			out = append(out, d.item(r, pass, false))
		}
		rules = rules[n:]
	}
	return out
}

// union returns the name of the set with the networks of sets.
func (d *dispatch) union(names []string) string {
	if len(names) == 1 {
		return names[0]
	}
	slices.Sort(names)
	names = slices.Compact(names)
	sum := sha256.Sum256([]byte(strings.Join(names, "\n")))
	name := "of-" + hex.EncodeToString(sum[:8])
	if _, there := d.peers[name]; !there {
		var all []netip.Prefix
		for _, n := range names {
			all = append(all, d.peers[n].Networks...)
		}
		d.peers[name] = PeerSet{Name: name, Kind: PeerNetworks, Networks: disjoint(all)}
	}
	return name
}

// disjoint sorts networks and returns those that lie in no other.
func disjoint(all []netip.Prefix) (out []netip.Prefix) {
	slices.SortFunc(all, netip.Prefix.Compare)
	for _, n := range all {
		if len(out) == 0 || !out[len(out)-1].Overlaps(n) {
			out = append(out, n)
		}
	}
	return out
}

// item returns the item of a rule, bare for untracked packets.
func (d *dispatch) item(r TierRule, pass string, bare bool) *item {
	key := itemKey{r.Peers, r.Entries, portsKey(r.Ports), pass, r.Action, d.peers[r.Peers].Kind, bare && r.Entries != "", d.entries[r.Entries].Renew}
	i := d.items[key]
	if i == nil {
		if r.Peers != "" {
			d.sets[r.Peers] = d.peers[r.Peers]
		}
		if i = d.before[key]; i == nil {
			texts := d.texts(r, pass)
			if key.bare {
				texts = untracked(texts)
			}
			i = newItem(texts...)
		}
		d.items[key] = i
	}
	return i
}

// portsKey is equal for equal ports.
func portsKey(ports []PortRange) string {
	if ports == nil {
		return "any"
	}
	var b []byte
	for _, p := range ports {
		b = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(append(b, p.Protocol...), p.First), p.Last)
	}
	return string(b)
}

// texts renders a rule.
func (d *dispatch) texts(r TierRule, pass string) (out []string) {
	verdict := map[Action]string{Accept: "goto admit", Reject: "goto denyreject", Drop: "goto denydrop", Pass: pass}[r.Action]
	if r.Entries != "" {
		return entryTexts(d.entries[r.Entries], r.Ports, verdict)
	}
	peers := []string{""}
	if r.Peers != "" {
		match := "%[2]s daddr @" + peersPrefix + r.Peers + "-%[1]s "
		if d.peers[r.Peers].Kind == PeerPorts {
			match = "meta l4proto { tcp, udp, sctp } %[2]s daddr . meta l4proto . th dport @" + peersPrefix + r.Peers + "-%[1]s "
		}
		peers = each(match)
	}
	for _, to := range peers {
		for _, p := range portLists(r.Ports) {
			out = append(out, p.reached()+to+verdict)
		}
	}
	return out
}

// parted returns jumps to chains of items, or the items where they are few. A part ends behind
// an item with a certain sum, so that most of them stay when one item changes.
func (d *dispatch) parted(items []*item) []*item {
	for nested := 0; nested < mostNested && len(items) > mostAtTop; nested++ {
		var jumps []*item
		for first, i := 0, 0; i < len(items); i++ {
			if i == len(items)-1 || i-first >= 1 && int(items[i].sum[0])%oneInParts == 0 || i-first+1 == mostInPart {
				jumps = append(jumps, newItem("jump "+d.chain(partPrefix, items[first:i+1])))
				first = i + 1
			}
		}
		items = jumps
	}
	return items
}

// allBlocks returns the peer set of the blocks of networks.
func (d *dispatch) allBlocks(networks []netip.Prefix) PeerSet {
	out := PeerSet{Name: blocksPeers}
	for _, n := range networks {
		block := netip.PrefixFrom(n.Addr(), d.blocks[suffix(n.Addr())]).Masked().Addr()
		if len(out.Addrs) == 0 || out.Addrs[len(out.Addrs)-1] != block {
			out.Addrs = append(out.Addrs, block)
		}
	}
	return out
}

// allNetworks returns the networks of networksSet.
func (d *dispatch) allNetworks() []netip.Prefix {
	var all []netip.Prefix
	for name := range d.networks {
		all = append(all, d.peers[name].Networks...)
	}
	return disjoint(all)
}

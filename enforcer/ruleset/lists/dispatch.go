package lists

import (
	"encoding/binary"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/namegate/namegate/kernel/nft"
	"github.com/namegate/namegate/kernel/nft/timed"
	"github.com/namegate/namegate/policy"
)

// Most packets match few of a long list's rules, and most rules are about names or networks.
// So a list asks first whether the subject has an entry of any rule for the dialled address,
// and whether the address that is reached is in a network of any rule, and walks only the
// rules that are left. What no rule denies is asked where
// rules are walked: most packets match none. Rules with one action need no order among themselves: the networks of
// such a run are one set. What is walked is divided into chains, which lists share: where one rule
// changes, most of them stay.

const (
	// PartPrefix begins the names of chains of parts.
	PartPrefix = "part-"
	// NetworksSet is the set of networks, behind whose name is the family, of all rules of lists that ask it.
	NetworksSet = "networks"
	// PeersPrefix begins the names of sets of peers, which end with the family.
	PeersPrefix = "peers-"

	// fewRules is how many rules a list walks without asking first.
	fewRules = 8
	// mostInPart bounds the rules of a part, and oneInParts is how many there are on average.
	mostInPart, oneInParts = 32, 12
	// mostAtTop is how many rules of a list are left undivided beside those that ask first: a
	// change of any rule makes them anew.
	mostAtTop = 6
	// mostNested is how deep parts have parts: the kernel takes 15 chains that lead to each
	// other, and an ordered list leads to that of a NetworkPolicy.
	mostNested = 2
)

// Builder makes the chains of lists, and tells the sets that they ask.
type Builder struct {
	// Chains are those that were made, in an order in which each refers to earlier ones alone.
	Chains []*nft.Chain
	// First are the items of the next lists before those of rules.
	First []*Item

	describe func(name string) string
	peers    map[string]PeerSet
	before   Made
	walks    map[walkKey]*walk
	sums     []byte
	made
}

// made is what was made so far.
type made struct {
	Made
	sets     map[string]PeerSet // of peers that rules ask
	networks map[string]bool    // the sets of networks that NetworksSet has
}

// Made is what a builder made that the next one takes over where it is the same.
type Made struct {
	items map[itemKey]*Item
	there map[string]*nft.Chain // by their names
}

// Saved is what a builder made at one moment.
type Saved struct {
	made
	chains []*nft.Chain
}

// New returns a builder for rules about peers. describe returns the comment of a chain.
func New(peers []PeerSet, before Made, describe func(string) string) *Builder {
	b := &Builder{
		describe: describe, peers: map[string]PeerSet{}, before: before, walks: map[walkKey]*walk{},
		made: made{Made{map[itemKey]*Item{}, map[string]*nft.Chain{}}, map[string]PeerSet{}, map[string]bool{}},
	}
	for _, p := range peers {
		b.peers[p.Name] = p
	}
	return b
}

// clone returns a copy.
func (m made) clone() made {
	return made{Made{maps.Clone(m.items), maps.Clone(m.there)}, maps.Clone(m.sets), maps.Clone(m.networks)}
}

// Save returns what was made.
func (d *Builder) Save() Saved { return Saved{d.made.clone(), slices.Clip(d.Chains)} }

// Restore has a new builder begin with what another made of the same rules. Sets have the members that they have now.
func (d *Builder) Restore(s Saved) {
	d.made, d.Chains = s.made.clone(), slices.Clip(s.chains)
	for name, set := range s.sets {
		if now, there := d.peers[name]; there {
			set = now
		}
		d.peers[name], d.sets[name] = set, set
	}
}

// Result returns what was made.
func (d *Builder) Result() Made { return d.Made }

// Sets returns the sets of peers that rules ask, sorted.
func (d *Builder) Sets() []PeerSet {
	return slices.SortedFunc(maps.Values(d.sets), func(a, b PeerSet) int { return strings.Compare(a.Name, b.Name) })
}

// Ask has a rule that is no list's ask a set of peers.
func (d *Builder) Ask(peers string) { d.sets[peers] = d.peers[peers] }

// itemKey tells the items of rules apart.
type itemKey struct {
	walkKey
	peers, entries, ports string
	action                Action
	kind                  policy.PeerKind
}

// listed is a rule of a list.
type listed struct {
	*Rule
	*Item    // nil for networks
	networks bool
}

func isNames(r listed) bool    { return r.Entries != "" }
func isNetworks(r listed) bool { return r.networks }

// walkKey is what walks have in common that share items.
type walkKey struct {
	*Words
	// pass is the verdict of rules that pass, and of what matches no rule.
	pass string
	bare bool // of untracked packets
}

// walk makes the items of rules of a tier.
type walk struct {
	*Builder
	walkKey
	known map[*Rule]listed
}

func (d *Builder) walk(key walkKey) *walk {
	if d.walks[key] == nil {
		d.walks[key] = &walk{d, key, map[*Rule]listed{}}
	}
	return d.walks[key]
}

// listed returns the rules of a tier that packets come to.
func (w *walk) listed(rules []*Rule) []listed {
	all := make([]listed, 0, len(rules))
	for _, rule := range rules {
		r, known := w.known[rule]
		if !known {
			r = listed{Rule: rule}
			if r.networks = rule.Peers != "" && w.peers[rule.Peers].Kind == policy.PeerNetworks; !r.networks {
				r.Item = w.item(rule)
			}
			w.known[rule] = r
		}
		all = append(all, r)
		if r.Peers == "" && r.Entries == "" && r.Ports == nil {
			break // no packet comes behind it
		}
	}
	return all
}

// List returns the items of rules in order. pass is the verdict of rules that pass, and of what matches none.
func (d *Builder) List(w *Words, rules []*Rule, pass string) []*Item {
	return d.walk(walkKey{Words: w, pass: pass}).list(rules)
}

// Bare is List for untracked packets, which are few.
func (d *Builder) Bare(words *Words, rules []*Rule, pass string) []*Item {
	w := d.walk(walkKey{Words: words, pass: pass, bare: true})
	return w.items(w.listed(rules))
}

func (w *walk) list(rules []*Rule) (out []*Item) {
	d := w.Builder
	all := w.listed(rules)
	if without := slices.DeleteFunc(slices.Clone(all), isNames); len(all)-len(without) > fewRules {
		out = append(out, NewItem("goto "+d.Chain(PartPrefix, w.items(all)...), Each(w.Subject+" . ct original %[2]s daddr @"+timed.KeySet+"%[1]s ")...))
		all = without
	}
	if without := slices.DeleteFunc(slices.Clone(all), isNetworks); len(all)-len(without) > fewRules {
		for _, r := range all {
			if r.networks {
				d.networks[r.Peers] = true
			}
		}
		out = append(out, NewItem("goto "+d.Chain(PartPrefix, w.items(all)...), Each(w.Peer+" @"+NetworksSet+"%[1]s ")...))
		all = without
	}
	return append(out, w.items(all)...)
}

// items returns items that are asked in order.
func (w *walk) items(rules []listed) (out []*Item) {
	if len(rules) > 0 {
		out = append(slices.Clone(w.First), w.parted(w.inOrder(rules))...)
	}
	return append(out, NewItem(w.pass, ""))
}

// inOrder returns the items of rules, with one for the networks of each run of rules with
// one action and ports. It comes behind the names of the run.
func (w *walk) inOrder(rules []listed) []*Item {
	out := make([]*Item, 0, len(rules))
	var networks [][]*Rule // with different ports
	for i, r := range rules {
		if !r.networks {
			out = append(out, r.Item)
		} else if n := slices.IndexFunc(networks, func(o []*Rule) bool { return o[0].samePorts(r.Rule) }); n >= 0 {
			networks[n] = append(networks[n], r.Rule)
		} else {
			networks = append(networks, []*Rule{r.Rule})
		}
		if i == len(rules)-1 || rules[i+1].Action != r.Action {
			for _, of := range networks {
				out = append(out, w.item(w.union(of)))
			}
			networks = networks[:0]
		}
	}
	return out
}

// samePorts tells whether rules are about the same ports.
func (r *Rule) samePorts(o *Rule) bool {
	return (o.Ports == nil) == (r.Ports == nil) && slices.Equal(o.Ports, r.Ports)
}

// union returns a rule about the networks of rules that differ in these alone.
func (d *Builder) union(rules []*Rule) *Rule {
	if len(rules) == 1 {
		return rules[0]
	}
	names := make([]string, len(rules))
	for i, r := range rules {
		names[i] = r.Peers
	}
	r := *rules[0]
	slices.Sort(names)
	if names = slices.Compact(names); len(names) > 1 {
		r.Peers = "of-" + shortSum([]byte(strings.Join(names, "\n")))
	}
	if _, there := d.peers[r.Peers]; !there {
		var all []netip.Prefix
		for _, n := range names {
			all = append(all, d.peers[n].Networks...)
		}
		d.peers[r.Peers] = PeerSet{Name: r.Peers, Kind: policy.PeerNetworks, Networks: Disjoint(all)}
	}
	return &r
}

// Disjoint sorts networks and returns those that lie in no other.
func Disjoint(all []netip.Prefix) (out []netip.Prefix) {
	slices.SortFunc(all, netip.Prefix.Compare)
	for _, n := range all {
		if len(out) == 0 || !out[len(out)-1].Overlaps(n) {
			out = append(out, n)
		}
	}
	return out
}

// item returns the item of a rule.
func (w *walk) item(r *Rule) *Item {
	key := itemKey{w.walkKey, r.Peers, r.Entries, portsKey(r.Ports), r.Action, w.peers[r.Peers].Kind}
	key.bare = w.bare && r.Entries != ""
	i := w.Builder.items[key]
	if i == nil {
		if r.Peers != "" {
			w.sets[r.Peers] = w.peers[r.Peers]
		}
		if i = w.before.items[key]; i == nil {
			matches, to := w.matches(r), w.pass
			if key.bare {
				matches = Untracked(matches)
			}
			switch {
			case r.Action == Pass:
			case r.Action == Accept && r.Entries != "" && !key.bare:
				to = "jump " + w.Named
			default:
				to = w.Verdicts[r.Action]
			}
			i = NewItem(to, matches...)
		}
		w.Builder.items[key] = i
	}
	return i
}

// portsKey is equal for equal ports.
func portsKey(ports []policy.PortRange) string {
	if ports == nil {
		return "any"
	}
	var b []byte
	for _, p := range ports {
		b = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(append(b, byte(p.Protocol)), p.First), p.Last)
	}
	return string(b)
}

// matches renders a rule without its verdict.
func (w *walk) matches(r *Rule) (out []string) {
	if r.Entries != "" {
		return entryMatches(r.Entries, r.Ports, w.Subject)
	}
	peers := []string{""}
	if r.Peers != "" {
		match := w.Peer + " @" + PeersPrefix + r.Peers + "-%[1]s "
		if w.peers[r.Peers].Kind == policy.PeerPorts {
			match = "meta l4proto { tcp, udp, sctp } %[2]s daddr . meta l4proto . th dport @" + PeersPrefix + r.Peers + "-%[1]s "
		}
		peers = Each(match)
	}
	for _, to := range peers {
		for _, p := range PortLists(r.Ports) {
			out = append(out, p.Reached()+to)
		}
	}
	return out
}

// Networks returns the networks of NetworksSet.
func (d *Builder) Networks() []netip.Prefix {
	var all []netip.Prefix
	for name := range d.networks {
		all = append(all, d.peers[name].Networks...)
	}
	return Disjoint(all)
}

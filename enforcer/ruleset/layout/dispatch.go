package layout

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
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
	partPrefix  = "part-"
	networksSet = "networks" // of all rules of lists that ask it

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

// dispatch makes the chains and sets of lists.
type dispatch struct {
	peers    map[string]PeerSet
	items    map[itemKey]*item
	before   objects
	walks    map[walkKey]*walk
	chains   []*nft.Chain
	there    map[string]*nft.Chain // by their names
	sums     []byte
	sets     map[string]PeerSet // the sets of peers that rules ask
	networks map[string]bool    // the sets of networks that networksSet has
	relays   bool               // the node has relays
	first    []*item            // the items of the current list before those of rules
}

func newDispatch(s State, before objects) *dispatch {
	d := &dispatch{
		peers: map[string]PeerSet{}, items: map[itemKey]*item{}, before: before,
		walks: map[walkKey]*walk{}, there: map[string]*nft.Chain{},
		sets: map[string]PeerSet{}, networks: map[string]bool{}, relays: len(s.Relays.Guarded) > 0,
	}
	for _, p := range s.Peers {
		d.peers[p.Name] = p
	}
	return d
}

// itemKey tells the items of rules apart.
type itemKey struct {
	walkKey
	peers, entries, ports string
	action                Action
	kind                  policy.PeerKind
}

// listed is a rule of a list.
type listed struct {
	*TierRule
	*item    // nil for networks
	networks bool
}

func isNames(r listed) bool    { return r.Entries != "" }
func isNetworks(r listed) bool { return r.networks }

// walkKey is what walks have in common that share items.
type walkKey struct {
	*words
	// pass is the verdict of rules that pass, and of what matches no rule.
	pass string
	bare bool // of untracked packets
}

// words are those of rules of one kind.
type words struct {
	verdicts    [Pass]string // of rules that decide, by action
	named       string       // the chain of rules by name that accept
	subjectWord string       // of a packet, in entry sets
	peerWord    string       // of a packet: the end that rules are about
}

// sourceWord and destinationWord are the ends of a packet.
const sourceWord, destinationWord = "%[2]s saddr", "%[2]s daddr"

// podWords are of what pods send.
var podWords = &words{verdicts: [...]string{Accept: "goto admit", Reject: "goto denyreject", Drop: "goto denydrop"}, named: namedChain, subjectWord: sourceWord, peerWord: destinationWord}

// walk makes the items of rules of a tier.
type walk struct {
	*dispatch
	walkKey
	known map[*TierRule]listed
}

func (d *dispatch) walk(key walkKey) *walk {
	if d.walks[key] == nil {
		d.walks[key] = &walk{d, key, map[*TierRule]listed{}}
	}
	return d.walks[key]
}

// listed returns the rules of a tier that packets come to.
func (w *walk) listed(rules []*TierRule) []listed {
	all := make([]listed, 0, len(rules))
	for _, rule := range rules {
		r, known := w.known[rule]
		if !known {
			r = listed{TierRule: rule}
			if r.networks = rule.Peers != "" && w.peers[rule.Peers].Kind == policy.PeerNetworks; !r.networks {
				r.item = w.item(rule)
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

// list returns the items of a tier's rules.
func (d *dispatch) list(rules []*TierRule, pass string) []*item {
	return d.walk(walkKey{words: podWords, pass: pass}).list(rules)
}

func (w *walk) list(rules []*TierRule) (out []*item) {
	d := w.dispatch
	all := w.listed(rules)
	if without := slices.DeleteFunc(slices.Clone(all), isNames); len(all)-len(without) > fewRules {
		out = append(out, newItem("goto "+d.chain(partPrefix, w.items(all)...), each(w.subjectWord+" . ct original %[2]s daddr @"+timed.KeySet+"%[1]s ")...))
		all = without
	}
	if without := slices.DeleteFunc(slices.Clone(all), isNetworks); len(all)-len(without) > fewRules {
		for _, r := range all {
			if r.networks {
				d.networks[r.Peers] = true
			}
		}
		out = append(out, newItem("goto "+d.chain(partPrefix, w.items(all)...), each(w.peerWord+" @"+networksSet+"%[1]s ")...))
		all = without
	}
	return append(out, w.items(all)...)
}

// untracked is list for untracked packets, which are few.
func (d *dispatch) untracked(rules []*TierRule, pass string) []*item {
	w := d.walk(walkKey{words: podWords, pass: pass, bare: true})
	return w.items(w.listed(rules))
}

// items returns items that are asked in order.
func (w *walk) items(rules []listed) (out []*item) {
	if len(rules) > 0 {
		out = append(slices.Clone(w.first), w.parted(w.inOrder(rules))...)
	}
	return append(out, newItem(w.pass, ""))
}

// inOrder returns the items of rules, with one for the networks of each run of rules with
// one action and ports. It comes behind the names of the run.
func (w *walk) inOrder(rules []listed) []*item {
	out := make([]*item, 0, len(rules))
	var networks [][]*TierRule // with different ports
	for i, r := range rules {
		if !r.networks {
			out = append(out, r.item)
		} else if n := slices.IndexFunc(networks, func(o []*TierRule) bool { return o[0].samePorts(r.TierRule) }); n >= 0 {
			networks[n] = append(networks[n], r.TierRule)
		} else {
			networks = append(networks, []*TierRule{r.TierRule})
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
func (r *TierRule) samePorts(o *TierRule) bool {
	return (o.Ports == nil) == (r.Ports == nil) && slices.Equal(o.Ports, r.Ports)
}

// union returns a rule about the networks of rules that differ in these alone.
func (d *dispatch) union(rules []*TierRule) *TierRule {
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
func (w *walk) item(r *TierRule) *item {
	key := itemKey{w.walkKey, r.Peers, r.Entries, portsKey(r.Ports), r.Action, w.peers[r.Peers].Kind}
	key.bare = w.bare && r.Entries != ""
	i := w.dispatch.items[key]
	if i == nil {
		if r.Peers != "" {
			w.sets[r.Peers] = w.peers[r.Peers]
		}
		if i = w.before.items[key]; i == nil {
			matches, to := w.matches(r), w.pass
			if key.bare {
				matches = untracked(matches)
			}
			switch {
			case r.Action == Pass:
			case r.Action == Accept && r.Entries != "" && !key.bare:
				to = "jump " + w.named
			default:
				to = w.verdicts[r.Action]
			}
			i = newItem(to, matches...)
		}
		w.dispatch.items[key] = i
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
func (w *walk) matches(r *TierRule) (out []string) {
	if r.Entries != "" {
		return entryMatches(r.Entries, r.Ports, w.subjectWord)
	}
	peers := []string{""}
	if r.Peers != "" {
		match := w.peerWord + " @" + peersPrefix + r.Peers + "-%[1]s "
		if w.peers[r.Peers].Kind == policy.PeerPorts {
			match = "meta l4proto { tcp, udp, sctp } %[2]s daddr . meta l4proto . th dport @" + peersPrefix + r.Peers + "-%[1]s "
		}
		peers = each(match)
	}
	for _, to := range peers {
		for _, p := range portLists(r.Ports) {
			out = append(out, p.reached()+to)
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
	return Disjoint(all)
}

// item is what one rule, or one jump, is in nft's words.
type item struct {
	texts []string
	sum   [sha256.Size]byte // of texts
}

// newItem makes an item of the matches of rules with one verdict.
func newItem(verdict string, matches ...string) *item {
	i := &item{texts: make([]string, len(matches))}
	var b []byte
	for n, m := range matches {
		i.texts[n] = m + verdict
		b = append(append(b, i.texts[n]...), '\n')
	}
	i.sum = sha256.Sum256(b)
	return i
}

// chain adds a chain, unless it is there. Its name has a sum of its rules, and so of all that they
// lead to: a chain never changes, and a later agent knows by the name what was in force.
func (d *dispatch) chain(prefix string, items ...*item) (name string) {
	d.sums = d.sums[:0]
	for _, i := range items {
		d.sums = append(d.sums, i.sum[:]...)
	}
	name = prefix + shortSum(d.sums)
	if d.there[name] == nil {
		c := d.before.named[name]
		if c == nil {
			var rules []string
			for _, i := range items {
				rules = append(rules, i.texts...)
			}
			c = nft.NewChain(name, describe(name), nil, rules...)
		}
		d.there[name], d.chains = c, append(d.chains, c)
	}
	return name
}

// sumDigits is how much of a sum names have.
const sumDigits = 16

func shortSum(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])[:sumDigits]
}

// parted returns jumps to chains of items, or the items where they are few. A part ends behind
// an item with a certain sum, so that most of them stay when one item comes, goes or changes.
func (d *dispatch) parted(items []*item) []*item {
	for nested := 0; nested < mostNested && len(items) > mostAtTop; nested++ {
		var jumps, of []*item
		for n, i := range items {
			of = append(of, i)
			if n == len(items)-1 || len(of) > 1 && binary.BigEndian.Uint64(i.sum[:])%oneInParts == 0 || len(of) == mostInPart {
				jumps, of = append(jumps, newItem("jump "+d.chain(partPrefix, of...), "")), nil
			}
		}
		items = jumps
	}
	return items
}

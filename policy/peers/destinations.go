package peers

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"

	"github.com/namegate/namegate/policy"
)

// Destinations are the destinations of one rule. A reader adds them, normalizes them once
// and then asks for specs.
type Destinations struct {
	Anywhere bool // the rule names none
	terms    []term
	nodes    bool                 // a term is of nodes
	cost     int                  // of all terms
	blocks   *netipx.IPSetBuilder // nil without a network, and once they are normalized
	networks *netipx.IPSet        // made of blocks by Normalize: ranges, as an exception makes up to 128 networks
	count    int                  // of networks
}

// AddPods adds the pods of a namespace that a selector selects.
func (d *Destinations) AddPods(namespace string, pods *Selector) {
	d.terms = append(d.terms, newTerm(namespace, nil, pods))
}

// AddPodsOf adds the pods that a selector selects in the namespaces that another does.
func (d *Destinations) AddPodsOf(namespaces, pods *Selector) {
	d.terms = append(d.terms, newTerm("", namespaces, pods))
}

// AddNodes adds the nodes that a selector selects.
func (d *Destinations) AddNodes(nodes *Selector) {
	d.terms = append(d.terms, term{text: "nodes: " + nodes.text, namespace: nodesNamespace, pods: nodes})
	d.nodes = true
}

// Elsewhere tells whether some destinations are no pods: nodes or networks.
func (d *Destinations) Elsewhere() bool { return d.nodes || d.blocks != nil || d.count > 0 }

// AddNetwork adds a masked network without the holes, which may overlap.
func (d *Destinations) AddNetwork(whole netip.Prefix, holes []netip.Prefix) {
	var b netipx.IPSetBuilder
	b.AddPrefix(whole)
	for _, h := range holes {
		b.RemovePrefix(h)
	}
	if d.blocks == nil {
		d.blocks = &b
		return
	}
	d.blocks.AddSet(built(&b))
}

// built returns the set of a builder that was given valid prefixes alone.
func built(b *netipx.IPSetBuilder) *netipx.IPSet {
	set, err := b.IPSet()
	if err != nil {
		panic(err)
	}
	return set
}

// Normalize sorts the destinations and keeps each once, of the networks the first most. It
// returns how many networks there were, and the last that is kept of too many.
func (d *Destinations) Normalize(most int) (made int, last netip.Prefix) {
	slices.SortFunc(d.terms, func(a, b term) int { return strings.Compare(a.text, b.text) })
	d.terms = slices.CompactFunc(d.terms, func(a, b term) bool { return a.text == b.text })
	for i := range d.terms {
		d.cost += d.terms[i].cost()
	}
	if d.blocks == nil {
		return 0, last
	}
	d.networks, d.blocks = built(d.blocks), nil
	buffer := make([]netip.Prefix, 0, 64) // for most ranges
	ranges := d.networks.Ranges()
	for _, r := range ranges {
		buffer = r.AppendPrefixes(buffer[:0])
		made += len(buffer)
	}
	if d.count = made; made <= most {
		return made, last
	}
	var kept netipx.IPSetBuilder
	for left := most; left > 0; ranges = ranges[1:] {
		buffer = ranges[0].AppendPrefixes(buffer[:0])
		buffer = buffer[:min(len(buffer), left)]
		left, last = left-len(buffer), buffer[len(buffer)-1]
		kept.AddRange(netipx.IPRangeFrom(buffer[0].Addr(), netipx.PrefixLastIP(last)))
	}
	d.networks, d.count = built(&kept), most
	return made, last
}

func (d *Destinations) podsText() string {
	texts := make([]string, len(d.terms))
	for i := range d.terms {
		texts[i] = d.terms[i].text
	}
	return strings.Join(texts, "; ")
}

// readableNetworks is from how many networks on they are too long for a key: "::/1" is
// the shortest.
const readableNetworks = maxKey / 4

// networksText returns the networks, or a hash if they are many.
func (d *Destinations) networksText() string {
	if d.count < readableNetworks {
		texts := make([]string, 0, d.count)
		for _, n := range d.networks.Prefixes() {
			texts = append(texts, n.String())
		}
		return strings.Join(texts, ",")
	}
	sum := sha256.New()
	ranges := d.networks.Ranges()
	for _, r := range ranges {
		sum.Write([]byte{byte(r.From().BitLen())}) // else four of IPv4 could read like one of IPv6
		sum.Write(r.From().AsSlice())
		sum.Write(r.To().AsSlice())
	}
	return fmt.Sprintf("%v... sha256:%x", ranges[0], sum.Sum(nil))
}

// ByNumber returns the specs of the destinations for ports that are numbers.
func (d *Destinations) ByNumber() []*Spec {
	var out []*Spec
	if d.Anywhere {
		out = append(out, &Spec{Peer: policy.Peer{Kind: policy.PeerAnywhere}})
	}
	if len(d.terms) > 0 {
		out = append(out, &Spec{Peer: policy.Peer{Kind: policy.PeerPods, Key: bounded(d.podsText())}, terms: d.terms, cost: d.cost})
	}
	if d.count > 0 {
		out = append(out, &Spec{Peer: policy.Peer{Kind: policy.PeerNetworks, Key: bounded(d.networksText())}, networks: d.networks, count: d.count})
	}
	return out
}

// ByName returns the spec of the destinations for ports that have names, which are
// sorted; nil if there are none.
func (d *Destinations) ByName(names []PortName) *Spec {
	var where []string
	switch {
	case len(names) == 0:
		return nil
	case d.Anywhere:
		where = append(where, "anywhere")
	}
	if len(d.terms) > 0 {
		where = append(where, d.podsText())
	}
	if d.count > 0 {
		where = append(where, d.networksText())
	}
	if len(where) == 0 {
		return nil
	}
	texts := make([]string, len(names))
	for i, n := range names {
		texts[i] = n.Name + "/" + n.Protocol.String()
	}
	key := strings.Join(texts, ",") + " of " + strings.Join(where, "; ")
	return &Spec{Peer: policy.Peer{Kind: policy.PeerPorts, Key: bounded(key)}, terms: d.terms, networks: d.networks, count: d.count, cost: d.cost, anywhere: d.Anywhere, names: names}
}

// maxKey bounds a peer's key, in bytes: thousands of networks are one peer.
const maxKey = 256

// bounded returns a text that is too long for a key as its beginning and its SHA-256,
// which no other text has.
func bounded(text string) string {
	if len(text) <= maxKey {
		return text
	}
	sum := sha256.Sum256([]byte(text))
	return text[:maxKey/2] + "... sha256:" + hex.EncodeToString(sum[:])
}

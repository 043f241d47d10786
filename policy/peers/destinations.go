package peers

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/namegate/namegate/policy"
)

// Destinations are those of one rule. A reader adds them, normalizes them once and then
// asks for specs.
type Destinations struct {
	Anywhere bool // the rule names none
	terms    []term
	looks    int    // of all terms
	networks []span // joined by Normalize: exceptions make up to a hundred times as many networks
	count    int    // of networks
}

// AddPods adds the pods of a namespace that a selector selects.
func (d *Destinations) AddPods(namespace string, pods *Selector) {
	d.terms = append(d.terms, newTerm(namespace, nil, pods))
}

// AddPodsOf adds the pods that a selector selects in the namespaces that another does.
func (d *Destinations) AddPodsOf(namespaces, pods *Selector) {
	d.terms = append(d.terms, newTerm("", namespaces, pods))
}

// AddNetwork adds a masked network without the holes, which may overlap.
func (d *Destinations) AddNetwork(whole netip.Prefix, holes []netip.Prefix) {
	spans := make([]span, len(holes))
	for i, h := range holes {
		spans[i] = spanOf(h)
	}
	d.networks = append(d.networks, spanOf(whole).without(spans)...)
}

// Normalize sorts the destinations and keeps each once, of the networks the first most. It
// returns how many networks there were, and the last that is kept of too many.
func (d *Destinations) Normalize(most int) (made int, last netip.Prefix) {
	slices.SortFunc(d.terms, func(a, b term) int { return strings.Compare(a.text, b.text) })
	d.terms = slices.CompactFunc(d.terms, func(a, b term) bool { return a.text == b.text })
	for i := range d.terms {
		d.looks += d.terms[i].looks()
	}
	d.networks = joined(d.networks)
	if d.count = count(d.networks); d.count <= most {
		return d.count, last
	}
	made, d.count, d.networks = d.count, most, first(d.networks, most)
	kept := d.networks[len(d.networks)-1].prefixes(nil)
	return made, kept[len(kept)-1]
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

// networksText returns the networks, or what no others have where they are many.
func (d *Destinations) networksText() string {
	if d.count < readableNetworks {
		texts := make([]string, 0, d.count)
		for _, n := range prefixesOf(d.networks) {
			texts = append(texts, n.String())
		}
		return strings.Join(texts, ",")
	}
	sum := sha256.New()
	for _, s := range d.networks {
		sum.Write([]byte{byte(s.first.BitLen())}) // else four of IPv4 could read like one of IPv6
		sum.Write(s.first.AsSlice())
		sum.Write(s.last.AsSlice())
	}
	return fmt.Sprintf("%v-%v... sha256:%x", d.networks[0].first, d.networks[0].last, sum.Sum(nil))
}

// ByNumber returns the specs of the destinations for ports that are numbers.
func (d *Destinations) ByNumber() []*Spec {
	var out []*Spec
	if d.Anywhere {
		out = append(out, &Spec{Peer: policy.Peer{Kind: policy.PeerAnywhere}})
	}
	if len(d.terms) > 0 {
		out = append(out, &Spec{Peer: policy.Peer{Kind: policy.PeerPods, Key: bounded(d.podsText())}, terms: d.terms, looks: d.looks})
	}
	if len(d.networks) > 0 {
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
	if len(d.networks) > 0 {
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
	return &Spec{Peer: policy.Peer{Kind: policy.PeerPorts, Key: bounded(key)}, terms: d.terms, networks: d.networks, count: d.count, looks: d.looks, anywhere: d.Anywhere, names: names}
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

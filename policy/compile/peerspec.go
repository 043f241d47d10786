package compile

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/namegate/namegate/policy"
)

// peerSpec is what a Peer selects, as the compiler evaluates it. Equal peers have
// equal specs. It is immutable.
type peerSpec struct {
	policy.Peer
	terms    []podTerm  // PeerPods, PeerPorts
	networks []span     // PeerNetworks, PeerPorts: joined
	count    int        // how many networks that makes
	looks    int        // what it costs to ask all terms
	anywhere bool       // PeerPorts of a rule for every destination
	names    []portName // PeerPorts: sorted, each once
}

// podTerm is the pods of some namespaces that a selector selects.
type podTerm struct {
	text      string
	namespace string    // of all its pods, "" where spaces tells them
	spaces    *selector // of the namespaces' labels
	pods      *selector
}

// portName is a port's name with the protocol that it has to have.
type portName struct {
	name     string
	protocol policy.Protocol
}

func (n portName) compare(o portName) int {
	return cmp.Or(strings.Compare(n.name, o.name), cmp.Compare(n.protocol, o.protocol))
}

// destinations are those of one rule.
type destinations struct {
	anywhere bool
	terms    []podTerm
	looks    int    // of all terms
	networks []span // joined: the exceptions of one object make up to a hundred times as many networks
	count    int    // of networks
}

// newPodTerm returns the pods of a namespace, or of those that spaces selects, which
// pods selects.
func newPodTerm(namespace string, spaces, pods *selector) podTerm {
	t := podTerm{namespace: namespace, spaces: spaces, pods: pods}
	switch {
	case spaces == nil:
		t.text = plain(namespace)
	case spaces.everything():
		t.text = "*"
	default:
		t.text = "ns " + spaces.text
	}
	t.text += ": " + pods.text
	return t
}

// plain returns the name of an object, in hexadecimal where it has characters that
// separate parts of a key: no API server lets such a name in.
func plain(name string) string {
	if name != "" && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-.") == "" {
		return name
	}
	return "x'" + hex.EncodeToString([]byte(name)) + "'"
}

// selects tells whether the term holds a pod. A namespace whose labels are not known
// is selected by no question about them.
func (t *podTerm) selects(p *peerPod) bool {
	return t.selectsSpace(p.space) && t.pods.matches(p.labels)
}

func (t *podTerm) selectsSpace(sp *peerSpace) bool {
	if t.spaces == nil {
		return t.namespace == sp.name
	}
	return t.spaces.everything() || sp.known && t.spaces.matches(sp.labels)
}

// looks is what it costs to ask the term for one pod, in units of an ordinary one:
// selectors may have tens of thousands of requirements. Those of namespaces are asked a
// second time, for each namespace.
func (t *podTerm) looks() int {
	asks := len(t.pods.asks)
	if t.spaces != nil {
		asks += 2 * len(t.spaces.asks)
	}
	return 1 + asks/asksPerLook
}

// asksPerLook is how many requirements cost as much as the rest of looking at a pod.
const asksPerLook = 8

// settle sorts the destinations and has each once.
func (d *destinations) settle() {
	slices.SortFunc(d.terms, func(a, b podTerm) int { return strings.Compare(a.text, b.text) })
	d.terms = slices.CompactFunc(d.terms, func(a, b podTerm) bool { return a.text == b.text })
	for i := range d.terms {
		d.looks += d.terms[i].looks()
	}
}

func (d *destinations) podsText() string {
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
func (d *destinations) networksText() string {
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

// byNumber returns the specs of the destinations for ports that are numbers.
func (d *destinations) byNumber() []*peerSpec {
	var out []*peerSpec
	if d.anywhere {
		out = append(out, &peerSpec{Peer: policy.Peer{Kind: policy.PeerAnywhere}})
	}
	if len(d.terms) > 0 {
		out = append(out, &peerSpec{Peer: policy.Peer{Kind: policy.PeerPods, Key: bounded(d.podsText())}, terms: d.terms, looks: d.looks})
	}
	if len(d.networks) > 0 {
		out = append(out, &peerSpec{Peer: policy.Peer{Kind: policy.PeerNetworks, Key: bounded(d.networksText())}, networks: d.networks, count: d.count})
	}
	return out
}

// byName returns the spec of the destinations for ports that have names, nil if
// there are none.
func (d *destinations) byName(names []portName) *peerSpec {
	var where []string
	switch {
	case len(names) == 0:
		return nil
	case d.anywhere:
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
		texts[i] = n.name + "/" + n.protocol.String()
	}
	key := strings.Join(texts, ",") + " of " + strings.Join(where, "; ")
	return &peerSpec{Peer: policy.Peer{Kind: policy.PeerPorts, Key: bounded(key)}, terms: d.terms, networks: d.networks, count: d.count, looks: d.looks, anywhere: d.anywhere, names: names}
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

// covers tells whether the spec's destinations have the pod's address a.
func (s *peerSpec) covers(p *peerPod, a netip.Addr) bool {
	if s.anywhere {
		return true
	}
	for i := range s.terms {
		if s.terms[i].selects(p) {
			return true
		}
	}
	return len(s.networks) > 0 && inSpans(s.networks, a)
}

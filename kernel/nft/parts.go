package nft

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/bits"
	"strings"
)

// target is the verdict of a rule, and the same with the content of the chain that it leads
// to in place of its name.
type target struct{ verdict, content string }

// outside is a verdict that leads to no chain of a dispatch.
func outside(verdict string) target { return target{verdict, verdict} }

// by leads to the chain: word is goto or jump.
func (c *tierChain) by(word string) target { return target{word + c.name, word + c.content} }

// item is what one rule, or one jump, is in nft's words.
type item struct {
	texts []string
	sum   [16]byte // of texts, and of all that they lead to
}

// newItem makes an item of the matches of rules with one verdict.
func newItem(to target, matches ...string) *item {
	i := &item{texts: make([]string, len(matches))}
	var b []byte
	for n, m := range matches {
		i.texts[n], b = m+to.verdict, append(append(b, m...), '\n')
	}
	sum := sha256.Sum256(append(b, to.content...))
	copy(i.sum[:], sum[:])
	return i
}

// placed is an item at a place in a list, which keeps its key when the item changes.
type placed struct {
	*item
	key uint64
}

// at returns an item at the place with a key, 0 for one that is known by its content alone.
func (i *item) at(key uint64) placed {
	if key == 0 {
		key = binary.BigEndian.Uint64(i.sum[:])
	}
	return placed{i, key}
}

// chain adds a chain. It is named by its place, if key is not 0 and no other chain has that
// name: where rules change, what leads to the chain need not change. Else parts are named by
// their text, and chains that subjects are led to by all their content.
func (d *dispatch) chain(prefix string, key uint64, items ...*item) *tierChain {
	d.sums = append(d.sums[:0], prefix...)
	for _, i := range items {
		d.sums = append(d.sums, i.sum[:]...)
	}
	if c := d.there[string(d.sums)]; c != nil {
		return c
	}
	sum := sha256.Sum256(d.sums)
	c := &tierChain{content: hex.EncodeToString(sum[:])}
	for _, i := range items {
		c.rules = append(c.rules, i.texts...)
	}
	c.name = fmt.Sprintf("%splace-%016x", prefix, key)
	switch {
	case key != 0 && !d.names[c.name]:
	case prefix == partPrefix || prefix == restPrefix:
		c.name = prefix + shortSum([]byte(strings.Join(c.rules, "\n")))
	default:
		c.name = prefix + c.content[:sumDigits]
	}
	c.jump = newItem(c.by("jump "), "")
	d.there[string(d.sums)] = c
	if !d.names[c.name] { // other items may have the same text
		d.names[c.name] = true
		d.chains = append(d.chains, c)
	}
	return c
}

// front adds the chain that subjects with rules are led to, and an empty chain that has all its
// content in its name: a later agent knows by it what was in force.
func (d *dispatch) front(t *Tiers, items ...*item) string {
	c := d.chain(adminPrefix, t.place(), items...)
	if label := c.name + "-" + c.content[:sumDigits]; !d.names[label] {
		d.names[label] = true
		d.chains = append(d.chains, &tierChain{name: label})
	}
	return c.name
}

// place returns the key of a list of rules, 0 where a rule has none: it stays when rules
// change, and not when they come or go.
func (t *Tiers) place() uint64 {
	key := uint64(1)
	for _, flag := range []bool{t.Namespace, t.DNS} {
		key *= 2
		if flag {
			key++
		}
	}
	for _, rules := range [][]*TierRule{t.Admin, t.NamespaceDeny, t.Baseline} {
		key = mixed(key, uint64(len(rules)))
		for _, r := range rules {
			if r.Key == 0 {
				return 0
			}
			key = mixed(key, r.Key)
		}
	}
	return key
}

// sumDigits is how much of a sum names have.
const sumDigits = 16

func shortSum(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])[:sumDigits]
}

// parted returns jumps to chains of items, or the items where they are few. A part ends behind
// an item with a certain key, so that most of them stay when one item comes or goes.
func (w *walk) parted(items []placed, way uint64) []placed {
	var of []*item
	for nested := 0; nested < mostNested && len(items) > mostAtTop; nested++ {
		var jumps []placed
		key := way
		for i, p := range items {
			of, key = append(of, p.item), mixed(key, p.key)
			if i == len(items)-1 || len(of) > 1 && p.key%oneInParts == 0 || len(of) == mostInPart {
				jumps = append(jumps, w.chain(partPrefix, key, of...).jump.at(key))
				of, key = of[:0], way
			}
		}
		items = jumps
	}
	return items
}

// mixed returns a key for keys in order.
func mixed(a, b uint64) uint64 {
	a = (bits.RotateLeft64(a, 29) ^ b) * 0x9e3779b97f4a7c15
	return a ^ a>>32
}

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

// chain adds a chain. Those that subjects are led to are named by all their content. Parts are
// named by their place, if key is not 0 and no other part has that name, else by their text:
// a part whose rules change need not have another name, which the rules of others have.
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
	c.name = prefix + c.content[:sumDigits]
	if prefix == partPrefix || prefix == restPrefix {
		if c.name = fmt.Sprintf("%splace-%016x", prefix, key); key == 0 || d.names[c.name] {
			c.name = prefix + shortSum([]byte(strings.Join(c.rules, "\n")))
		}
	}
	c.jump = newItem(c.by("jump "), "")
	d.there[string(d.sums)] = c
	if !d.names[c.name] { // other items may have the same text
		d.names[c.name] = true
		d.chains = append(d.chains, c)
	}
	return c
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

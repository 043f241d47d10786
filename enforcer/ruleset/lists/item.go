package lists

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"

	"github.com/namegate/namegate/kernel/nft"
)

// Item is what one rule, or one jump, is in nft's words.
type Item struct {
	texts []string
	sum   [sha256.Size]byte // of texts
}

// NewItem makes an item of the matches of rules with one verdict.
func NewItem(verdict string, matches ...string) *Item {
	i := &Item{texts: make([]string, len(matches))}
	var b []byte
	for n, m := range matches {
		i.texts[n] = m + verdict
		b = append(append(b, i.texts[n]...), '\n')
	}
	i.sum = sha256.Sum256(b)
	return i
}

// Chain adds a chain, unless it is there. Its name has a sum of its rules, and so of all that they
// lead to: a chain never changes, and a later agent knows by the name what was in force.
func (d *Builder) Chain(prefix string, items ...*Item) (name string) {
	d.sums = d.sums[:0]
	for _, i := range items {
		d.sums = append(d.sums, i.sum[:]...)
	}
	name = prefix + shortSum(d.sums)
	if d.there[name] == nil {
		c := d.before.there[name]
		if c == nil {
			var rules []string
			for _, i := range items {
				rules = append(rules, i.texts...)
			}
			c = nft.NewChain(name, d.describe(name), nil, rules...)
		}
		d.there[name], d.Chains = c, append(d.Chains, c)
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
func (d *Builder) parted(items []*Item) []*Item {
	for nested := 0; nested < mostNested && len(items) > mostAtTop; nested++ {
		var jumps, of []*Item
		for n, i := range items {
			of = append(of, i)
			if n == len(items)-1 || len(of) > 1 && binary.BigEndian.Uint64(i.sum[:])%oneInParts == 0 || len(of) == mostInPart {
				jumps, of = append(jumps, NewItem("jump "+d.Chain(PartPrefix, of...), "")), nil
			}
		}
		items = jumps
	}
	return items
}

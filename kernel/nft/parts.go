package nft

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

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
	if !d.there[name] {
		c := &tierChain{name: name}
		for _, i := range items {
			c.rules = append(c.rules, i.texts...)
		}
		d.there[name], d.chains = true, append(d.chains, c)
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

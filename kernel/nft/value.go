package nft

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/namegate/namegate/kernel/nft/timed"
	"github.com/namegate/namegate/kernel/nft/wire"
	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"
)

// ID is a table by its family and name.
type ID struct{ Family, Name string }

// String names the table.
func (id ID) String() string { return id.Family + " " + id.Name }

// Table is the wanted content of a table.
type Table struct {
	Layout *Layout
	// Chains and Sets are there beside those of the layout. A rule leads to earlier chains alone, or to those
	// of the layout.
	Chains   []*Chain
	Sets     []*Set
	Elements Elements
}

// Layout is what a table has as long as an agent runs. It is immutable.
type Layout struct {
	ID
	Chains   []*Chain
	Sets     []*Set
	Counters []string
	// Passing are the beginnings of the names of Table.Chains and Table.Sets.
	Passing []string
	// Guard: the table denies what rules of the others did not allow. It loses elements before the others change,
	// gets them behind them, and is made anew alone.
	Guard bool
	sign  string
}

// NewLayout signs a layout: two with one sign are equal.
func NewLayout(l Layout) *Layout {
	tx := knftables.NewFake(knftables.Family(l.Family), l.Name).NewTransaction()
	(&Table{Layout: &l}).layOut(tx)
	sum := sha256.Sum256([]byte(tx.String()))
	l.sign = signPrefix + hex.EncodeToString(sum[:6])
	return &l
}

// passes tells whether an object, by its name, is none of the layout.
func (l *Layout) passes(name string) bool {
	return slices.ContainsFunc(l.Passing, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// Chain is a chain with its rules. It is immutable. Make it with NewChain.
type Chain struct {
	Name, Comment string
	Hook          *Hook // nil for a regular chain
	Rules         []string
	digests       func() []string
}

// Hook is where the kernel asks a chain.
type Hook struct{ Type, Hook, Priority string }

// NewChain returns a chain.
func NewChain(name, comment string, hook *Hook, rules ...string) *Chain {
	return &Chain{name, comment, hook, rules, sync.OnceValue(func() []string {
		out := make([]string, len(rules))
		for i, r := range rules {
			out[i] = ruleDigest(r)
		}
		return out
	})}
}

// hook is as contents has it.
func (c *Chain) hook() string {
	if c.Hook == nil {
		return ""
	}
	return c.Hook.Type + " " + c.Hook.Hook + " " + c.Hook.Priority
}

// writeTo adds the chain, or replaces its rules. Each rule has its digest as a comment, for Verify.
func (c *Chain) writeTo(tx transaction) {
	chain := &knftables.Chain{Name: c.Name, Comment: comment(c.Comment)}
	if c.Hook != nil {
		chain.Type = knftables.PtrTo(knftables.BaseChainType(c.Hook.Type))
		chain.Hook = knftables.PtrTo(knftables.BaseChainHook(c.Hook.Hook))
		chain.Priority = knftables.PtrTo(knftables.BaseChainPriority(c.Hook.Priority))
	}
	tx.Add(chain)
	tx.Flush(chain)
	for i, digest := range c.digests() {
		tx.Add(&knftables.Rule{Chain: c.Name, Rule: c.Rules[i], Comment: &digest})
	}
}

// Set is a set or a map. It is immutable.
type Set struct {
	Name, Comment string
	// Key is the type of the elements in words of nft, or with TypeOf an expression of that type, and Value the
	// type of a map's values.
	Key, Value string
	TypeOf     bool
	Fill       Fill
	Renewed    string        // the key of the only element
	Timeout    time.Duration // of elements, 0: none, or each its own
	Size       uint64
}

// Fill says what the elements of a set are.
type Fill uint8

// The kinds of elements.
const (
	Wanted  Fill = iota // those of Table.Elements
	Ranges              // the same, which are ranges of addresses
	Renewed             // that of Set.Renewed, which Renew adds, and Rewrite if it is one of Table.Elements; it ends by itself
	Kernel              // the kernel adds them for a packet
	Timed               // the Store adds them, and they end by themselves
	Keys                // the Store adds them
)

// volatile tells whether elements come and go by themselves.
func (f Fill) volatile() bool { return f > Renewed }

// stays tells whether the set outlives its layout with its elements.
func (s *Set) stays() bool { return s.Fill >= Timed || s.Fill == Renewed || s.Value != "" }

// object is the set as it is added.
func (s *Set) object() knftables.Object {
	if s.Value != "" {
		return &knftables.Map{Name: s.Name, Type: s.Key + " : " + s.Value, Comment: comment(s.Comment)}
	}
	out := &knftables.Set{Name: s.Name, Comment: comment(s.Comment)}
	if s.TypeOf {
		out.TypeOf = s.Key
	} else {
		out.Type = s.Key
	}
	switch s.Fill {
	case Ranges:
		out.Flags = []knftables.SetFlag{knftables.IntervalFlag}
	case Kernel:
		out.Flags = []knftables.SetFlag{knftables.DynamicFlag, knftables.TimeoutFlag}
	case Timed, Renewed:
		out.Flags = []knftables.SetFlag{knftables.TimeoutFlag}
	}
	if s.Timeout > 0 {
		out.Timeout = &s.Timeout
	}
	if s.Size > 0 {
		out.Size = &s.Size
	}
	return out
}

// reference is the set as it is flushed or deleted.
func reference(name string, isMap bool) knftables.Object {
	if isMap {
		return &knftables.Map{Name: name}
	}
	return &knftables.Set{Name: name}
}

// types has the words of the key, and after them of a map's value.
func (s *Set) types() []string {
	if s.Value == "" {
		return wire.Parts(s.Key)
	}
	return append(wire.Parts(s.Key), wire.Parts(s.Value)...)
}

// setForm is what a set or map holds, in the kernel's and nft's numbers.
type setForm struct{ keyType, keyLen, flags, valueType, valueLen uint32 }

// A verdict in the kernel's numbers (NFT_DATA_VERDICT, struct nft_verdict).
const verdictType, verdictLen = 0xffffff00, 16

// form is the form of a set that stays.
func (s *Set) form() (f setForm) {
	f.keyType, f.keyLen = wire.KeyForm(wire.Parts(s.Key))
	switch s.Value {
	case "":
		if s.Fill != Keys {
			f.flags = unix.NFT_SET_TIMEOUT
		}
		return f
	case "verdict":
		f.valueType, f.valueLen = verdictType, verdictLen
	default:
		f.valueType, f.valueLen = wire.KeyForm(wire.Parts(s.Value))
	}
	f.flags = unix.NFT_SET_MAP
	return f
}

// Elements are elements of sets and maps, by the names of these, in nft's words: one text of a key and, in a map, its
// value. A map element whose value changes is another element. Those of a Table are sorted and immutable.
type Elements map[string][]string

// Between words of a key, or of a value, and between the two.
const nextWord, toValue = " . ", " : "

// Add adds an element of a set.
func (m Elements) Add(set string, key ...string) {
	m[set] = append(m[set], strings.Join(key, nextWord))
}

// AddMap adds an element of a map.
func (m Elements) AddMap(name, key string, value ...string) {
	m.Add(name, key+toValue+strings.Join(value, nextWord))
}

// Sorted sorts the elements, and leaves each once.
func (m Elements) Sorted() Elements {
	for set, all := range m {
		slices.Sort(all)
		m[set] = slices.Clip(slices.Compact(all))
	}
	return m
}

// element is an element of the set or map.
func (s *Set) element(text string) *knftables.Element {
	key, value, valued := strings.Cut(text, toValue)
	e := &knftables.Element{Key: strings.Split(key, nextWord)}
	if s.Value == "" {
		e.Set = s.Name
	} else if e.Map = s.Name; valued {
		e.Value = strings.Split(value, nextWord)
	}
	return e
}

// layOut adds the layout and the other objects.
func (w *Table) layOut(tx transaction) {
	tx.Add(&knftables.Table{})
	for _, name := range w.Layout.Counters {
		tx.Add(&knftables.Counter{Name: name})
	}
	for s := range w.sets() {
		tx.Add(s.object())
	}
	for c := range w.chains() {
		c.writeTo(tx)
	}
}

// sets yields all sets and maps, chains all chains.
func (w *Table) sets() func(func(*Set) bool) {
	return slices.Values(slices.Concat(w.Layout.Sets, w.Sets))
}

func (w *Table) chains() func(func(*Chain) bool) {
	return slices.Values(slices.Concat(w.Layout.Chains, w.Chains))
}

// entries are the names of the sets of entries that have keys, as the Store has them.
func (w *Table) entries() (out []string) {
	for _, s := range w.Sets {
		name, is := strings.CutPrefix(s.Name, timed.EntriesPrefix)
		if name, ofFamily := strings.CutSuffix(name, "-"+timed.Families[0]); is && ofFamily {
			out = append(out, name)
		}
	}
	return out
}

// contents is the wanted content in the form in which it is compared.
func (w *Table) contents() *contents {
	out := newContents()
	for c := range w.chains() {
		out.rules[c.Name], out.hooks[c.Name] = c.digests(), c.hook()
	}
	if !w.Layout.Guard {
		out.rules[w.Layout.sign], out.hooks[w.Layout.sign] = []string{}, ""
	}
	for s := range w.sets() {
		out.sets[s.Name], out.elements[s.Name], out.maps[s.Name] = s, nil, s.Value != ""
		if s.stays() {
			out.forms[s.Name] = s.form()
		}
		switch {
		case s.Fill == Ranges:
			out.elements[s.Name] = merged(w.Elements[s.Name])
		case s.Fill < Renewed:
			out.elements[s.Name] = w.Elements[s.Name]
		}
	}
	return out
}

// comment is a text, nil without one.
func comment(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

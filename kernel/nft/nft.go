package nft

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"sigs.k8s.io/knftables"
)

// TableName is the name of both tables.
const TableName = "namegate"

// LogGroup is the NFLOG group that packets are sent to before they are denied.
const LogGroup = 64

// dnsPortNumber is the port that is intercepted and served (RFC 1035 §4.2), dnsPort the
// same in words of nft.
const (
	dnsPortNumber = 53
	dnsPort       = "53"
)

// Tables is the pair of tables in one network namespace.
type Tables struct {
	inet, bridge knftables.Interface
	bits         Bits
	// applied has the elements of the last write. With partial the kernel may hold others, and the
	// next write makes all of them anew.
	applied     elements
	partial     bool
	generations generationTracker
	// list prints a table of the host. On fakes it is nil.
	list      func(context.Context, Table) (string, error)
	reader    reader
	skeletons [2]func() (*skeleton, error)
	// renew renews the dead-man switch.
	renew func(context.Context) error
	// replaces: the kernel moves no element's deadline in place. moves: it was seen to do so.
	replaces, moves atomic.Bool
	// otherLayout: the tables in the kernel have the layout of another version of the
	// agent. They stay in force until the first state is written.
	otherLayout bool
	laidOut     bool
	// tiers is what the state that was written last added to the layout of the inet table,
	// ofTiers the skeleton with it.
	tiers   tierObjects
	ofTiers *skeleton
	entries entryStore
	named   named
}

// Open finds the nft program. The error says which part is missing.
func Open(bits Bits) (*Tables, error) {
	inet, err := knftables.New(knftables.InetFamily, TableName, knftables.NoObjectCommentEmulation)
	if err != nil {
		return nil, fmt.Errorf("nftables is not available (install the package nftables): %w", err)
	}
	bridge, err := knftables.New(knftables.BridgeFamily, TableName, knftables.NoObjectCommentEmulation)
	if err != nil {
		return nil, fmt.Errorf("nftables for bridges is not available: %w", err)
	}
	t := New(inet, bridge, bits)
	t.list, t.reader, t.renew, t.entries, t.generations.generation = listTable, kernelReader{}, t.renewInKernel, kernelEntries{}, generation
	return t, nil
}

// New returns the tables on given interfaces, which may be knftables' fakes.
func New(inet, bridge knftables.Interface, bits Bits) *Tables {
	t := &Tables{inet: inet, bridge: bridge, bits: bits, generations: newGenerationTracker(),
		reader: interfaceReader{knftables.InetFamily: inet, knftables.BridgeFamily: bridge}}
	t.renew = t.renewByInterface
	t.FakeClock(time.Now)
	for i := range t.skeletons {
		t.skeletons[i] = sync.OnceValues(func() (*skeleton, error) { return t.skeletonOf(i, tierObjects{}) })
	}
	return t
}

// Setup creates the tables, or replaces the chains and rules of tables that are
// there, in one transaction each; elements of sets stay. Tables of another layout stay
// as they are until Apply or Rewrite, which replaces them with all they hold. It must
// come before every other method.
func (t *Tables) Setup(ctx context.Context) error {
	t.otherLayout = false
	found := elements{}
	for i := range t.both() {
		s, err := t.skeletons[i]()
		if err != nil {
			return err
		}
		is, err := t.contents(ctx, s)
		if err != nil {
			return err
		}
		t.otherLayout = t.otherLayout || t.isOtherLayout(i, is)
		for set, all := range is.elements {
			if recovered(set) {
				maps.Copy(found, all)
			}
		}
	}
	if !t.otherLayout {
		if err := t.layOut(ctx, nil); err != nil {
			return err
		}
	}
	t.applied, t.partial = found, true
	return nil
}

// recovered tells whether the elements of a set or map are read back from an earlier agent:
// homes, the addresses whose replies are given back, and the tiers of subjects.
func recovered(name string) bool {
	for _, f := range families {
		if name == "home"+f.suffix || name == "giveback"+f.suffix || name == tiersMap+f.suffix {
			return true
		}
	}
	return false
}

// Rewrite makes both tables anew, chains, rules and elements, in one transaction each, so
// that nothing is missing for a moment.
func (t *Tables) Rewrite(ctx context.Context, s State) error {
	tiers := s.tierObjects(t.tiers)
	want := s.elements(tiers)
	t.setTiers(tiers)
	if err := t.layOut(ctx, want); err != nil {
		// Another program may have left a set of another type under a name of ours.
		t.otherLayout = true
		return err
	}
	t.applied, t.partial = want, false
	t.named.forget()
	_, err := t.checkNamed(ctx, tiers.entries)
	return err
}

// LaidOut tells whether this layout has been in force since Setup: before, the chain judge
// in the kernel may be another version's, which admits no candidate.
func (t *Tables) LaidOut() bool { return t.laidOut }

// layOut writes chains and rules, and elements if there are any to write.
func (t *Tables) layOut(ctx context.Context, want elements) error {
	var carried []EntryOp
	for i, table := range t.both() {
		tx := table.NewTransaction()
		restore := func() {}
		if t.otherLayout {
			var err error
			if restore, err = t.remove(ctx, i, tx); err != nil {
				return err
			}
		}
		t.layout(i, tx, t.tiers)
		restore()
		if want != nil {
			if err := t.refill(ctx, i, tx, want); err != nil {
				return err
			}
		}
		err := t.generations.own(func() (err error) {
			if t.otherLayout && table == t.inet {
				if carried, err = t.carry(ctx, tx); err != nil {
					return err
				}
			}
			return table.Run(ctx, tx)
		})
		if err != nil {
			return fmt.Errorf("write nft table %s %s: %w", tableFamilies[i], TableName, err)
		}
	}
	t.ApplyEntries(carried)
	t.otherLayout, t.laidOut = false, true
	return nil
}

// run makes one change.
func (t *Tables) run(ctx context.Context, table knftables.Interface, tx *knftables.Transaction) error {
	return t.generations.own(func() error { return table.Run(ctx, tx) })
}

// tableFamilies are the families of our tables, in the order of both.
var tableFamilies = []knftables.Family{knftables.InetFamily, knftables.BridgeFamily}

func (t *Tables) layout(i int, tx *knftables.Transaction, tiers tierObjects) {
	if tableFamilies[i] == knftables.InetFamily {
		inetLayout(tx, t.bits)
		tiers.layOut(layout{tx})
	} else {
		bridgeLayout(tx)
	}
	tx.Add(&knftables.Chain{Name: t.sign(i)})
}

// refill empties every set and map of a table but the dead-man switch, fills them with
// what is wanted, and removes what states of before added to the layout.
func (t *Tables) refill(ctx context.Context, i int, tx *knftables.Transaction, want elements) error {
	s, err := t.skeleton(i, t.tiers)
	if err != nil {
		return err
	}
	for name := range s.elements {
		switch {
		case volatile(name):
		case s.maps[name]:
			tx.Flush(&knftables.Map{Name: name})
		default:
			tx.Flush(&knftables.Set{Name: name})
		}
	}
	for _, e := range want {
		if e.Family == tableFamilies[i] {
			tx.Add(e)
		}
	}
	if t.otherLayout {
		return nil // the table is made anew
	}
	is, err := t.reader.objects(ctx, tableFamilies[i])
	if err != nil {
		return fmt.Errorf("read nft table %s %s: %w", tableFamilies[i], TableName, err)
	}
	stale := func(names iter.Seq[string], wanted func(string) bool) []string {
		return slices.DeleteFunc(slices.Sorted(names), func(name string) bool { return !ofTiers(name) || wanted(name) })
	}
	removeObjects(tx, stale(maps.Keys(is.rules), func(name string) bool { return s.rules[name] != nil }),
		stale(maps.Keys(is.elements), func(name string) bool { return s.types[name] != nil }))
	return nil
}

func (t *Tables) both() []knftables.Interface { return []knftables.Interface{t.inet, t.bridge} }

// Apply makes the sets hold the state, as a delta to their last content, in one
// transaction for each table.
func (t *Tables) Apply(ctx context.Context, s State) error {
	if t.otherLayout || t.partial {
		return t.Rewrite(ctx, s)
	}
	tiers := s.tierObjects(t.tiers)
	want := s.elements(tiers)
	for i, table := range t.both() {
		family := tableFamilies[i]
		tx := table.NewTransaction()
		if family == knftables.InetFamily {
			tiers.without(t.tiers).layOut(layout{tx})
		}
		for key, e := range t.applied {
			if _, keep := want[key]; !keep && e.Family == family {
				tx.Delete(e)
			}
		}
		for key, e := range want {
			if _, there := t.applied[key]; !there && e.Family == family {
				tx.Add(e)
			}
		}
		if family == knftables.InetFamily {
			t.tiers.without(tiers).remove(tx)
		}
		if tx.NumOperations() == 0 {
			continue
		}
		if err := t.run(ctx, table, tx); err != nil {
			t.partial = true // one table may have changed: write both anew next time
			return fmt.Errorf("change sets of nft table %s %s: %w", family, TableName, err)
		}
	}
	t.applied = want
	t.setTiers(tiers)
	return nil
}

// Homes returns the homes that the sets hold: of the IP layer and of bridge ports.
func (t *Tables) Homes() (homes, ports []Home) {
	for _, e := range t.applied {
		if (e.Set != "home4" && e.Set != "home6") || len(e.Key) != 2 {
			continue
		}
		addr, err := netip.ParseAddr(e.Key[1])
		if err != nil {
			continue
		}
		h := Home{Iface: strings.Trim(e.Key[0], `"`), Addr: addr}
		if e.Family == knftables.BridgeFamily {
			ports = append(ports, h)
		} else {
			homes = append(homes, h)
		}
	}
	return homes, ports
}

// GivenBack returns the serving addresses whose replies are given back, with what
// pods dialled, as the sets hold them.
func (t *Tables) GivenBack() map[netip.Addr]netip.Addr {
	out := map[netip.Addr]netip.Addr{}
	for _, e := range t.applied {
		if strings.HasPrefix(e.Map, "giveback") {
			pair(out, e)
		}
	}
	return out
}

// Serving returns the addresses to which the kernel redirects queries now, by the address
// that pods dial, also those that another agent wrote.
func (t *Tables) Serving(ctx context.Context) (map[netip.Addr]netip.Addr, error) {
	out := map[netip.Addr]netip.Addr{}
	all, err := t.elementsOfFamilies(ctx, "intercept")
	for _, e := range all {
		pair(out, e)
	}
	return out, err
}

// pair reads an element of a map from address to address.
func pair(into map[netip.Addr]netip.Addr, e *knftables.Element) {
	key, err := netip.ParseAddr(e.Key[0])
	if err != nil || len(e.Value) != 1 {
		return
	}
	if value, err := netip.ParseAddr(e.Value[0]); err == nil {
		into[key] = value
	}
}

// Probed returns the selected pods whose self-test query came to interception in
// the last three seconds.
func (t *Tables) Probed(ctx context.Context) ([]netip.Addr, error) {
	return t.addrs(ctx, probedSet)
}

// addrs returns the addresses that a set of each family holds.
func (t *Tables) addrs(ctx context.Context, set string) ([]netip.Addr, error) {
	var out []netip.Addr
	all, err := t.elementsOfFamilies(ctx, set)
	for _, e := range all {
		if a, err := netip.ParseAddr(e.Key[0]); err == nil {
			out = append(out, a)
		}
	}
	return out, err
}

// elementsOfFamilies returns the elements of the inet table's set or map of each family.
func (t *Tables) elementsOfFamilies(ctx context.Context, set string) ([]*knftables.Element, error) {
	s, err := t.skeletons[0]()
	if err != nil {
		return nil, err
	}
	var out []*knftables.Element
	for _, f := range families {
		found, err := t.elements(ctx, s, set+f.suffix)
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	return out, nil
}

// Remove deletes both tables. Tables that are not there are no error.
func (t *Tables) Remove(ctx context.Context) error {
	for _, table := range t.both() {
		tx := table.NewTransaction()
		// Add first: deleting a table that is not there would be an error.
		tx.Add(&knftables.Table{})
		tx.Delete(&knftables.Table{})
		if err := t.run(ctx, table, tx); err != nil {
			return fmt.Errorf("remove nft table %s: %w", TableName, err)
		}
	}
	t.applied, t.partial = nil, true
	t.setTiers(tierObjects{})
	return nil
}

package nft

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"

	"github.com/namegate/namegate/kernel/nfattr"
	"github.com/namegate/namegate/kernel/nft/generation"
	"github.com/namegate/namegate/kernel/nft/timed"
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
	*timed.Store // of the entries
	inet, bridge knftables.Interface
	bits         Bits
	// applied has the elements of the last write. With partial the kernel may hold others, and the
	// next write makes all of them anew.
	applied     elements
	partial     bool
	generations *generation.Tracker
	reader      reader
	skeletons   [2]atomic.Pointer[func() (*skeleton, error)]
	// renew renews the dead-man switch.
	renew func(context.Context) error
	// replaces is for how many heartbeats the kernel is taken to move no element's deadline in place. moves: it
	// was seen to do so.
	replaces atomic.Int32
	moves    atomic.Bool
	// otherLayout: the tables in the kernel have the layout of another version of the
	// agent. They stay in force until the first state is written.
	otherLayout bool
	laidOut     bool
	// resumes: Setup found the layout in force, and the first state is a delta to the tables.
	resumes bool
	// namespace: see DecideNamespace. candidates: see AdmitCandidates.
	namespace, candidates bool
	net                   net
	// tiers is what the state that was written last added to the layout of the inet table,
	// ofTiers the skeleton with it.
	tiers   tierObjects
	ofTiers *skeleton
	// written is the state that was written last, without its rules, nil if the tables may hold another state's objects.
	written *State
	// flowtables are those of FakeFlowtables.
	flowtables []Flowtable
	direct     bool // the tables are in the kernel: changes are written by netlink
	kernel     kernel
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
	net, err := knftables.New(knftables.InetFamily, NetTableName, knftables.NoObjectCommentEmulation)
	if err != nil {
		return nil, fmt.Errorf("nftables is not available (install the package nftables): %w", err)
	}
	t := New(program{inet}, program{bridge}, bits)
	t.UseNet(program{net})
	t.direct, t.kernel = true, kernel{&nfattr.Sockets{}}
	t.reader, t.renew = kernelReader{t.kernel}, t.renewInKernel
	t.generations = generation.New(t.kernel.generation)
	t.openStore(t.kernel.sockets)
	return t, nil
}

// Close closes the sockets that are kept. The methods go on to work.
func (t *Tables) Close() {
	if t.direct {
		t.kernel.sockets.Close()
	}
}

// New returns the tables on given interfaces, which may be knftables' fakes.
func New(inet, bridge knftables.Interface, bits Bits) *Tables {
	t := &Tables{inet: inet, bridge: bridge, bits: bits, generations: generation.New(nil),
		reader: interfaceReader{{knftables.InetFamily, TableName}: inet, {knftables.BridgeFamily, TableName}: bridge}}
	t.renew = t.renewByInterface
	t.openStore(nil)
	t.forgetSkeletons()
	return t
}

// openStore sets the Store, in the kernel if there are sockets that lead to it.
func (t *Tables) openStore(sockets *nfattr.Sockets) {
	t.Store = timed.New(timed.Options{Table: t.inet, Name: TableName, Sockets: sockets, Generations: t.generations,
		Moves: func() bool { return t.moves.Load() && t.replaces.Load() == 0 }})
}

// forgetSkeletons has the skeletons of the layout without a state made when they are needed.
func (t *Tables) forgetSkeletons() {
	t.ofTiers = nil
	for i := range t.skeletons {
		f := sync.OnceValues(func() (*skeleton, error) { return t.skeletonOf(i, tierObjects{}) })
		t.skeletons[i].Store(&f)
	}
}

// plainSkeleton is the layout of a table without a state.
func (t *Tables) plainSkeleton(i int) (*skeleton, error) { return (*t.skeletons[i].Load())() }

// Setup creates the tables, or replaces the chains and rules of tables that are
// there, in one transaction each, unless all are as wanted; elements of sets stay. Tables of another layout stay
// as they are until Apply or Rewrite, which replaces them with all they hold. It must
// come before every other method.
func (t *Tables) Setup(ctx context.Context) error {
	t.otherLayout = false
	t.ProbeUses()
	same := true
	for i := range t.both() {
		s, err := t.plainSkeleton(i)
		if err != nil {
			return err
		}
		is, err := t.objects(ctx, s.family, s.table)
		if err != nil {
			return err
		}
		t.otherLayout = t.otherLayout || t.isOtherLayout(i, is)
		same = same && s.laidOut(is, false)
	}
	switch {
	case t.otherLayout:
	case same:
		t.laidOut, t.resumes = true, true
	default:
		if err := t.layOut(ctx, nil); err != nil {
			return err
		}
	}
	t.applied, t.partial = nil, true
	return nil
}

// Rewrite makes both tables anew, chains, rules and elements, in one transaction each, so
// that nothing is missing for a moment.
func (t *Tables) Rewrite(ctx context.Context, s State) error {
	t.written = nil
	tiers := s.tierObjects(t.tiers)
	want := s.elements(tiers)
	t.setTiers(tiers)
	if err := t.layOut(ctx, want); err != nil {
		// Another program may have left a set of another type under a name of ours.
		t.otherLayout = true
		return err
	}
	t.applied, t.partial = want, false
	if err := t.finishNet(ctx, s); err != nil {
		return err
	}
	t.CompareKeys()
	_, err := t.CheckKeys(tiers.entries)
	return err
}

// layOut writes chains and rules, and elements if there are any to write, which replace all that
// the tables hold.
func (t *Tables) layOut(ctx context.Context, want elements) error {
	for i := range t.both() {
		err := t.layOutTable(ctx, i, want, false)
		if t.otherLayout && isRefused(err) {
			// The table may hold another program's objects.
			err = t.layOutTable(ctx, i, want, true)
		}
		if err != nil {
			return fmt.Errorf("write nft table %s %s: %w", tableFamilies[i], TableName, err)
		}
	}
	t.otherLayout, t.laidOut = false, true
	if want == nil {
		return nil
	}
	return t.removeLeft(ctx)
}

// layOutTable writes one table in one transaction. A table of another layout is replaced in place
// or, with whole, made anew.
func (t *Tables) layOutTable(ctx context.Context, i int, want elements, whole bool) (err error) {
	table, restore := t.both()[i], func() {}
	tx := table.NewTransaction()
	if t.otherLayout {
		if restore, err = t.replace(ctx, i, tx, whole); err != nil {
			return err
		}
	}
	t.layout(i, tx, t.tiers)
	if !t.otherLayout {
		commented{tx}.Add(&knftables.Chain{Name: t.sign(i)})
	}
	restore()
	if want != nil {
		if err := t.refill(i, tx, want); err != nil {
			return err
		}
	}
	if err := t.run(ctx, table, tx); err != nil || !whole {
		return err
	}
	t.generations.Forget() // entries are gone: everything is to be verified
	return nil
}

// run makes one change.
func (t *Tables) run(ctx context.Context, table knftables.Interface, tx *knftables.Transaction) error {
	return t.generations.Own(func() error { return table.Run(ctx, tx) })
}

// tableFamilies are the families of our tables, in the order of both.
var tableFamilies = []knftables.Family{knftables.InetFamily, knftables.BridgeFamily}

func (t *Tables) layout(i int, tx *knftables.Transaction, tiers tierObjects) {
	if tableFamilies[i] == knftables.InetFamily {
		inetLayout(tx, t.bits, t.namespace, t.candidates)
		tiers.layOut(layout{commented{tx}})
	} else {
		bridgeLayout(tx)
	}
}

// refill empties every set and map of a table but the dead-man switch, and fills them with
// what is wanted.
func (t *Tables) refill(i int, tx *knftables.Transaction, want elements) error {
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
	if t.tiers.unconfirmed && tableFamilies[i] == knftables.InetFamily {
		for _, e := range heldElements() {
			tx.Add(e)
		}
	}
	for _, e := range want {
		if e.Family == tableFamilies[i] {
			tx.Add(e)
		}
	}
	return nil
}

func (t *Tables) both() []knftables.Interface { return []knftables.Interface{t.inet, t.bridge} }

// Apply makes the sets hold the state, as a delta to their last content. The last transaction
// for each table brings it into force. The first state after Setup is a delta to the tables that
// Setup found; it, and a state after a failed write, writes the tables anew where no delta is enough.
func (t *Tables) Apply(ctx context.Context, s State) error {
	resumes := t.resumes && !t.otherLayout && t.partial
	t.resumes = false
	if resumes && t.readBack(ctx, s) {
		return t.change(ctx, s)
	}
	if t.otherLayout || t.partial {
		return t.Rewrite(ctx, s)
	}
	return t.change(ctx, s)
}

// change makes the difference to the last write.
func (t *Tables) change(ctx context.Context, s State) error {
	bare := s.bare()
	if t.written != nil && reflect.DeepEqual(*t.written, bare) {
		return nil
	}
	t.written = nil
	tiers := s.tierObjects(t.tiers)
	want := s.elements(tiers)
	if t.namespace {
		// A net that is not there must not hold up the tables. It is made anew behind them.
		_ = t.changeNet(ctx, s.netElements(), false)
	}
	for i, c := range t.differences(tiers, want) {
		for _, c := range c.steps() {
			if err := t.write(ctx, i, c); err != nil {
				t.partial = true // one table may have changed: write both anew next time
				return fmt.Errorf("change sets of nft table %s %s: %w", tableFamilies[i], TableName, err)
			}
		}
	}
	t.applied = want
	t.setTiers(tiers)
	if t.namespace {
		if err := t.changeNet(ctx, s.netElements(), true); err != nil {
			return err
		}
	}
	t.written = &bare
	return nil
}

// finishNet brings the second net to a state whose other tables are written.
func (t *Tables) finishNet(ctx context.Context, s State) error {
	if !t.namespace {
		err := t.removeNet(ctx)
		t.partial = t.partial || err != nil // no later change of the state would remove it
		return err
	}
	return t.writeNet(ctx, s.netElements())
}

// Own runs a change that another package makes of nftables for the agent, so that
// ExternalChange does not count it.
func (t *Tables) Own(change func() error) error { return t.generations.Own(change) }

// Checkpoint notes the generation of nftables. The caller calls it before it compares
// everything in the kernel with the desired state.
func (t *Tables) Checkpoint() { t.generations.Checkpoint() }

// ExternalChange tells whether another program may have changed nftables, iptables in
// nftables included, since Checkpoint. On fakes it is always true.
func (t *Tables) ExternalChange() bool { return t.generations.External() }

// Remove deletes both tables. Tables that are not there are no error.
func (t *Tables) Remove(ctx context.Context) error {
	// Without the others it would close every subject.
	if err := t.removeNet(ctx); err != nil {
		return err
	}
	for _, table := range t.both() {
		tx := table.NewTransaction()
		// Add first: deleting a table that is not there would be an error.
		tx.Add(&knftables.Table{})
		tx.Delete(&knftables.Table{})
		if err := t.run(ctx, table, tx); err != nil {
			return fmt.Errorf("remove nft table %s: %w", TableName, err)
		}
	}
	t.applied, t.written, t.partial = nil, nil, true
	t.setTiers(tierObjects{})
	return nil
}

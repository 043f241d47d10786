package failsafes

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/namegate/namegate/agent/failsafes/hostfiles"
	"github.com/namegate/namegate/policy/failsafe"
)

const (
	// Period is how often the sources are read without an event: files, endpoints of
	// WireGuard, states of IPsec and sessions of BGP have none.
	Period = 15 * time.Second
	// eventPause is the least time between two readings that events cause.
	eventPause = time.Second
	// costFactor bounds the cost of large tables: the pause after a reading is at least so
	// many times as long as the reading took.
	costFactor = 20
	// lookupTimeout bounds the lookup of a name, and so the wait for the first list: two
	// servers of resolv.conf may be down.
	lookupTimeout = 5 * time.Second
)

// Keeper keeps the failsafes of a node.
type Keeper struct {
	o       Options
	changed chan struct{}
	results chan lookup

	mu       sync.Mutex
	cluster  *Cluster  // set and not yet taken over
	corefile *Corefile // the same
	learned  []lookup
}

// lookup is the answer of a name.
type lookup struct {
	host  string
	addrs []netip.Addr
	ttl   time.Duration
	err   error
}

// New returns a Keeper. It reads nothing before Run.
func New(o Options) (*Keeper, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	return &Keeper{o: o, changed: make(chan struct{}, 1), results: make(chan lookup)}, nil
}

// SetCluster takes over the objects of the cluster. It may be called at any time.
func (k *Keeper) SetCluster(c Cluster) { k.give(func() { k.cluster = &c }) }

// SetCorefile takes over the configuration. It may be called at any time.
func (k *Keeper) SetCorefile(c Corefile) { k.give(func() { k.corefile = &c }) }

// Learn takes over the addresses that a query of the host for one of List.Names was answered
// with. It may be called at any time.
func (k *Keeper) Learn(name string, addrs []netip.Addr) {
	k.give(func() { k.learned = append(k.learned, lookup{host: name, addrs: slices.Clone(addrs)}) })
}

func (k *Keeper) give(set func()) {
	k.mu.Lock()
	set()
	k.mu.Unlock()
	select {
	case k.changed <- struct{}{}:
	default:
	}
}

// take takes over the values that were given, and tells whether the failsafes may have changed.
func (k *Keeper) take(s *state) (changed bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.cluster != nil {
		changed = !s.hasCluster || !s.in.Cluster.same(k.cluster)
		s.in.Cluster, s.hasCluster, k.cluster = *k.cluster, true, nil
	}
	if k.corefile != nil {
		s.in.Corefile, s.hasCorefile, k.corefile, changed = *k.corefile, true, nil, true
	}
	for _, l := range k.learned {
		changed = s.names.learn(l.host, l.addrs) || changed
	}
	k.learned = nil
	return changed
}

// group are sources that are read together.
type group struct {
	sources []*source
	due     time.Time
	least   time.Time // no reading before
}

// run is one Run of a Keeper.
type run struct {
	*Keeper
	state
	files, underlay group
	lookups         sync.WaitGroup
	addresses       addressFile
	last            *failsafe.List
	said            map[string]bool // findings that were logged
}

// Run calls receive with the failsafes, from one goroutine, whenever they changed, until ctx
// ends. The first call waits for SetCluster, for SetCorefile and for the first answer or error
// of every name. A Keeper is run once.
func (k *Keeper) Run(ctx context.Context, receive func(*failsafe.List)) error {
	ctx, cancel := context.WithCancel(ctx)
	r := newRun(k)
	defer r.lookups.Wait()
	defer cancel()
	lost := func(err error) {
		k.o.Log.Warn("events of tunnels and routes were lost; they are read again", "error", err)
	}
	tokens, err := k.o.Underlay.Watch(ctx, lost)
	if err != nil {
		return err
	}
	changed := false
	for {
		r.step(ctx, changed, receive)
		changed = false
		next := r.next()
		due := k.o.Clock.After(next.Sub(k.o.Clock.Now()))
		if !k.o.Clock.Now().Before(next) {
			continue // the time came meanwhile
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tokens:
			r.underlay.due = r.underlay.least
		case <-k.changed:
			changed = k.take(&r.state) || changed
		case l := <-k.results:
			r.names.answer(k.o.Clock.Now(), l.host, l.addrs, l.ttl, l.err)
			changed = true
		case <-due:
		}
	}
}

func newRun(k *Keeper) *run {
	r := &run{Keeper: k, said: map[string]bool{}, addresses: addressFile{path: k.o.File, log: k.o.Log}}
	r.files.sources = fileSources(hostfiles.New(k.o.Host), k.o.APIServer != "")
	r.underlay.sources = underlaySources(&k.o)
	r.state = state{
		in: Inputs{Node: k.o.Node, APIServer: k.o.APIServer}, names: names{}, sources: slices.Concat(r.files.sources, r.underlay.sources),
		earlier:         map[string][]netip.Addr{},
		connectionsOpen: func() connections { return connections{read: k.o.Underlay.Connections} },
	}
	maps.Copy(r.earlier, r.addresses.load())
	return r
}

// step reads the sources that are due, starts the lookups that are due, and passes a changed
// list on.
func (r *run) step(ctx context.Context, changed bool, receive func(*failsafe.List)) {
	for _, g := range []*group{&r.files, &r.underlay} {
		changed = r.readDue(g) || changed
	}
	now := r.o.Clock.Now()
	if end, ok := r.retained.next(); ok && !now.Before(end) {
		changed = true
	}
	if !changed {
		r.look(ctx)
		return
	}
	r.needs()
	r.look(ctx)
	if !r.ready() {
		return
	}
	if r.known() {
		r.addresses.save(r.names.found())
	}
	l := r.list(now)
	if same(l, r.last) {
		return
	}
	r.last = l
	r.log(l)
	receive(l)
}

// readDue reads a group that is due.
func (r *run) readDue(g *group) (changed bool) {
	start := r.o.Clock.Now()
	if start.Before(g.due) {
		return false
	}
	changed = r.read(g.sources)
	end := r.o.Clock.Now()
	pause := costFactor * end.Sub(start)
	g.due, g.least = end.Add(max(Period, pause)), end.Add(max(eventPause, pause))
	return changed
}

// look starts the lookups that are due.
func (r *run) look(ctx context.Context) {
	for _, host := range r.names.ask(r.o.Clock.Now()) {
		r.lookups.Go(func() {
			bounded, cancel := context.WithTimeout(ctx, lookupTimeout)
			defer cancel()
			l := lookup{host: host}
			l.addrs, l.ttl, l.err = r.o.Resolver.Lookup(bounded, host)
			select {
			case r.results <- l:
			case <-ctx.Done():
			}
		})
	}
}

// next returns when the next step is due.
func (r *run) next() time.Time {
	at := r.files.due
	if r.underlay.due.Before(at) {
		at = r.underlay.due
	}
	if due, ok := r.names.next(); ok && due.Before(at) {
		at = due
	}
	return at
}

// log logs the findings that are new.
func (r *run) log(l *failsafe.List) {
	said := map[string]bool{}
	for i := range l.Findings {
		f := &l.Findings[i]
		text := f.String()
		if said[text] = true; !r.said[text] {
			r.o.Log.Warn("a failsafe of the node is not known", "source", f.Source, "message", f.Message, "stale", f.Stale)
		}
	}
	r.said = said
}

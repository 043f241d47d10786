// Package enforcer makes the kernel hold what the snapshot says: who is
// default-deny, what each pod's answers opened and until when, and where DNS
// packets go. It owns the plan (snapshot to wanted sets and chains) and the
// reconciliation with what is really there; package grants has the grants.
//
// A connection is admitted when a packet of it is judged: then a bit of its
// conntrack mark says so, and later packets pay for one test of that bit. What
// has no bit is denied in both directions, also what was open before its pod was
// selected; taking the bit away cuts a connection.
package enforcer

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/enforcer/dataplane/entries"
	"github.com/namegate/namegate/enforcer/flows"
	"github.com/namegate/namegate/enforcer/grants"
	"github.com/namegate/namegate/enforcer/handover"
	"github.com/namegate/namegate/enforcer/intercept"
	"github.com/namegate/namegate/enforcer/plan"
	"github.com/namegate/namegate/enforcer/ruleset"
	"github.com/namegate/namegate/enforcer/ruleset/layout"
	"github.com/namegate/namegate/kernel/conntrack"
	"github.com/namegate/namegate/kernel/link"
	"github.com/namegate/namegate/kernel/nft"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/stats"
)

// DefaultMark is the bit of admitted connections where nothing else is configured.
const DefaultMark = 0x40

// DefaultCandidate is the bit of candidates where nothing else is configured.
const DefaultCandidate = 0x20

// DefaultAccepted is the bit of packets that rules of the node accept before translation where nothing else is configured.
const DefaultAccepted = 0x10

// DefaultHold is how much longer than its deadline the kernel keeps a grant, so
// that grants outlive an agent that is away.
const DefaultHold = 10 * time.Minute

// Config is what the enforcer is told once, at the start.
type Config struct {
	// Mark is one bit of connection marks, which admits a connection. Candidate is another,
	// of packet and connection marks, by which the dataplane tells the judge what it allows.
	Mark, Candidate uint32
	// Accepted is a third, of packet marks alone, by which rules of the node for traffic before translation tell the later
	// ones what they accept.
	Accepted uint32
	// Hold is the outage hold.
	Hold time.Duration
	// Endpoint are the virtual addresses that pods may be pointed at.
	Endpoint []netip.Addr
	// Resolvers are the addresses that selected pods' queries are intercepted
	// for; the endpoint's are among them without being listed.
	Resolvers []netip.Addr
	// FailClosed leaves the resolvers closed to selected pods while no agent
	// is alive.
	FailClosed bool
	// Attached tells whether the network of a pod that has an address is still set up; nil: it
	// never is. It is asked where no interface is known for the address.
	Attached func(netip.Addr) bool
	// EnforceNetworkPolicies: NetworkPolicies are to hold for every pod, so a bridge that netfilter does not see
	// is a deviation.
	EnforceNetworkPolicies bool
	// Inside tells whether an address is of a node, a pod or a Service of the cluster, or of its ranges: no connection whose
	// server name is checked leads there. nil: none is known to be.
	Inside func(netip.Addr) bool
	// RightsLost is called after each change by which Keeps may say no of a connection that it allowed. It must not
	// block; nil: nothing is called.
	RightsLost func()
	// Reprepare has the caller prepare and commit its last snapshot again.
	Reprepare func()
}

// bits are those of marks.
func (c *Config) bits() []uint32 { return []uint32{c.Mark, c.Candidate, c.Accepted} }

// Kernel is everything the enforcer writes to and reads from.
type Kernel struct {
	// Dataplane makes the dataplane of the enforcer.
	Dataplane func(dataplane.Owner) dataplane.Interface
	// Other is the dataplane that an earlier agent may have used; nil: there is none.
	Other  *Other
	Tables *nft.Tables
	// Entries writes and lists the entries of Tables; nil: they do.
	Entries entries.Tables
	Flows   conntrack.Interface
	Links   link.Interface
	// Inject has a packet come in by an interface, as Send of package inject does; nil: nothing is injected.
	Inject func(iface string, packet []byte) error
}

// Enforcer holds the kernel to the last snapshot.
type Enforcer struct {
	cfg Config
	k   Kernel
	now func() time.Time
	log *slog.Logger

	// apply serializes everything that plans and writes chains and sets; the
	// fields up to the next blank line belong to it.
	apply        writeLock
	snapshot     *policy.Snapshot // the last one committed
	coming       *policy.Snapshot // prepared and not yet committed
	plan         dataplane.Subjects
	unopened     error              // of addresses that coming opens, and that the kernel refused
	next         dataplane.Subjects // the plan of coming; nil where its homes are to be looked for
	plane        *switching
	owner        dataplane.Owner // of the dataplanes
	entries      *entries.Store  // grants of ordered rules
	entered      []policy.RuleID // sorted: their entries were recovered, and they stay until the next Commit
	homes        map[netip.Addr]plan.Home
	orphans      orphans
	switched     map[netip.Addr]string // addresses without a home to the interface of their switch, and that was said
	gateways     []netip.Addr          // the node's link-local addresses, where pods are on bridges
	complete     bool                  // the last Commit was of a whole snapshot, nothing has failed since, and members of peers or names alone are prepared
	unseen       bool                  // netfilter misses bridged packets, and that was said
	unread       []string              // other programs' tables that Start could not read, with the reason
	predecessor  *handover.Predecessor
	relaysBefore []netip.AddrPort          // relays of earlier agents that are in use
	nodeServed   map[netip.Addr]netip.Addr // serving addresses that Start found for the node's own queries, to the resolvers
	// closed are pods that were coming when a Prepare or Commit failed: they are
	// default-deny, if they are to be, until they are committed.
	closed map[policy.PodRef]bool
	// recovered is what an earlier agent left; empty after the first Commit.
	recovered recoveredState
	lists     plan.Lists   // what NetworkPolicies allow
	flows     *flows.Queue // connections that are judged again
	memo      layout.Memo  // of the wanted tables

	grants    *grants.Table
	intercept *intercept.Interception
	committed atomic.Bool                 // a snapshot is in force
	renewing  atomic.Pointer[policy.Node] // the node in force if its policies renew addresses in use, else nil
	repairs   atomic.Uint64
	drift     drift
	suspected chan struct{} // asks RunReconcile to compare the kernel soon
	told      atomic.Pointer[Status]
	judging   atomic.Pointer[judging] // what the tables have of subjects, nil before the first Commit
}

// New returns an enforcer that has touched nothing yet. now may be nil for the
// real clock; the monotonic time of any other is counted since 1970.
func New(cfg Config, k Kernel, now func() time.Time, log *slog.Logger) (*Enforcer, error) {
	for _, bit := range cfg.bits() {
		if bit == 0 || bit&(bit-1) != 0 {
			return nil, fmt.Errorf("mark %#x is not one bit; write one, as in 0x40", bit)
		}
	}
	if bits := slices.Compact(slices.Sorted(slices.Values(cfg.bits()))); len(bits) < len(cfg.bits()) {
		return nil, fmt.Errorf("marks %#x have one bit twice; choose three", cfg.bits())
	}
	if cfg.Hold < 0 || cfg.Hold > 24*time.Hour {
		return nil, fmt.Errorf("hold %v is not between 0 and 24h", cfg.Hold)
	}
	for _, a := range cfg.Endpoint {
		if !slices.Contains(cfg.Resolvers, a) {
			cfg.Resolvers = append(slices.Clone(cfg.Resolvers), a)
		}
	}
	var clock grants.Clock
	if now == nil {
		var err error
		if clock, err = grants.KernelClock(); err != nil {
			return nil, err
		}
		now = time.Now
	} else {
		clock = grants.NewClock(now, time.Duration(now().UnixNano()))
	}
	e := &Enforcer{
		cfg: cfg, k: k, now: now, log: log, apply: writeLock{now: now},
		plan:        dataplane.Subjects{},
		suspected:   make(chan struct{}, 1),
		homes:       map[netip.Addr]plan.Home{},
		orphans:     orphans{homes: map[netip.Addr]plan.Home{}},
		lists:       plan.NewLists(),
		closed:      map[policy.PodRef]bool{},
		predecessor: handover.NewPredecessor(nil, now),
	}
	e.intercept = e.newInterception()
	e.own(clock)
	return e, nil
}

// tablesSetMax is the most addresses of a pod and a port set in the nft tables: a listing of
// a set takes time with the square of its size.
const tablesSetMax = 4096

// own makes the dataplane, the grants that it holds and the queue of rechecks.
func (e *Enforcer) own(clock grants.Clock) {
	e.owner = dataplane.Owner{Mark: e.cfg.Mark, Candidate: e.cfg.Candidate, Accepted: e.cfg.Accepted, Now: e.now, Log: e.log, Coexisting: e.Coexisting}
	e.plane = &switching{Interface: e.k.Dataplane(e.owner)}
	if e.k.Entries == nil {
		e.k.Entries = e.k.Tables.Store
	}
	e.entries = entries.New(e.k.Entries, e.plane)
	kept := grants.Config{Kernel: e.entries, Clock: clock, Hold: e.cfg.Hold, Connections: e.connections, WriteFailed: e.suspect, Coexisting: e.Coexisting, RemoveKeys: e.removeKeys}
	if !e.mode().Candidates {
		kept.InPlace, kept.SetMax = true, tablesSetMax
	}
	e.grants = grants.New(kept)
	e.flows = flows.New(e.k.Flows, e.tablesInForce(), e.cfg.Mark, e.reset, e.now)
}

// Coexisting tells whether the agent before this one may still write and answer queries.
func (e *Enforcer) Coexisting() bool { return e.predecessor.Present() }

// Grants returns the grants of the node's pods: to grant, to list, and to be told of
// grants taken back. The enforcer alone calls its other methods.
func (e *Enforcer) Grants() *grants.Table { return e.grants }

// Start checks that the mark bits are free, finds what an earlier agent left, and
// brings up the nft tables and this generation's serving addresses. What is
// enforced stays as it is until the first Prepare. It returns the addresses to
// serve on.
func (e *Enforcer) Start(ctx context.Context) ([]netip.Addr, error) {
	e.apply.Lock()
	defer e.apply.Unlock()
	if err := e.findOther(ctx); err != nil {
		return nil, err
	}
	isolated, err := e.recoverPlanes(ctx)
	if err != nil {
		return nil, err
	}
	earlier, err := e.tablesInForce().ReadEarlier(ctx)
	if err != nil {
		return nil, fmt.Errorf("find the rules of an earlier agent: %w", err)
	}
	if err := e.k.Tables.Setup(ctx, e.memo.Layouts(e.mode())); err != nil {
		return nil, err
	}
	if e.recovered, err = e.readRecovered(earlier, isolated); err != nil {
		return nil, err
	}
	return e.startInterception()
}

// Status is the state that Enforcer.Status returns.
type Status = stats.Enforcer

// Deviation is an object of a Status that is not as wanted.
type Deviation = stats.Deviation

// statusPatience is how long Status waits for a write to end.
const statusPatience = 500 * time.Millisecond

// Status returns the state of now. Where another program holds up a write, what that
// may change is as it was told last.
func (e *Enforcer) Status() Status {
	var s Status
	if e.idle(statusPatience) {
		s = e.planned()
		e.apply.Unlock()
		e.told.Store(&s)
	} else if last := e.told.Load(); last != nil {
		s = *last
	}
	is := e.grants.Figures()
	s.Repairs, s.Refused, s.Evicted = e.repairs.Load(), is.Refused, is.Evicted
	s.Grants, s.Intercepting, s.Deviations, s.FullestRule = is.Grants, e.intercept.On(), e.Deviations(), is.FullestRule
	for _, ref := range e.grants.AtBound() {
		s.AtBound = append(s.AtBound, ref.String())
	}
	var err error
	if s.Bypassing, err = e.tablesInForce().Bypassing(context.Background()); err != nil {
		e.log.Warn("which pods send DNS past interception is not known", "error", err)
	}
	if s.DroppedTCP, err = e.tablesInForce().Flowless(context.Background()); err != nil {
		e.log.Warn("cannot list the pods whose connections of DNS over TCP were dropped", "error", err)
	}
	return s
}

// idle locks apply, if that is free in time.
func (e *Enforcer) idle(patience time.Duration) bool {
	for until := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		if e.apply.TryLock() {
			return true
		}
		if time.Now().After(until) {
			return false
		}
	}
}

// planned is what the status says of the plan. The caller holds apply.
func (e *Enforcer) planned() Status {
	s := Status{Serving: e.intercept.Serving(), Switched: map[netip.Addr]string{}, UnreadTables: e.unread, NotCut: e.notCut(), Offloading: e.offloading()}
	for _, p := range ruleset.AskedPeers(e.plan) {
		members := ruleset.PeerSet("", p.Kind, e.snapshot.PeerSet(p))
		s.PeerSets += 2 // one of each family
		s.PeerEntries += len(members.Addrs) + len(members.Networks) + len(members.Ports)
	}
	for _, p := range e.plan {
		if p.Isolated {
			s.Selected++
		} else if p.Ingress == nil {
			continue
		}
		for _, a := range p.Addrs {
			h, ok := p.Homes[a]
			iface, switched := e.switched[a]
			switch {
			case slices.Contains(p.Homeless, a):
				s.HomeRefused = append(s.HomeRefused, a)
			case !ok && switched:
				s.Switched[a] = iface
			case !ok:
				s.Homeless = append(s.Homeless, a)
			}
			if h.Bridged() && e.unseen {
				s.Unseen = append(s.Unseen, a)
			}
		}
	}
	slices.SortFunc(s.Unseen, netip.Addr.Compare)
	slices.SortFunc(s.Homeless, netip.Addr.Compare)
	slices.SortFunc(s.HomeRefused, netip.Addr.Compare)
	return s
}

package denial

import (
	"cmp"
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/audit/recent"
	"github.com/namegate/namegate/kernel/nflog"
	"github.com/namegate/namegate/policy"
)

const (
	// settle is how long an audited packet waits to be judged: the answer that told of
	// its destination left the node before it was written down.
	settle = 200 * time.Millisecond
	// maxWaiting bounds the waiting packets: as many as the kernel logs in that time.
	maxWaiting = 1024
	// look is the interval of checks for due packets.
	look = 50 * time.Millisecond
)

// Options are what denials are made of. All functions may be called from any
// goroutine, and must not block.
type Options struct {
	// Packets are the packets that the kernel logs.
	Packets nflog.Interface
	// Snapshot returns the snapshot in force, nil before the first.
	Snapshot func() *policy.Snapshot
	// Memory has the answers that opened nothing.
	Memory *recent.Memory
	// Granted returns by which names an address is open to a pod, or was; nil for none.
	Granted func(policy.PodRef, netip.Addr) []policy.GrantInfo
	// GrantedToAnybody is Granted of every pod.
	GrantedToAnybody func(netip.Addr) []policy.GrantInfo
	// Reached returns the actual destination of a connection, which Services and other
	// address translation change. The connection is named by its protocol and the
	// addresses of its first packet. False: it is not known, or not yet. nil: every
	// destination is the dialled one.
	Reached func(proto uint8, src, dst netip.AddrPort) (netip.AddrPort, bool)
	// Resolves tells whether DNS is asked at an address and port, which every pod may.
	Resolves func(netip.AddrPort) bool
	// Log takes the flows; nil for none.
	Log func(*audit.Flow)
	// Now is the clock; nil is time.Now.
	Now func() time.Time
	// Logger gets a warning when there are too many different flows; nil for none.
	Logger *slog.Logger
}

// Total is how many connections there were.
type Total struct {
	Verdict audit.FlowVerdict
	Reason  audit.FlowReason
	Count   uint64
}

// Denials turns packets into flows. Run must be called once; the other methods may be
// called at any time and from any goroutine.
type Denials struct {
	o Options

	mu      sync.Mutex
	flows   flows
	totals  map[Total]uint64 // by a Total without its count
	waiting []pending        // audited ones, the oldest first
	over    uint64           // connections that are counted in no flow
	said    uint64           // the part of over that the agent's log has
	saidAt  time.Time
}

// New returns denials that have seen nothing.
func New(o Options) *Denials {
	if o.Granted == nil {
		o.Granted = func(policy.PodRef, netip.Addr) []policy.GrantInfo { return nil }
	}
	if o.GrantedToAnybody == nil {
		o.GrantedToAnybody = func(netip.Addr) []policy.GrantInfo { return nil }
	}
	if o.Resolves == nil {
		o.Resolves = func(netip.AddrPort) bool { return false }
	}
	if o.Log == nil {
		o.Log = func(*audit.Flow) {}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Denials{o: o, flows: newFlows(), totals: map[Total]uint64{}}
}

// Run turns packets into flows until ctx ends, and then writes the counted flows. The
// error says why no more packets can arrive.
func (d *Denials) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		defer stop()
		ended <- d.o.Packets.Packets(ctx, d.take)
	}()
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			d.pass()
		case <-ctx.Done():
			err := <-ended
			d.end()
			return err
		}
	}
}

// take takes a packet in.
func (d *Denials) take(p nflog.Packet) {
	snap := d.o.Snapshot() // before mu: holders of the snapshot's lock may ask for totals
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case p.Prefix == nflog.PrefixDenied:
		d.note(snap, p, p.Destination, audit.Denied)
	case p.Prefix != nflog.PrefixAudited:
	case len(d.waiting) >= maxWaiting:
		d.over++
	default:
		d.waiting = append(d.waiting, pending{Packet: p})
	}
}

// pass does the work that is due.
func (d *Denials) pass() {
	snap, now := d.o.Snapshot(), d.o.Now()
	due := d.due(now.Add(-settle))
	missing := d.lookUp(snap, due, maxLookups)
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(missing) > 0 {
		d.waiting = append(missing, d.waiting...)
	}
	d.settled(snap, due)
	d.flows.close(now, d.write)
	if d.over > d.said && now.Sub(d.saidAt) >= period {
		d.o.Logger.Warn("more connections were denied, or would be, than can be told apart", "counted", d.over-d.said)
		d.said, d.saidAt = d.over, now
	}
}

// end writes the counted flows.
func (d *Denials) end() {
	snap, now := d.o.Snapshot(), d.o.Now()
	due := d.due(now)
	d.lookUp(snap, due, 0)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.settled(snap, due)
	d.flows.close(now.Add(period), d.write)
}

// note counts one connection, which was led to reached. The caller holds mu.
func (d *Denials) note(snap *policy.Snapshot, p nflog.Packet, reached netip.AddrPort, verdict audit.FlowVerdict) {
	view := snap.View(p.Source)
	pod, known := snap.Pod(p.Source)
	if !known || verdict == audit.WouldDeny && (view == nil || view.Enforced || d.wouldAllow(snap, view, p, reached)) {
		return
	}
	at := key{pod, p.Destination, policy.Protocol(p.Protocol), verdict}
	t := d.flows.at(at)
	if t == nil {
		if t = d.flows.open(at, p.Time, d.write); t == nil {
			d.over++
			return
		}
		d.flows.begin(t, d.flow(view, at, p))
	} else if p.Time.Sub(t.judged) >= judgedFor {
		t.judge(d.flow(view, at, p))
	}
	d.totals[Total{Verdict: verdict, Reason: t.flow.Reason}]++
	if first := t.add(p.Time); first {
		d.o.Log(t.line(1))
	}
}

// write logs a line of a counted flow. The caller holds mu.
func (d *Denials) write(f *audit.Flow) { d.o.Log(f) }

// flow is what there is to say of a connection.
func (d *Denials) flow(view *policy.View, at key, p nflog.Packet) audit.Flow {
	f := audit.Flow{
		Time: p.Time, Last: p.Time, Pod: at.pod, Address: p.Source, Verdict: at.verdict,
		Protocol: at.protocol, Dialled: at.dialled,
	}
	if view != nil {
		f.Workload, f.Policies = view.Workload, view.Policies
	}
	f.Names, f.Reason = d.explain(view, at)
	return f
}

// Recent returns a pod's recent flows, the newest first. Similar connections are one flow
// with their count.
func (d *Denials) Recent(pod policy.PodRef) []audit.Flow {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.flows.recent(pod)
}

// reasons are all there are, in their order.
var reasons = []audit.FlowReason{
	audit.ReasonPorts, audit.ReasonExpired, audit.ReasonBlocked, audit.ReasonUnmatched, audit.ReasonAnother, audit.ReasonAddress,
}

// Totals returns how many connections there were by verdict and reason, each pair that
// there can be, always in the same order. They only grow.
func (d *Denials) Totals() []Total {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []Total
	for _, v := range []audit.FlowVerdict{audit.Denied, audit.WouldDeny} {
		for _, r := range reasons {
			out = append(out, Total{v, r, d.totals[Total{Verdict: v, Reason: r}]})
		}
	}
	return out
}

// Over returns how many connections were counted in no flow and no total, as there
// were too many to tell apart.
func (d *Denials) Over() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.over
}

// Lost returns how often packets were lost that the kernel had logged.
func (d *Denials) Lost() uint64 { return d.o.Packets.Lost() }

// newer compares by the time of the last connection, the newest first.
func newer(a, b *tally) int {
	return cmp.Or(b.flow.Last.Compare(a.flow.Last), cmp.Compare(b.serial, a.serial))
}

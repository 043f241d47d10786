package denial

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
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
	// Remote returns the pods of other nodes, by which sources of connections are named; nil: none are.
	Remote func() []*policy.Pod
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
	// CountsByName tells whether names count for a connection that is led from what is dialled to what is reached.
	CountsByName func(dialled, reached netip.AddrPort) bool
	// Log takes the flows; nil for none.
	Log func(*audit.Flow)
	// Now is the clock; nil is time.Now.
	Now func() time.Time
	// Logger gets a warning when there are too many different flows.
	Logger *slog.Logger
}

// Total is how many connections there were.
type Total struct {
	Direction string
	Verdict   audit.FlowVerdict
	Reason    audit.FlowReason
	Tier      policy.Tier // of the rule, policy.Namespace for none
	Count     uint64
}

// Denials turns packets into flows. Run must be called once; the other methods may be
// called at any time and from any goroutine.
type Denials struct {
	o Options

	mu      sync.Mutex
	flows   flows
	totals  map[Total]uint64 // by a Total without its count
	waiting []pending        // audited ones, the oldest first
	reached map[origin]netip.AddrPort
	over    uint64 // connections that are counted in no flow
	said    uint64 // the part of over that the agent's log has
	saidAt  time.Time
}

// New returns denials that have seen nothing.
func New(o Options) *Denials {
	if o.Log == nil {
		o.Log = func(*audit.Flow) {}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Denials{o: o, flows: newFlows(), totals: map[Total]uint64{}, reached: map[origin]netip.AddrPort{}}
}

// origin tells apart the connections of a moment.
type origin struct {
	source   netip.AddrPort
	protocol uint8
}

func originOf(p nflog.Packet) origin {
	return origin{netip.AddrPortFrom(p.Source, p.SourcePort), p.Protocol}
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
	var remote []*policy.Pod
	ofNode := strings.HasPrefix(p.Prefix, nflog.PrefixNode) || strings.HasPrefix(p.Prefix, nflog.PrefixNodeAudited)
	if (ofNode || p.Prefix == nflog.PrefixIngress) && d.o.Remote != nil {
		remote = d.o.Remote()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case p.Prefix == nflog.PrefixIngress:
		d.deniedIngress(snap, p, remote)
	case ofNode:
		d.byNode(snap, p, remote, false)
	case p.Prefix == nflog.PrefixReached:
		if len(d.reached) >= maxWaiting { // of packets that were not logged again
			clear(d.reached)
		}
		d.reached[originOf(p)] = p.Destination
	case p.Prefix == nflog.PrefixDenied:
		reached, translated := d.reached[originOf(p)]
		if delete(d.reached, originOf(p)); !translated {
			reached = p.Destination
		}
		d.denied(snap, p, reached, false)
	case p.Prefix == nflog.PrefixAudited:
		d.wait(pending{Packet: p})
	}
}

// wait has a packet wait to be judged. The caller holds mu.
func (d *Denials) wait(p pending) {
	if len(d.waiting) >= maxWaiting {
		d.over++
		return
	}
	d.waiting = append(d.waiting, p)
}

// pass does the work that is due.
func (d *Denials) pass() {
	snap, now := d.o.Snapshot(), d.o.Now()
	known, missing := d.lookUp(snap, d.due(now.Add(-settle)), maxLookups)
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(missing) > 0 {
		d.waiting = append(missing, d.waiting...)
	}
	d.passed(snap, known)
	d.flows.close(now, d.o.Log)
	if d.over > d.said && now.Sub(d.saidAt) >= period {
		d.o.Logger.Warn("more connections were denied, or would be, than can be listed apart", "counted", d.over-d.said)
		d.said, d.saidAt = d.over, now
	}
}

// end writes the counted flows.
func (d *Denials) end() {
	snap, now := d.o.Snapshot(), d.o.Now()
	known, _ := d.lookUp(snap, d.due(now), 0)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.passed(snap, known)
	d.flows.close(now.Add(period), d.o.Log)
}

// viewOf returns the view of the subject that sent a packet: of the node for packets from an address of
// its own, and for packets of its sockets; nil for none.
func viewOf(snap *policy.Snapshot, p nflog.Packet) *policy.View {
	if n := snap.Node(); n != nil && (p.Owner != nil || slices.Contains(n.Node.Addrs, policy.CleanAddr(p.Source))) {
		return n
	}
	return snap.View(p.Source)
}

// denied counts a connection that the kernel denied, which led to reached. The caller holds mu. Of the node, the rules of
// the kernel are a moment ahead of the snapshot: with again, they are the same.
func (d *Denials) denied(snap *policy.Snapshot, p nflog.Packet, reached netip.AddrPort, again bool) {
	view := viewOf(snap, p)
	verdict, by := d.evaluate(snap, view, p, reached, false)
	if verdict == policy.AllowFlow && view != nil && view.Node != nil && !again {
		d.wait(pending{Packet: p, again: func(snap *policy.Snapshot) { d.denied(snap, p, reached, true) }})
		return
	}
	if verdict == policy.AllowFlow {
		by = nil // an entry is not known that the kernel has, or the reverse
	}
	d.count(snap, p, reached, audit.Denied, by)
	if would, by := d.evaluate(snap, view, p, reached, true); would == policy.AllowFlow && verdict != policy.AllowFlow {
		d.count(snap, p, reached, audit.WouldAllow, by)
	}
}

// passed counts connections that Audit policies would deny and no
// other policy does. The caller holds mu.
func (d *Denials) passed(snap *policy.Snapshot, packets []pending) {
	for _, p := range packets {
		if p.again != nil {
			p.again(snap)
			continue
		}
		view := viewOf(snap, p.Packet)
		if verdict, _ := d.evaluate(snap, view, p.Packet, p.reached, false); verdict == policy.DenyFlow {
			continue
		}
		if verdict, by := d.evaluate(snap, view, p.Packet, p.reached, true); verdict == policy.DenyFlow {
			d.count(snap, p.Packet, p.reached, audit.WouldDeny, by)
		}
	}
}

// count counts one connection. by is the rule that decides, nil for none. The caller holds mu.
func (d *Denials) count(snap *policy.Snapshot, p nflog.Packet, reached netip.AddrPort, verdict audit.FlowVerdict, by *policy.Rule) {
	view := viewOf(snap, p)
	at := key{dialled: p.Destination, protocol: policy.Protocol(p.Protocol), verdict: verdict}
	if pod, known := snap.Pod(p.Source); view != nil && view.Node != nil {
		at.pod, at.owner = view.Pod.PodRef, ownerOf(p)
	} else if at.pod = pod; !known {
		return
	}
	d.add(at, p.Time, func() audit.Flow { return d.flow(view, at, p, reached, by) })
}

// add counts one connection. describe says what there is to say of it. The caller holds mu.
func (d *Denials) add(at key, when time.Time, describe func() audit.Flow) {
	t, began := d.flows.at(at, when)
	if t == nil {
		d.over++
		return
	}
	if began || when.Sub(t.judged) >= judgedFor {
		t.judge(describe())
	}
	d.totals[total(&t.flow)]++
	if first := t.add(when); first {
		d.o.Log(t.line(1))
	}
}

// flow is what there is to say of a connection.
func (d *Denials) flow(view *policy.View, at key, p nflog.Packet, reached netip.AddrPort, by *policy.Rule) audit.Flow {
	f := audit.Flow{
		Time: p.Time, Last: p.Time, Pod: at.pod, Address: p.Source, Owner: at.owner, Verdict: at.verdict,
		Protocol: at.protocol, Dialled: at.dialled,
	}
	if view != nil {
		f.Workload, f.Policies = view.Workload, view.Policies
		if at.verdict == audit.Denied && !view.Enforced && len(view.NetworkPolicies) > 0 {
			f.Policies = view.NetworkPolicies
		}
	}
	f.Names, f.Reason = d.explain(view, at, by)
	if at.verdict == audit.Denied && policy.VerdictOf(false, by) == policy.CheckFlow {
		f.Reason, f.Rule = audit.ReasonUnchecked, by
	} else if ofNode := view != nil && view.Node != nil; ofNode || by != nil && (by.Tier != policy.Namespace || by.Action == policy.Deny) {
		f.Reason, f.Rule = audit.ReasonRule, by // nil of the node: it is gone since
	} else if at.verdict == audit.WouldAllow {
		at.verdict = audit.Denied
		_, f.Reason = d.explain(view, at, nil)
	}
	if f.Reason == audit.ReasonUnchecked && f.Rule == nil { // what is dialled is of the cluster
		i := slices.IndexFunc(f.Names, func(n audit.FlowName) bool { return n.Match != nil && n.Match.ServerName })
		if f.Verdict == audit.Denied && i >= 0 {
			f.Rule = f.Names[i].Match.Rule
		} else {
			f.Reason = audit.ReasonBlocked
		}
	}
	if f.Reason == audit.ReasonExpired && d.led(p, reached) {
		f.Reason = audit.ReasonTranslated
	}
	return f
}

// Recent returns a pod's recent flows, the newest first. Similar connections are one flow
// with their count.
func (d *Denials) Recent(pod policy.PodRef) []audit.Flow {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.flows.lately(pod)
}

// reasons are those of the Namespace tier, in their order.
var reasons = []audit.FlowReason{
	audit.ReasonPorts, audit.ReasonTranslated, audit.ReasonExpired, audit.ReasonBlocked, audit.ReasonUnmatched, audit.ReasonAnother, audit.ReasonAddress,
}

// total is the Total of the flow, without the count.
func total(f *audit.Flow) Total {
	t := Total{Direction: f.Direction(), Verdict: f.Verdict, Reason: f.Reason}
	switch {
	case f.Rule != nil:
		t.Tier = f.Rule.Tier
	case f.Reason == audit.ReasonRule: // of the node, and gone since
		t.Tier = policy.Admin
	}
	return t
}

// Totals returns how many connections there were by direction, verdict, reason and tier, each that
// there can be, always in the same order. They only grow.
func (d *Denials) Totals() []Total {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []Total
	add := func(t Total) {
		t.Count = d.totals[t]
		out = append(out, t)
	}
	for v := audit.Denied; v <= audit.WouldAllow; v++ {
		add(Total{Direction: audit.Egress, Verdict: v, Reason: audit.ReasonRule, Tier: policy.Admin})
		add(Total{Direction: audit.Egress, Verdict: v, Reason: audit.ReasonRule, Tier: policy.Namespace})
		for _, r := range reasons {
			add(Total{Direction: audit.Egress, Verdict: v, Reason: r})
		}
		add(Total{Direction: audit.Egress, Verdict: v, Reason: audit.ReasonRule, Tier: policy.Baseline})
	}
	for v := audit.Denied; v <= audit.WouldAllow; v++ {
		add(Total{Direction: audit.Ingress, Verdict: v, Reason: audit.ReasonRule, Tier: policy.Admin})
	}
	for _, r := range []audit.FlowReason{audit.ReasonServerName, audit.ReasonLimit, audit.ReasonUnchecked} {
		for _, tier := range []policy.Tier{policy.Admin, policy.Namespace, policy.Baseline} {
			add(Total{Direction: audit.Egress, Verdict: audit.Denied, Reason: r, Tier: tier})
		}
	}
	add(Total{Direction: audit.Ingress, Verdict: audit.Denied, Reason: audit.ReasonIsolated})
	add(Total{Direction: audit.Ingress, Verdict: audit.Denied, Reason: audit.ReasonRule, Tier: policy.Baseline})
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

package agent

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/namegate/namegate/audit/denial"
	"github.com/namegate/namegate/enforcer/intercept"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/proxy/servername"
	"github.com/namegate/namegate/status"
)

// relayPeriod is how often the relay tries again to listen, and how long after the last rule and
// connection that need it its addresses may stay.
const relayPeriod = 5 * time.Second

// relaying joins the relay to the network that leads connections to it.
type relaying struct {
	relay *servername.Relay
	port  uint16
	log   *slog.Logger
	lost  chan struct{} // rights of open connections

	mu     sync.Mutex
	wanted bool // rules of the last snapshot require the server name
	at     []netip.AddrPort
	open   map[netip.AddrPort]*net.TCPListener
	failed error // of the last attempt to listen
	low    error // of the limit of open files, until it is logged
}

func (a *agent) newRelaying(c *corefile.Config) *relaying {
	bounds, low := boundFiles(c)
	return &relaying{
		log: a.log, low: low,
		relay: servername.New(servername.Options{Judge: a.enforce, Limits: bounds.RelayLimits, Denied: a.deniedByRelay, Protect: protector(a.log), Mark: a.enforce.RelayMark()}),
		port:  uint16(bounds.Port), lost: make(chan struct{}, 1), open: map[netip.AddrPort]*net.TCPListener{},
	}
}

// protector runs functions in which a fault ends one connection.
func protector(log *slog.Logger) func(what string, f func()) bool {
	return func(what string, f func()) (ok bool) {
		defer func() {
			if r := recover(); r != nil {
				log.Error(what+" ended in a fault of the agent", "fault", r, "stack", string(debug.Stack()))
			}
		}()
		f()
		return true
	}
}

// deniedByRelay logs a connection that the relay reset. One that is revoked has the verdict of now.
func (a *agent) deniedByRelay(d servername.Denial) {
	if d.Reason == servername.ReasonRevoked {
		d.Egress = a.enforce.Egress(d.Source.Addr(), d.Dialled, "")
	}
	if d.Reason == servername.ReasonShutdown || d.Reason == servername.ReasonRevoked && d.Verdict == policy.AllowFlow {
		return
	}
	a.denials.Relayed(denial.Relayed{
		Egress: d.Egress, Time: time.Now(), Source: d.Source.Addr(), Dialled: d.Dialled, ServerName: d.ServerName, Limit: d.Reason == servername.ReasonLimit,
	})
}

// rightsLost has open connections judged again.
func (r *relaying) rightsLost() {
	select {
	case r.lost <- struct{}{}:
	default:
	}
}

// follow takes over whether rules of a snapshot require the server name, and reports whether that
// is a change.
func (r *relaying) follow(snap *policy.Snapshot) (changed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	wanted := slices.ContainsFunc(snap.Views, requiresServerName)
	changed = wanted != r.wanted
	r.wanted = wanted
	return changed
}

func requiresServerName(v *policy.View) bool {
	for r := range v.Rules.Identified() {
		if r.ServerName && !r.Audit {
			return true
		}
	}
	return false
}

// addTo completes a network: the relay is served while rules or open connections need it.
func (r *relaying) addTo(n *intercept.Network) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.wanted || r.relay.Stats().Connections > 0 {
		n.RelayPort = r.port
	}
}

// listen serves the relay at addresses, and at no others.
func (r *relaying) listen(at []netip.AddrPort) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for a, l := range r.open {
		if !slices.Contains(at, a) {
			_ = l.Close()
			delete(r.open, a)
		}
	}
	if len(at) > 0 && r.low != nil {
		r.log.Warn("fewer connections of rules with serverName are open at a time than the Corefile allows", "error", r.low)
		r.low = nil
	}
	r.at, r.failed = at, nil
	for _, a := range at {
		if r.open[a] != nil {
			continue
		}
		l, err := servername.Listen(context.Background(), a)
		if err != nil {
			r.failed = err
			continue
		}
		r.open[a] = l
		go r.relay.Serve(l)
	}
}

// run has the relay judge open connections again until ctx ends, listens again where that failed, and has the
// network changed once no connection needs the addresses any more.
func (r *relaying) run(ctx context.Context, changed func()) {
	tick := time.NewTicker(relayPeriod)
	defer tick.Stop()
	for said := ""; ; {
		select {
		case <-ctx.Done():
			return
		case <-r.lost:
			r.relay.Recheck()
			continue
		case <-tick.C:
		}
		r.mu.Lock()
		at, err, idle := r.at, r.failed, !r.wanted && len(r.at) > 0
		r.mu.Unlock()
		if err != nil {
			if said != err.Error() {
				r.log.Error("connections of rules with serverName are denied; trying again", "every", relayPeriod, "error", err)
			}
			said = err.Error()
			r.listen(at)
		}
		if idle && r.relay.Stats().Connections == 0 {
			changed()
		}
	}
}

// close ends the relay: open connections may go on until then.
func (r *relaying) close(until time.Time) {
	before := r.relay.Stats()
	ctx, cancel := context.WithDeadline(context.Background(), until)
	defer cancel()
	if wait := time.Until(until); wait > 0 && before.Connections > 0 {
		r.log.Info("connections of rules with serverName stay open", "connections", before.Connections, "for", wait.Round(time.Second))
	}
	r.relay.Close(ctx)
	if n := r.relay.Stats().Denied[servername.ReasonShutdown]; n > 0 {
		r.log.Warn("connections of rules with serverName were reset, as the agent ends", "connections", n)
	}
}

// findings returns a finding for each pod whose connections the relay cannot accept.
func (r *relaying) findings(snap *policy.Snapshot) (out []status.Finding) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if snap == nil || r.failed == nil {
		return nil
	}
	for _, v := range snap.Views {
		if requiresServerName(v) {
			out = append(out, forPolicies(snap, status.Finding{Pod: v.Pod.PodRef, Reason: status.NotRelayed,
				Message: fmt.Sprintf("connections of the pod %s by rules with serverName are denied, as the agent cannot accept them: %v; "+
					"free the port, or set another port in the block servernames of the Corefile", v.Pod.PodRef, r.failed)})...)
		}
	}
	return out
}

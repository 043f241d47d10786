package agent

import (
	"net/http"

	"github.com/namegate/namegate/agent/metrics"
	"github.com/namegate/namegate/enforcer/ruleset/layout"
)

// metricsHandler answers Prometheus and probes over HTTP.
func (a *agent) metricsHandler() http.Handler {
	live, ready := a.health.Public()
	return metrics.Handler(metrics.Options{Facts: a.facts, Timing: a.timing, Live: live, Ready: ready, Profiles: a.o.Profiles})
}

// facts gathers the agent's numbers.
func (a *agent) facts() metrics.Facts {
	r := a.rollout.Status()
	f := metrics.Facts{
		Version: a.o.Version, Dataplane: a.kernel.dataplane, Ready: a.health.Ready() == nil, Snapshot: r.Number(), Problems: r.Problems, Findings: a.findings(),
		EnforceNetworkPolicies: a.o.EnforceNetworkPolicies, NetworkPolicies: len(r.State.Input.NetworkPolicies), RemotePods: len(r.State.Input.Remote),
		Enforcer: a.enforce.Status(), Proxy: a.proxy.Stats(), Upstreams: a.proxy.Upstreams(), Relay: a.relay.relay.Stats(),
		Denied: metrics.Denied{Flows: a.denials.Totals(), Over: a.denials.Over(), Lost: a.packets.Lost()},
	}
	f.InSync = r.InSync() && len(f.Enforcer.Deviations) == 0
	if a.cluster == nil {
		files := len(r.State.Files)
		f.BrokenFiles = &files
	} else {
		away := !a.cluster.source.Health().Disconnected.IsZero()
		f.APIServerAway = &away
	}
	if n, err := (layout.InForce{Tables: a.kernel.Tables}).Denied(); err == nil {
		f.Denied.Packets = &n
	}
	if a.audit != nil {
		f.Audit = &metrics.Audit{Written: a.audit.Written(), Filtered: a.audit.Filtered(), Dropped: a.audit.Dropped()}
	}
	return f
}

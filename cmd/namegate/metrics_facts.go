package main

import (
	"github.com/namegate/namegate/enforcer"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/proxy"
)

// facts are what the metrics tell, as they are at one moment.
type facts struct {
	ready, inSync bool
	away          *bool // the API server is; nil without one
	snapshot      uint64
	problems      []policy.Problem
	// networkPolicies are the ordinary ones that are known, remotePods the pods of other
	// nodes that are read for them.
	networkPolicies, remotePods int
	findings                    map[string]int // pods, by reason
	broken                      *int           // files; nil where policies come from none
	enforcer                    enforcer.Status
	proxy                       proxy.Stats
	upstreams                   []proxy.ZoneUpstreams
	denied                      deniedFacts
	audit                       *auditFacts
}

// auditFacts are the audit log's totals.
type auditFacts struct{ written, filtered, dropped uint64 }

// facts gathers them.
func (a *agent) facts() facts {
	r := a.rollout
	r.mu.Lock()
	f := facts{inSync: r.inForce != nil && r.failing == "", snapshot: r.number(), problems: r.problems}
	f.networkPolicies, f.remotePods = len(r.state.input.NetworkPolicies), len(r.state.input.Remote)
	files := len(r.state.files)
	r.mu.Unlock()
	f.ready = a.health.ready() == nil
	if a.cluster == nil {
		f.broken = &files
	} else {
		away := !a.cluster.source.Health().Disconnected.IsZero()
		f.away = &away
	}
	f.enforcer, f.proxy, f.upstreams = a.enforce.Status(), a.proxy.Stats(), a.proxy.Upstreams()
	f.inSync = f.inSync && len(f.enforcer.Deviations) == 0
	f.findings = podsByReason(a.findings())
	f.denied = a.deniedFacts()
	if a.audit != nil {
		f.audit = &auditFacts{a.audit.Written(), a.audit.Filtered(), a.audit.Dropped()}
	}
	return f
}

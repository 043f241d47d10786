package main

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/namegate/namegate/enforcer"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/source/kube"
	"github.com/namegate/namegate/source/manifest"
	"github.com/namegate/namegate/status"
)

// teller hands numbers to Prometheus.
type teller chan<- prometheus.Metric

func (t teller) gauge(d *prometheus.Desc, v float64, labels ...string) {
	t <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func (t teller) count(d *prometheus.Desc, v uint64, labels ...string) {
	t <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
}

// counts tells one counter by one label.
func (t teller) counts(d *prometheus.Desc, by map[string]uint64) {
	for label, n := range by {
		t.count(d, n, label)
	}
}

func (t teller) flag(d *prometheus.Desc, on bool) {
	v := 0.0
	if on {
		v = 1
	}
	t.gauge(d, v)
}

// facts tells everything.
func (t teller) facts(f facts) {
	t.gauge(descInfo, 1, version)
	t.flag(descReady, f.ready)
	t.flag(descInSync, f.inSync)
	if f.away != nil {
		t.flag(descConnected, !*f.away)
	}
	if f.broken != nil {
		t.gauge(descBroken, float64(*f.broken))
	}
	t.gauge(descSnapshot, float64(f.snapshot))
	t.problems(f.problems)
	t.gauge(descNetworkPolicies, float64(f.networkPolicies))
	t.gauge(descRemotePods, float64(f.remotePods))
	for _, reason := range findingReasons {
		t.gauge(descFindings, float64(f.findings[reason]), reason)
	}
	t.enforcer(f.enforcer)
	t.proxy(f.proxy)
	for _, z := range f.upstreams {
		t.gauge(descUpstreams, float64(z.Up), z.Zone, "up")
		t.gauge(descUpstreams, float64(z.Down), z.Zone, "down")
	}
	t.denied(f.denied)
	if f.audit != nil {
		t.count(descAuditWritten, f.audit.written)
		t.count(descAuditFiltered, f.audit.filtered)
		t.count(descAuditLost, f.audit.dropped)
	}
}

// problemReasons are those that are told by name; the rest are "other".
var problemReasons = [...]string{policy.ReasonInvalid, policy.ReasonPartiallyInvalid, policy.ReasonHostNetwork, policy.ReasonSecondInterface,
	policy.ReasonAddressConflict, policy.ReasonAddressInvalid, kube.ReasonUnreadable, kube.ReasonPeersUnknown, manifest.ReasonIgnored, manifest.ReasonDuplicate}

// problems counts them by reason. A reason without any is told too, so that its
// end is seen.
func (t teller) problems(all []policy.Problem) {
	by := map[string]int{"other": len(all)}
	for _, reason := range problemReasons {
		for _, p := range all {
			if p.Reason == reason {
				by[reason]++
			}
		}
		by["other"] -= by[reason]
		t.gauge(descProblems, float64(by[reason]), reason)
	}
	t.gauge(descProblems, float64(by["other"]), "other")
}

var findingReasons = [...]string{status.DNSBlocked, status.NotSeen, status.IPVS, status.BridgeNotFiltered, status.HostNetwork,
	status.SecondInterface, status.Homeless, status.SocketLB}

// podsByReason counts the pods of findings, each once for a reason.
func podsByReason(findings []status.Finding) map[string]int {
	type of struct {
		reason string
		pod    policy.PodRef
	}
	seen, by := map[of]bool{}, map[string]int{}
	for _, f := range findings {
		if at := (of{f.Reason, f.Pod}); !seen[at] {
			seen[at] = true
			by[f.Reason]++
		}
	}
	return by
}

func (t teller) enforcer(s enforcer.Status) {
	t.flag(descIntercept, s.Intercepting)
	t.gauge(descSelected, float64(s.Selected))
	t.gauge(descGrants, float64(s.Grants))
	t.gauge(descPeerSets, float64(s.PeerSets))
	t.gauge(descPeerEntries, float64(s.PeerEntries))
	t.count(descEvicted, s.Evicted)
	t.count(descRefused, s.Refused)
	t.count(descRepairs, s.Repairs)
	t.gauge(descDeviations, float64(len(s.Deviations)))
}

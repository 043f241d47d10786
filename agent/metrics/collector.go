package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/namegate/namegate/enforcer"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/source/kube"
	"github.com/namegate/namegate/source/manifest"
	"github.com/namegate/namegate/status"
)

// collector reads the agent's numbers when they are scraped.
type collector struct {
	facts  func() Facts
	timing *Timing
}

// Describe sends the description of one metric alone: the rest describe themselves as
// they are collected.
func (c *collector) Describe(ch chan<- *prometheus.Desc) { ch <- descInfo }

// Collect sends the numbers of now.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	emitter(ch).facts(c.facts())
	c.timing.collect(ch)
}

// emitter sends numbers to Prometheus.
type emitter chan<- prometheus.Metric

func (e emitter) gauge(d *prometheus.Desc, v float64, labels ...string) {
	e <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func (e emitter) count(d *prometheus.Desc, v uint64, labels ...string) {
	e <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
}

// counts sends one counter by one label.
func (e emitter) counts(d *prometheus.Desc, by map[string]uint64) {
	for label, n := range by {
		e.count(d, n, label)
	}
}

func (e emitter) flag(d *prometheus.Desc, on bool) {
	v := 0.0
	if on {
		v = 1
	}
	e.gauge(d, v)
}

// facts sends all metrics.
func (e emitter) facts(f Facts) {
	e.gauge(descInfo, 1, f.Version)
	e.flag(descReady, f.Ready)
	e.flag(descInSync, f.InSync)
	if f.APIServerAway != nil {
		e.flag(descConnected, !*f.APIServerAway)
	}
	if f.BrokenFiles != nil {
		e.gauge(descBroken, float64(*f.BrokenFiles))
	}
	e.gauge(descSnapshot, float64(f.Snapshot))
	e.problems(f.Problems)
	e.gauge(descNetworkPolicies, float64(f.NetworkPolicies))
	e.gauge(descRemotePods, float64(f.RemotePods))
	pods := podsByReason(f.Findings)
	for _, reason := range findingReasons {
		e.gauge(descFindings, float64(pods[reason]), reason)
	}
	e.enforcer(f.Enforcer)
	e.proxy(f.Proxy)
	for _, z := range f.Upstreams {
		e.gauge(descUpstreams, float64(z.Up), z.Zone, "up")
		e.gauge(descUpstreams, float64(z.Down), z.Zone, "down")
	}
	e.denied(f.Denied)
	if f.Audit != nil {
		e.count(descAuditWritten, f.Audit.Written)
		e.count(descAuditFiltered, f.Audit.Filtered)
		e.count(descAuditLost, f.Audit.Dropped)
	}
}

// problemReasons are the reasons that are label values; all others count as "other".
var problemReasons = [...]string{policy.ReasonInvalid, policy.ReasonPartiallyInvalid, policy.ReasonHostNetwork, policy.ReasonSecondInterface,
	policy.ReasonAddressConflict, policy.ReasonAddressInvalid, kube.ReasonUnreadable, kube.ReasonPeersUnknown, manifest.ReasonIgnored, manifest.ReasonDuplicate}

// problems counts problems by reason. A reason without a problem is sent too, so that
// its end is visible.
func (e emitter) problems(all []policy.Problem) {
	by := map[string]int{"other": len(all)}
	for _, reason := range problemReasons {
		for _, p := range all {
			if p.Reason == reason {
				by[reason]++
			}
		}
		by["other"] -= by[reason]
		e.gauge(descProblems, float64(by[reason]), reason)
	}
	e.gauge(descProblems, float64(by["other"]), "other")
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

func (e emitter) enforcer(s enforcer.Status) {
	e.flag(descIntercept, s.Intercepting)
	e.gauge(descSelected, float64(s.Selected))
	e.gauge(descGrants, float64(s.Grants))
	e.gauge(descPeerSets, float64(s.PeerSets))
	e.gauge(descPeerEntries, float64(s.PeerEntries))
	e.count(descEvicted, s.Evicted)
	e.count(descRefused, s.Refused)
	e.count(descRepairs, s.Repairs)
	e.gauge(descDeviations, float64(len(s.Deviations)))
}

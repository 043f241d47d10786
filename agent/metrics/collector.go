package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/source/kube"
	"github.com/namegate/namegate/source/manifest"
	"github.com/namegate/namegate/stats"
	"github.com/namegate/namegate/status"
)

// collector reads the agent's numbers when they are scraped.
type collector struct {
	facts  func() Facts
	timing *Timing
}

// Describe sends nothing: metrics describe themselves as they are collected.
func (c *collector) Describe(chan<- *prometheus.Desc) {}

// Collect sends the numbers of now.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	emitter(ch).facts(c.facts())
	c.timing.collect(ch)
}

// emitter sends numbers to Prometheus.
type emitter chan<- prometheus.Metric

// describe returns the description of a metric and its labels' values; labels are names and
// values in turn. docs/metrics.md lists each metric, and a test compares the two.
func describe(name, help string, labels []string) (d *prometheus.Desc, values []string) {
	var names []string
	for i := 0; i < len(labels); i += 2 {
		names, values = append(names, labels[i]), append(values, labels[i+1])
	}
	return prometheus.NewDesc("namegate_"+name, help, names, nil), values
}

func (e emitter) gauge(name, help string, v float64, labels ...string) {
	d, values := describe(name, help, labels)
	e <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, values...)
}

func (e emitter) count(name, help string, v uint64, labels ...string) {
	d, values := describe(name, help, labels)
	e <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), values...)
}

// by is a counter by the values of one label.
type by map[string]uint64

func (e emitter) counts(name, help, label string, values by) {
	for value, n := range values {
		e.count(name, help, n, label, value)
	}
}

func (e emitter) flag(name, help string, on bool) {
	v := 0.0
	if on {
		v = 1
	}
	e.gauge(name, help, v)
}

// facts sends all metrics.
func (e emitter) facts(f Facts) {
	e.gauge("build_info", "The version of the agent; always 1.", 1, "version", f.Version)
	e.gauge("dataplane_info", "The dataplane of the node; always 1.", 1, "dataplane", f.Dataplane.Name, "variant", f.Dataplane.Variant)
	e.flag("ready", "1 while the agent serves and the latest policies are in force.", f.Ready)
	e.flag("in_sync", "1 while the latest policies are in force and the kernel holds all of them.", f.InSync)
	if f.APIServerAway != nil {
		e.flag("api_server_connected", "1 while the API server answers the agent.", !*f.APIServerAway)
	}
	if f.BrokenFiles != nil {
		e.gauge("broken_files", "Unreadable manifests; their previous content is in force.", float64(*f.BrokenFiles))
	}
	e.gauge("snapshot", "The number of the snapshot in force, counted from the agent's start.", float64(f.Snapshot))
	e.problems(f.Problems)
	e.flag("enforces_all_networkpolicies", "1 where the agent is to enforce NetworkPolicies in both directions for every pod.", f.EnforceNetworkPolicies)
	e.gauge("networkpolicies", "Known NetworkPolicies of all namespaces.", float64(f.NetworkPolicies))
	e.gauge("remote_pods", "Known pods of other nodes that are peers of NetworkPolicies.", float64(f.RemotePods))
	pods := podsByReason(f.Findings)
	for _, reason := range findingReasons {
		e.gauge("findings", "Pods of this node for which policies are not, or only partly, enforced.", float64(pods[reason]), "reason", reason)
	}
	e.enforcer(f.Enforcer)
	e.proxy(f.Proxy)
	e.relay(f.Relay)
	for _, z := range f.Upstreams {
		e.gauge("dns_upstreams", "Upstreams of each zone by state.", float64(z.Up), "zone", z.Zone, "state", "up")
		e.gauge("dns_upstreams", "Upstreams of each zone by state.", float64(z.Down), "zone", z.Zone, "state", "down")
	}
	for _, t := range f.Denied.Flows {
		e.count("flows_total", "Connections that the kernel reported: denied, or with another verdict if Audit policies were enforced.",
			t.Count, "direction", t.Direction, "verdict", t.Verdict.String(), "reason", string(t.Reason), "tier", t.Tier.String())
	}
	e.count("flows_over_total", "Connections without a flow, because there were too many different ones.", f.Denied.Over)
	e.count("flow_losses_total", "Events in which packets of denied connections were lost between the kernel and the agent.", f.Denied.Lost)
	if f.Denied.Packets != nil {
		e.count("denied_packets_total", "Packets that the verdict denied, counted by the kernel.", *f.Denied.Packets)
	}
	if f.Audit != nil {
		e.count("audit_written_lines_total", "Lines that were written to the audit log.", f.Audit.Written)
		e.count("audit_filtered_lines_total", "Lines that the filters of the audit log omitted.", f.Audit.Filtered)
		e.count("audit_dropped_lines_total", "Lines of the audit log that were lost.", f.Audit.Dropped)
	}
}

// problemReasons are the reasons that are label values; all others count as "other".
var problemReasons = [...]string{policy.ReasonInvalid, policy.ReasonPartiallyInvalid, policy.ReasonHostNetwork, policy.ReasonSecondInterface,
	policy.ReasonNoRoom, policy.ReasonAddressConflict, policy.ReasonAddressInvalid, policy.ReasonFailsafesUnknown, policy.ReasonInterfacesUnknown, policy.ReasonNotEnabled, policy.ReasonTurnedToAudit, kube.ReasonUnreadable, kube.ReasonPeersUnknown, kube.ReasonForbidden, kube.ReasonNotServed, kube.ReasonOutsideClusterRanges, policy.ReasonExternalIPs, manifest.ReasonIgnored, manifest.ReasonDuplicate}

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
		e.gauge("problems", "Invalid parts of policies and pods.", float64(by[reason]), "reason", reason)
	}
	e.gauge("problems", "Invalid parts of policies and pods.", float64(by["other"]), "reason", "other")
}

var findingReasons = [...]string{status.DNSBlocked, status.NotSeen, status.IPVS, status.BridgeNotFiltered, status.HostNetwork,
	status.SecondInterface, status.Homeless, status.SocketLB, status.TurnedToAudit, status.FailsafesUnknown, status.InterfacesUnknown, status.ResolverLoop, status.SocketBound, status.Offloaded, status.NotRelayed}

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

func (e emitter) enforcer(s stats.Enforcer) {
	e.flag("intercepting", "1 while the DNS queries of selected pods are redirected to this agent.", s.Intercepting)
	e.gauge("selected_pods", "Pods of this node that are default-deny.", float64(s.Selected))
	e.gauge("granted_addresses", "Open grants.", float64(s.Grants))
	e.gauge("peer_sets", "The kernel's sets of peers of NetworkPolicies.", float64(s.PeerSets))
	e.gauge("peer_set_entries", "Addresses, networks and ports in these sets.", float64(s.PeerEntries))
	e.gauge("pods_at_grant_limit", "Pods that hold as many grants as they may.", float64(len(s.AtBound)))
	e.gauge("fullest_rule_entries", "Entries of the rule of a cluster policy that has most.", float64(s.FullestRule))
	e.count("evicted_grants_total", "Grants that ended early because their pod had too many.", s.Evicted)
	e.count("refused_grants_total", "Requested grants that did not open: the pod is no longer selected, or the kernel did not acknowledge them in time.", s.Refused)
	e.count("repairs_total", "Deviating objects in the kernel that were restored.", s.Repairs)
	e.gauge("deviations", "Objects in the kernel, and tasks of the agent, that have deviated from the desired state for more than a second.", float64(len(s.Deviations)))
}

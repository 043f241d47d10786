package metrics

import "github.com/prometheus/client_golang/prometheus"

// desc describes a metric. docs/metrics.md lists each with its labels' values; a
// test compares the two.
func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("namegate_"+name, help, labels, nil)
}

// Of the agent and the policies.
var (
	descInfo      = desc("build_info", "The version of the agent; always 1.", "version")
	descReady     = desc("ready", "1 while the agent serves and the latest policies are in force.")
	descInSync    = desc("in_sync", "1 while the latest policies are in force and the kernel holds all of them.")
	descIntercept = desc("intercepting", "1 while the DNS queries of selected pods come to this agent.")
	descConnected = desc("api_server_connected", "1 while the API server answers everything that the agent asks.")
	descSnapshot  = desc("snapshot", "The number of the snapshot in force, counted from the agent's start.")
	descSelected  = desc("selected_pods", "Pods of this node that are default-deny.")
	descProblems  = desc("problems", "Parts of policies and pods that cannot work as they are written.", "reason")
	descFindings  = desc("findings", "Selected pods of this node for which policies do not hold, wholly or in part.", "reason")

	descNetworkPolicies = desc("networkpolicies", "Ordinary NetworkPolicies that are known, of all namespaces.")
	descRemotePods      = desc("remote_pods", "Pods of other nodes that are known as peers of NetworkPolicies.")

	descBroken = desc("broken_files", "Manifests that cannot be read; their last good content is in force.")
)

// Of the kernel.
var (
	descGrants      = desc("granted_addresses", "Grants that are open.")
	descPeerSets    = desc("peer_sets", "Sets of the peers of NetworkPolicies.")
	descPeerEntries = desc("peer_set_entries", "Addresses, networks and ports in these sets.")
	descEvicted     = desc("evicted_grants_total", "Grants that ended early because their pod had too many.")
	descRefused     = desc("refused_grants_total", "Grants that were asked for and not opened: the pod is not selected any more, or the kernel did not take them in time.")
	descRepairs     = desc("repairs_total", "How often something of ours that was changed or removed in the kernel was put back.")
	descDeviations  = desc("deviations", "Objects in the kernel, and duties of the agent, that have not been as wanted for more than a second.")
	descFlows       = desc("flows_total", "Connections that were denied, or would be, that the kernel handed over.", "verdict", "reason")
	descFlowsOver   = desc("flows_over_total", "Connections that were counted in no flow, since there were too many to tell apart.")
	descFlowsLost   = desc("flow_losses_total", "How often packets of denied connections were lost on their way from the kernel.")
	descPackets     = desc("denied_packets_total", "Packets that the verdict denied, counted by the kernel.")
)

// Of the proxy.
var (
	descQueries     = desc("dns_queries_total", "Queries of pods and of the node.", "protocol")
	descRejected    = desc("dns_rejected_packets_total", "Packets that are no query, and queries from addresses that are no pod's.", "reason")
	descVerdicts    = desc("dns_verdicts_total", "Decisions about selected pods' questions.", "verdict", "type")
	descLatency     = desc("dns_latency_seconds", "How long selected pods' questions took, and what for.", "stage")
	descHeld        = desc("dns_held_queries_total", "Queries that waited for their pod to be known.", "outcome")
	descShed        = desc("dns_shed_queries_total", "Queries that were not worked on.", "reason")
	descCache       = desc("dns_cache_questions_total", "Questions by where their answer was: kept, not kept, or kept and over.", "outcome")
	descEntries     = desc("dns_cache_entries", "Answers that are kept.")
	descBytes       = desc("dns_cache_bytes", "About how many bytes they take.")
	descPrefetch    = desc("dns_prefetches_total", "Answers that were renewed before their end.")
	descFollowed    = desc("dns_followed_questions_total", "Questions that counted as the allowed name whose answer pointed there.")
	descCoalesced   = desc("dns_coalesced_questions_total", "Questions that shared the answer of one under way.")
	descUntrusted   = desc("dns_untrusted_answers_total", "Answers to allowed names that were not trusted.")
	descGranting    = desc("dns_grants_total", "Answers whose addresses the kernel was asked to open.", "outcome")
	descAddresses   = desc("dns_addresses_total", "Addresses of answers to allowed names.", "outcome")
	descUpstream    = desc("dns_upstream_queries_total", "Queries sent to upstreams, tries counted.")
	descUpstreamTCP = desc("dns_upstream_tcp_queries_total", "Queries sent to upstreams over TCP.")
	descFailures    = desc("dns_upstream_failures_total", "Tries that no reply came to.")
	descWrong       = desc("dns_upstream_wrong_replies_total", "Replies that answer something else; they are ignored.")
	descUpstreams   = desc("dns_upstreams", "Upstreams of each zone, by whether they answer.", "zone", "state")
	descLost        = desc("dns_lost_replies_total", "Replies that could not be sent.")
	descFaults      = desc("dns_faults_total", "Queries that ended in a fault of the proxy.")
	descInFlight    = desc("dns_in_flight_queries", "Queries under way.")
	descConnections = desc("dns_tcp_connections", "TCP connections of clients.")
)

// Of the audit log.
var (
	descAuditWritten  = desc("audit_written_lines_total", "Lines that were written to the audit log.")
	descAuditFiltered = desc("audit_filtered_lines_total", "Lines that the filters of the audit log left out.")
	descAuditLost     = desc("audit_dropped_lines_total", "Lines of the audit log that were lost.")
)

package metrics

import (
	"github.com/namegate/namegate/audit/denial"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/proxy/counters"
	"github.com/namegate/namegate/proxy/servername"
	"github.com/namegate/namegate/proxy/upstream"
	"github.com/namegate/namegate/stats"
	"github.com/namegate/namegate/status"
)

// Facts are the agent's numbers at one moment.
type Facts struct {
	Version       string
	Dataplane     stats.Dataplane
	Ready, InSync bool
	APIServerAway *bool // nil without an API server
	Snapshot      uint64
	Problems      []policy.Problem
	// EnforceNetworkPolicies: for every pod of the node.
	EnforceNetworkPolicies bool
	// NetworkPolicies counts the known ones, RemotePods the pods of other nodes that are
	// read for them.
	NetworkPolicies, RemotePods int
	Findings                    []status.Finding
	BrokenFiles                 *int // nil where policies come from no files
	Enforcer                    stats.Enforcer
	Proxy                       counters.Stats
	Upstreams                   []upstream.Status
	Relay                       servername.Stats
	Denied                      Denied
	Audit                       *Audit // nil without an audit log
}

// Denied are the numbers of connections that were denied, or would be.
type Denied struct {
	Flows   []denial.Total // each that there can be
	Over    uint64         // connections that were counted in no flow
	Lost    uint64         // losses of packets on their way from the kernel
	Packets *uint64        // nil where the kernel does not count them
}

// Audit are the audit log's totals of lines.
type Audit struct{ Written, Filtered, Dropped uint64 }

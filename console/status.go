package console

import (
	"time"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/source/manifest"
	"github.com/namegate/namegate/stats"
)

// The values of Enforce, as the chart's networkPolicy.enforce has them.
const (
	EnforceSelected = "Selected"
	EnforceAll      = "All"
)

// Status is the state of an agent and its problems: the answer to StatusPath.
type Status struct {
	Node     string `json:"node,omitempty"`
	Version  string `json:"version"`
	InSync   bool   `json:"inSync"`
	Snapshot uint64 `json:"snapshot"`
	// Dataplane is how the node's kernel keeps rules and grants, and why.
	Dataplane stats.Dataplane `json:"dataplane"`
	Failing   string          `json:"failing,omitempty"`
	// Waiting counts pods that the snapshot isolates and that are open until their exact
	// names are resolved, for two seconds at most.
	Waiting  int                  `json:"waiting,omitempty"`
	Files    []manifest.FileError `json:"brokenFiles,omitempty"`
	Problems []policy.Problem     `json:"problems,omitempty"`
	// Away is set while the API server is unavailable: the last known state is in force.
	Away *Away `json:"apiServerAway,omitempty"`
	// Paths are the selected pods whose queries do not reach the agent.
	Paths []FailedPath `json:"failedPaths,omitempty"`
	// Enforce says which NetworkPolicies the agent enforces.
	Enforce string `json:"enforce"`
	// NetworkPolicies and RemotePods are the numbers of known objects.
	NetworkPolicies int            `json:"networkPolicies"`
	RemotePods      int            `json:"remotePods"`
	Enforcer        stats.Enforcer `json:"enforcer"`
	Proxy           stats.Proxy    `json:"proxy"`
	// Flows are the denied connections so far.
	Flows []FlowTotal  `json:"flows,omitempty"`
	Audit *AuditStatus `json:"audit,omitempty"`
	// Failsafes are nil where the agent does not enforce policies for nodes, before it has a state,
	// and for callers who may not get the cluster kind.
	Failsafes *Failsafes `json:"failsafes,omitempty"`
}

// Away says since when the API server is, and why.
type Away struct {
	Since time.Time `json:"since"`
	Error string    `json:"error"`
}

// FailedPath is a selected pod whose queries do not reach the agent, and where they
// end.
type FailedPath struct {
	Pod  string `json:"pod"`
	Path string `json:"path"`
}

// FlowTotal counts connections of one direction, verdict, reason and tier.
type FlowTotal struct {
	Direction string `json:"direction"`
	Verdict   string `json:"verdict"`
	Reason    string `json:"reason"`
	Tier      string `json:"tier"`
	Count     uint64 `json:"count"`
}

// AuditStatus counts the lines of the audit log.
type AuditStatus struct {
	Written uint64 `json:"written"`
	Dropped uint64 `json:"dropped"`
}

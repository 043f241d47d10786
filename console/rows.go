package console

import "time"

// PodRow is one pod of a node.
type PodRow struct {
	Node      string   `json:"node"`
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	UID       string   `json:"uid,omitempty"`
	IPs       []string `json:"ips,omitempty"`
	// Enforcement is Enforce where a policy enforces rules for the pod, Audit where only
	// Audit policies select it, and "" where none does.
	Enforcement string `json:"enforcement,omitempty"`
	// Policies are the FQDNNetworkPolicies that select it.
	Policies []string `json:"policies,omitempty"`
	// NetworkPolicies are the ordinary ones that are evaluated for it, of both directions.
	NetworkPolicies []string `json:"networkPolicies,omitempty"`
	Workload        string   `json:"workload,omitempty"`
	// Denied is how connections fail, Unmatched the reply to a question for a name that
	// no match covers; only of pods that are default-deny.
	Denied    string `json:"denied,omitempty"`
	Unmatched string `json:"unmatched,omitempty"`
	// Open counts grants, DeniedLately connections that were denied or would be.
	Open         int    `json:"open"`
	DeniedLately uint64 `json:"deniedLately"`
	// Notes are sentences on why policies do not hold, or not wholly.
	Notes []string `json:"notes,omitempty"`
}

// PodRows is the answer to PodsPath.
type PodRows struct {
	Pods []PodRow `json:"pods"`
}

// GrantRow is one grant that is open.
type GrantRow struct {
	Node      string    `json:"node"`
	Namespace string    `json:"namespace"`
	Pod       string    `json:"pod"`
	UID       string    `json:"uid,omitempty"`
	Name      string    `json:"name"`
	Address   string    `json:"address"`
	Ports     string    `json:"ports"`
	Until     time.Time `json:"until"`
	// Held is when the last answer held the address, where only its use keeps it open since.
	Held time.Time `json:"held,omitzero"`
	// By are the matches that opened it, as "namespace/policy pattern"; "" where
	// that is not known any more. Those of cluster policies that the caller may not read have
	// no name.
	By string `json:"by,omitempty"`
	// ServerName is Require of a grant by a rule that requires the TLS server name.
	ServerName string `json:"serverName,omitempty"`
}

// GrantRows is the answer to GrantsPath.
type GrantRows struct {
	Grants []GrantRow `json:"grants"`
}

// PolicyRow is a policy with names: an FQDNNetworkPolicy, or a cluster policy that selects a pod of
// the node or the node itself.
type PolicyRow struct {
	// ID is how lines of the audit log name it: "namespace/name", of a cluster policy its name, behind
	// "clusternetworkpolicy:" for a ClusterNetworkPolicy and "nodenetworkpolicy:" for a NodeNetworkPolicy.
	ID          string `json:"id"`
	Kind        string `json:"kind"`
	Namespace   string `json:"namespace,omitempty"` // "" of cluster policies
	Name        string `json:"name"`
	Tier        string `json:"tier"`
	Enforcement string `json:"enforcement"`       // as it is in force on the node
	Traffic     string `json:"traffic,omitempty"` // of a policy for nodes
	// Problems are those that the agent found.
	Problems []PolicyProblem `json:"conditions"`
	// Selected counts pods of the node that the caller may see, or of a policy for nodes the node.
	Selected int           `json:"selected"`
	Matches  []PolicyMatch `json:"matches"`
}

// PolicyMatch is a name or pattern of a policy.
type PolicyMatch struct {
	Path  string `json:"path"` // as lines have it, "spec.egress[0].matches[1]"
	Match string `json:"match"`
	// ServerName is Require of a rule that requires the TLS server name.
	ServerName string `json:"serverName,omitempty"`
	// Hits are the lines of the last hour with the match, Last the time of the last one. The page counts them.
	Hits uint64    `json:"hits"`
	Last time.Time `json:"last,omitzero"`
}

// PolicyProblem is what an agent found wrong with a policy.
type PolicyProblem struct {
	Reason  string `json:"reason"` // of policy.Problem
	Path    string `json:"path,omitempty"`
	Message string `json:"message"`
}

// PolicyRows is the answer to PoliciesPath, sorted by ID.
type PolicyRows struct {
	Policies []PolicyRow `json:"policies"`
}

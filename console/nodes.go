package console

import "time"

// ClusterStatus is what the API server knows of agents and policies, without a question to an agent.
type ClusterStatus struct {
	Nodes []NodeReport `json:"nodes"`
	// Problems are the conditions of policies that say that something is wrong.
	Problems []PolicyCondition `json:"problems"`
	// Left are policies that the caller may not list.
	Left []string `json:"left,omitempty"`
}

// NodeReport is what the agent of a node last wrote into the node's Lease.
type NodeReport struct {
	Node    string    `json:"node"`
	Version string    `json:"version"`
	InSync  bool      `json:"inSync"`
	Renewed time.Time `json:"renewed"`
	// Enforce says which NetworkPolicies the agent enforces, "" where it is of a version that does not report it.
	Enforce string `json:"enforce,omitempty"`
	// Silent: the agent has not renewed the Lease in time.
	Silent bool `json:"silent,omitempty"`
}

// PolicyCondition is a condition of a policy.
type PolicyCondition struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Condition string `json:"condition"` // as Accepted=False
	Reason    string `json:"reason"`
	Message   string `json:"message"`
}

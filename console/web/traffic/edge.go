package traffic

import "time"

// The verdicts of an edge.
const (
	Allowed   = "allowed"    // a match covers the name, and its addresses were granted
	WouldDeny = "would-deny" // it passes, and Audit policies would deny it
	Unmatched = "unmatched"  // asked for and answered, and nothing was opened by it
	Denied    = "denied"     // connections, or the name, are denied; or the guard left no address
	Refused   = "refused"    // the query is refused, by no match or by a limit
	Failed    = "failed"     // no trusted answer, or no grant
)

// Edge is what one workload had to do with one name with one verdict, in the last hour.
type Edge struct {
	ID string `json:"id"`
	// Workload is the labels of the pod as the audit log has them (`app=web,tier=front`), Pod/NAME
	// of a pod without such labels, and Node/NAME of a node.
	Workload  string `json:"workload"`
	Namespace string `json:"namespace"` // "" of a node
	// Node is set where the workload is a node: the pods of one workload may be on several.
	Node string `json:"node,omitempty"`
	// Name is the name that was asked for or, of a connection, the first one of its address; the
	// address where no name is known.
	Name      string    `json:"name"`
	Verdict   string    `json:"verdict"`
	Count     uint64    `json:"count"`     // queries and connections of the last hour
	PerSecond float64   `json:"perSecond"` // of the last 10 s
	Last      time.Time `json:"last"`
	// Policies are ids of the policies of the last line, "namespace/name" or the name of a cluster
	// policy: those whose matches cover the name or whose rule decides, or else those that select
	// the pod.
	Policies []string `json:"policies,omitempty"`
	// Reason is that of the last line in a word of docs/audit.md: a flow's reason, a query's limit
	// or error. "" for none.
	Reason string `json:"reason,omitempty"`
}

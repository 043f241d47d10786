package web

import (
	"time"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/explain"
	"github.com/namegate/namegate/console/print"
	"github.com/namegate/namegate/console/web/traffic"
)

// Session is the answer to GET /api/session.
type Session struct {
	Context   string    `json:"context,omitempty"` // the kubeconfig's, "" at an agent's socket
	Namespace string    `json:"namespace"`         // "" for all
	Version   string    `json:"version"`           // of this program
	Started   time.Time `json:"started"`           // lines are counted since then
}

// The states of an agent.
const (
	Connecting  = "connecting"  // its first answer is awaited
	Well        = "well"        // its lines arrive
	Slow        = "slow"        // it has not answered for slowAfter
	Unreachable = "unreachable" // it is asked again
	Refused     = "refused"     // it answers that the caller may not follow the log; it is asked again
)

// Agent is the agent of one node as the page sees it.
type Agent struct {
	Node  string `json:"node"`
	State string `json:"state"`
	// Message says what is wrong and what to do, "" in the state Well.
	Message string `json:"message,omitempty"`
	// Lost counts lines that the agent produced faster than they were read.
	Lost uint64 `json:"lost,omitempty"`
	// Problems are the agent's own, as `namegate status` prints them. The right to see all
	// namespaces is needed; without it NoProblems is the agent's refusal.
	Problems   []print.Finding `json:"problems"`
	NoProblems string          `json:"noProblems,omitempty"`
	Version    string          `json:"version,omitempty"` // of the agent; "" as NoProblems
}

// Agents is the data of the event "agents".
type Agents struct {
	Agents []Agent `json:"agents"`
	// Message is why agents are not found anew at the moment, "" where they are.
	Message string `json:"message,omitempty"`
}

// Traffic is the data of the event "traffic": the edges that changed, with absolute values. The
// first event of a stream has Full set and all edges, and so has one after which the page has to
// forget the edges that it knows.
type Traffic struct {
	At time.Time `json:"at"`
	traffic.Changes
}

// Numbered is a line of the audit log with its number in the server's ring, newer lines higher.
type Numbered struct {
	ID   uint64     `json:"id"`
	Line audit.Line `json:"line"`
	// Text is what `namegate audit` prints after the subject.
	Text string `json:"text"`
}

// NewLines is the data of the event "lines", oldest first. Left counts lines since the last event
// that are not sent: /api/lines has them.
type NewLines struct {
	Lines []Numbered `json:"lines"`
	Left  uint64     `json:"left"`
}

// Lines is the answer to GET /api/lines, newest first.
type Lines struct {
	Lines []Numbered `json:"lines"`
	More  bool       `json:"more"` // older lines match too
}

// Failed are agents that gave no answer, for answers of several agents.
type Failed struct {
	Node    string `json:"node"`
	Message string `json:"message"`
}

// Grants is the answer to GET /api/grants. Left counts grants beyond maxGrants.
type Grants struct {
	Grants []console.GrantRow `json:"grants"`
	Left   int                `json:"left,omitempty"`
	Failed []Failed           `json:"failed,omitempty"`
}

// Statuses is the answer to GET /api/status.
type Statuses struct {
	Nodes  []console.Status `json:"nodes"`
	Failed []Failed         `json:"failed,omitempty"`
}

// Policies is the answer to GET /api/policies.
type Policies struct {
	Policies []Policy `json:"policies"`
	// Since is the beginning of the lines that hits are counted in, at most an hour ago.
	Since  time.Time `json:"since"`
	Failed []Failed  `json:"failed,omitempty"`
}

// Policy is a policy as the agents of all nodes have it together, with the use of its matches.
type Policy struct {
	*console.PolicyRow
	Unused []string `json:"unused"` // paths of matches without hits
}

// Explained is the answer to GET /api/explain.
type Explained struct {
	Text        string               `json:"text"` // as `namegate explain` prints it
	Explanation *explain.Explanation `json:"explanation"`
}

// Suggested is the answer to GET /api/suggest.
type Suggested struct {
	YAML string `json:"yaml"` // "" where there is nothing to write
	// Notes are what is left out and why, and warnings.
	Notes []string `json:"notes"`
}

// Event is a line of GET /api/events. Empty lines are no events.
type Event struct {
	Event string `json:"event"`
	Data  any    `json:"data"`
}

// The names of events, and their data.
const (
	eventAgents  = "agents"  // Agents
	eventTraffic = "traffic" // Traffic
	eventLines   = "lines"   // NewLines
)

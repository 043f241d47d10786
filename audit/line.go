package audit

import "time"

// Line is a line of the log as a reader finds it, of either kind; a field without a
// value is left out of the line. docs/audit.md says what each means.
type Line struct {
	V       int       `json:"v"`
	Kind    string    `json:"kind"` // KindDNS or KindFlow
	Time    time.Time `json:"time"`
	Node    string    `json:"node"`
	Verdict string    `json:"verdict"`
	// Pod is the subject, or Host where that is the node itself.
	Pod  LinePod   `json:"pod,omitzero"`
	Host *LineHost `json:"host,omitempty"`
	// Protocol is udp or tcp of a decision, and a flow's own.
	Protocol string `json:"protocol"`

	// The rule of a cluster policy that decided, or the rule that requires the server name of a flow: its tier, its
	// policy, and its name, or else its path.
	Tier   string `json:"tier,omitempty"`
	Policy string `json:"policy,omitempty"`
	Rule   string `json:"rule,omitempty"`

	// Of DNS decisions.
	Would     string        `json:"would,omitempty"`
	Question  *LineQuestion `json:"question,omitempty"`
	Via       string        `json:"via,omitempty"`
	Matches   []LineMatch   `json:"matches,omitempty"`
	Answers   []LineAnswer  `json:"answers,omitempty"`
	Chain     []string      `json:"chain,omitempty"`
	Rcode     string        `json:"rcode,omitempty"`
	Upstream  string        `json:"upstream,omitempty"`
	Cache     string        `json:"cache,omitempty"`
	LatencyUS int64         `json:"latency_us,omitempty"`
	Error     string        `json:"error,omitempty"`
	Renewed   string        `json:"renewed,omitempty"`
	Limit     string        `json:"limit,omitempty"`

	// Of flows. Direction is Ingress for connections to the pod or the node, which have a Source as those have that the node
	// forwards. Traffic is of the rule of a policy for nodes.
	Direction   string           `json:"direction,omitempty"`
	Traffic     string           `json:"traffic,omitempty"`
	Source      *LineSource      `json:"source,omitempty"`
	Destination *LineDestination `json:"destination,omitempty"`
	Names       []LineName       `json:"names,omitempty"`
	Reason      FlowReason       `json:"reason,omitempty"`
	ServerName  string           `json:"server_name,omitempty"`
	Policies    []string         `json:"policies,omitempty"`
	Count       uint64           `json:"count,omitempty"`
	Last        time.Time        `json:"last,omitzero"`
}

// LinePod is the pod of a line.
type LinePod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid,omitempty"`
	Workload  string `json:"workload,omitempty"`
	IP        string `json:"ip"`
}

// LineHost is the node itself as the subject of a line: its processes, and pods on the host network.
// UID and GID are of the socket of a flow, nil where they are not known.
type LineHost struct {
	UID *uint32 `json:"uid,omitempty"`
	GID *uint32 `json:"gid,omitempty"`
	IP  string  `json:"ip"`
}

// LineQuestion is the question of a pod.
type LineQuestion struct {
	Name  string `json:"name"`
	Type  string `json:"type"`
	Class string `json:"class"`
}

// LineMatch is a match that covers a name.
type LineMatch struct {
	Policy string `json:"policy"`
	Path   string `json:"path"`
	Match  string `json:"match"`
	Audit  bool   `json:"audit,omitempty"`
}

// LineAnswer is an address of an answer.
type LineAnswer struct {
	Address string      `json:"address"`
	Granted bool        `json:"granted"`
	Grants  []LineGrant `json:"grants,omitempty"`
	Blocked string      `json:"blocked,omitempty"`
}

// LineGrant is one port set that was opened.
type LineGrant struct {
	Ports string    `json:"ports"`
	Until time.Time `json:"until"`
}

// LineDestination is the dialled destination; Port is 0 if the protocol has none.
type LineDestination struct {
	Address string `json:"address"`
	Port    uint16 `json:"port,omitempty"`
}

// LineSource is where connections to the pod of a line come from.
type LineSource struct {
	Address string `json:"address"`
	Pod     string `json:"pod,omitempty"` // there, "namespace/name", as far as it is known
}

// LineName is a name under which a destination was seen.
type LineName struct {
	Name  string    `json:"name"`
	Asked time.Time `json:"asked,omitzero"`
	// Pod is another pod that asked, "namespace/name", or "node NAME"; "" for the subject itself.
	Pod   string     `json:"pod,omitempty"`
	Match *LineMatch `json:"match,omitempty"`
}

package explain

import (
	"strings"
	"time"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/nnp"
)

// Verdict is the answer in a word.
type Verdict string

// The verdicts.
const (
	// Allowed: a connection is admitted now.
	Allowed Verdict = "allowed"
	// OnceAsked: the policies allow it, and it is admitted when the pod has asked for
	// the name.
	OnceAsked Verdict = "allowed-once-asked"
	// Checked: a connection is admitted if it begins with a TLS server name that the reason names.
	Checked Verdict = "checked"
	// Denied: a connection is denied.
	Denied Verdict = "denied"
	// WouldDeny: it passes, since only Audit policies select the pod.
	WouldDeny Verdict = "would-deny"
	// Unknown: no name opens it, and what NetworkPolicies are judged on is not known here.
	Unknown Verdict = "unknown"
	// Elsewhere: the pod is another node's, whose agent knows.
	Elsewhere Verdict = "elsewhere"
)

// Explanation is the whole answer.
type Explanation struct {
	Pod  string `json:"pod"` // "namespace/name"
	Node string `json:"node,omitempty"`
	From string `json:"from,omitempty"` // "" where the pod connects
	// To is what is to be reached; with From it is the port of the pod, "" for any.
	To string `json:"to"`
	// Interface is that by which the packets of a node leave or arrive, as far as it is known.
	Interface string `json:"interface,omitempty"`
	// Verdict and Reason are the answer: the reason is a sentence without its dot.
	Verdict Verdict `json:"verdict"`
	Reason  string  `json:"reason"`
	// Policies are those that select the pod.
	Policies []Policy `json:"policies,omitempty"`
	// ClusterPolicies are the cluster policies with rules that select the pod, in order.
	ClusterPolicies []ClusterPolicy `json:"clusterPolicies,omitempty"`
	// NetworkPolicies are those that select the pod for egress, with From for ingress: "namespace/name".
	NetworkPolicies []string `json:"networkPolicies,omitempty"`
	// Peers are their rules that lead to what is really reached, with From those for the source.
	Peers []Peer `json:"peers,omitempty"`
	// Rules, where cluster policies have rules for the pod, are all that lead to what is really
	// reached, in the order in which they are asked.
	Rules []Rule `json:"rules,omitempty"`
	// Matches are those that cover the name, or a name of the address.
	Matches []Match `json:"matches,omitempty"`
	// Names are those under which the address, or the addresses of the name, were seen.
	Names []Seen  `json:"seen,omitempty"`
	Open  []Grant `json:"open,omitempty"`
	// Flows are what was denied lately, newest first.
	Flows []Flow `json:"deniedLately,omitempty"`
	// Notes are sentences on what else bears on it.
	Notes  []string `json:"notes,omitempty"`
	Advice *Advice  `json:"advice,omitempty"`
}

// Policy is one that selects the pod.
type Policy struct {
	Policy      string `json:"policy"` // "namespace/name"
	Enforcement string `json:"enforcement"`
}

// ClusterPolicy is a cluster policy that selects the pod. Policy is "" for callers without
// the right to read it.
type ClusterPolicy struct {
	Policy      string `json:"policy,omitempty"`
	Tier        string `json:"tier"`
	Enforcement string `json:"enforcement"`
	Traffic     string `json:"traffic,omitempty"` // of a policy for nodes
}

// String names the policy.
func (p ClusterPolicy) String() string {
	if p.Policy == "" {
		return Hidden(p.Tier)
	}
	return PolicyName(p.Tier, p.Policy)
}

// Peer is a rule of a NetworkPolicy that leads to an address.
type Peer struct {
	Policy string `json:"policy"` // of the NetworkPolicy, "namespace/name"
	Path   string `json:"path"`
	// Peer is what the rule leads to: selectors, networks or "everywhere".
	Peer string `json:"peer"`
	// Address is what is reached, behind a Service one of its pods; with From it is the source.
	Address string `json:"address,omitempty"`
	Pod     string `json:"pod,omitempty"` // there, "namespace/name"
	Ports   string `json:"ports"`
	// OnPort tells whether the ports hold what was asked for, behind a Service where that
	// leads.
	OnPort bool `json:"onPort"`

	rule *policy.Rule
}

// Rule is a rule in the order in which rules are asked. Policy, Path, Name, To and From are ""
// for callers without the right to read it.
type Rule struct {
	Tier   string `json:"tier"`
	Action string `json:"action"`
	// Traffic and Interfaces are of a rule for nodes.
	Traffic    string   `json:"traffic,omitempty"`
	Interfaces []string `json:"interfaces,omitempty"`

	Policy string `json:"policy,omitempty"`
	Path   string `json:"path,omitempty"`
	Name   string `json:"name,omitempty"` // of the rule
	// To is where it leads: names, selectors, networks or "everywhere".
	To      string `json:"to,omitempty"`
	From    string `json:"from,omitempty"`    // of a rule for ingress, in place of To
	Address string `json:"address,omitempty"` // what is reached, or the source
	Ports   string `json:"ports"`
	// ServerName is Require of a rule that requires the TLS server name.
	ServerName string `json:"serverName,omitempty"`
	Broken     bool   `json:"broken,omitempty"` // a part of it cannot be read: it denies everything
	Closed     bool   `json:"closed,omitempty"` // the pod has no room for its addresses: it denies every destination
	OnPort     bool   `json:"onPort"`
	// Decides tells whether it is the first that matches.
	Decides bool `json:"decides,omitempty"`

	rule *policy.Rule
}

// String writes the rule for people.
func (r Rule) String() string {
	text, by := r.Tier+" "+r.Action, r.Policy
	if _, ofNodes := nnp.Name(by); ofNodes {
		text, by = r.Traffic+" "+r.Action, PolicyName(r.Tier, by)
	}
	if by != "" {
		text += " by " + by + " (" + pathText(r.Path, r.Name) + ")"
	}
	if r.To != "" {
		text += " to " + r.To
	}
	if r.From != "" {
		text += " from " + r.From
	}
	text += ", on " + r.Ports
	if len(r.Interfaces) > 0 {
		text += ", by " + strings.Join(r.Interfaces, ", ")
	}
	text += Requires(r.ServerName)
	if r.Broken {
		text += ", broken"
	}
	if r.Closed {
		text += ", closed"
	}
	switch {
	case r.Decides:
		text += ": decides"
	case !r.OnPort:
		text += ", not on this port"
	}
	return text
}

// Match is one match that covers the name.
type Match struct {
	Name   string `json:"name"`
	Policy string `json:"policy"`
	Path   string `json:"path"`
	Match  string `json:"match"`
	Ports  string `json:"ports"`
	Audit  bool   `json:"audit,omitempty"`
	// ServerName is Require of a rule that requires the TLS server name.
	ServerName string `json:"serverName,omitempty"`
	// OnPort tells whether the ports hold what was asked for.
	OnPort bool   `json:"onPort"`
	At     string `json:"at,omitempty"` // "file:line" of a manifest
}

// Seen is a name and an address that an answer held.
type Seen struct {
	Name    string    `json:"name"`
	Address string    `json:"address"`
	Asked   time.Time `json:"asked,omitzero"` // not known of grants
	// Pod is who asked where that is another, "namespace/name".
	Pod string `json:"pod,omitempty"`
	// Blocked is the guard's reason.
	Blocked string `json:"blocked,omitempty"`
}

// Grant is a grant of the pod for the target, open or ended.
type Grant struct {
	Name    string    `json:"name"`
	Address string    `json:"address"`
	Ports   string    `json:"ports"`
	Until   time.Time `json:"until"`
	Held    time.Time `json:"held,omitzero"` // of the last answer with the address, where only its use keeps it open since
	By      string    `json:"by,omitempty"`
	// ServerName is Require of a grant by a rule that requires the TLS server name.
	ServerName string `json:"serverName,omitempty"`
	Ended      bool   `json:"ended,omitempty"`
}

// Flow is alike connections that were denied, or would have been.
type Flow struct {
	Time     time.Time `json:"time"`
	Last     time.Time `json:"last"`
	Verdict  string    `json:"verdict"`
	Protocol string    `json:"protocol"`
	Address  string    `json:"address"`
	Port     uint16    `json:"port,omitempty"`
	Names    []string  `json:"names,omitempty"`
	Reason   string    `json:"reason"`
	// ServerName is what the client claimed in a connection that the agent checked.
	ServerName string `json:"serverName,omitempty"`
	// By is the rule that decided, or that requires the server name, as far as the caller may read it.
	By    string `json:"by,omitempty"`
	Count uint64 `json:"count"`
}

// Advice is what to do so that it is allowed.
type Advice struct {
	// Do are sentences, in the order in which to do them.
	Do []string `json:"do,omitempty"`
	// Manifest is a whole FQDNNetworkPolicy to apply, "" where none would help.
	Manifest string `json:"manifest,omitempty"`
	// NetworkPolicy is a whole one to apply instead, or for another engine; "" where none would help.
	NetworkPolicy string `json:"networkPolicy,omitempty"`
	// Corefile are lines that the administrator of the nodes has to write.
	Corefile []string `json:"corefile,omitempty"`
}

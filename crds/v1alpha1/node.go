package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NodeNetworkPolicy accepts and denies connections of the selected nodes, in both directions and in
// the order of its rules.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=nnp,path=nodenetworkpolicies,singular=nodenetworkpolicy
// +kubebuilder:printcolumn:name="Traffic",type=string,JSONPath=`.spec.traffic`
// +kubebuilder:printcolumn:name="Priority",type=integer,JSONPath=`.spec.priority`
// +kubebuilder:printcolumn:name="Enforcement",type=string,JSONPath=`.spec.enforcement`
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Enforced",type=string,JSONPath=`.status.conditions[?(@.type=="Enforced")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Accepted")].reason`
// +kubebuilder:printcolumn:name="Enforced Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Enforced")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type NodeNetworkPolicy struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec selects nodes and lists what is accepted or denied for them.
	Spec NodeNetworkPolicySpec `json:"spec"`
	// Status is the state of the policy as reported by the agents.
	// +optional
	Status NodeNetworkPolicyStatus `json:"status,omitzero"`
}

// NodeNetworkPolicyList is a list of policies.
//
// +kubebuilder:object:root=true
type NodeNetworkPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodeNetworkPolicy `json:"items"`
}

// NodeNetworkPolicySpec selects nodes and lists what is accepted or denied for them.
//
// +kubebuilder:validation:XValidation:rule="self.traffic != 'BeforeNAT' || !has(self.egress) || size(self.egress) == 0",message="traffic: BeforeNAT is what arrives at the node; write ingress rules, or another traffic"
// +kubebuilder:validation:XValidation:rule="self.traffic == 'Local' || !has(self.egress) || self.egress.all(r, !has(r.matches) || size(r.matches) == 0)",message="names count with traffic: Local alone; write networks, or traffic: Local"
// +kubebuilder:validation:XValidation:rule="self.traffic != 'Untracked' || (!has(self.ingress) || self.ingress.all(r, !has(r.pods))) && (!has(self.egress) || self.egress.all(r, !has(r.pods)))",message="traffic: Untracked is not judged between the node and pods; write networks or nodes"
type NodeNetworkPolicySpec struct {
	// NodeSelector selects nodes by their labels. An empty selector ({}) selects every node.
	//
	// +required
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn', 'Exists', 'DoesNotExist'])",message="write In, NotIn, Exists or DoesNotExist as operator"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, (e.operator in ['In', 'NotIn']) == (has(e.values) && size(e.values) > 0))",message="write values with the operators In and NotIn, and none with Exists and DoesNotExist"
	NodeSelector *metav1.LabelSelector `json:"nodeSelector"`

	// Priority is the place of the policy, 0 to 1000. The lower comes first. Policies of equal priority are
	// in the order of their names.
	// +required
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Priority *int32 `json:"priority"`

	// Traffic is the traffic that the policy decides: Local is connections of and to the processes of the
	// node and its pods on the host network. Forwarded is connections that the node forwards, those of its
	// pods included. BeforeNAT is what arrives before the translation of Services. Untracked is packets of
	// and to the node before connection tracking.
	// +optional
	// +kubebuilder:default=Local
	Traffic Traffic `json:"traffic,omitempty"`

	// Interfaces are the names of network interfaces, or their beginnings with an asterisk (eth*). Packets that
	// arrive there are judged by the ingress rules, packets that leave there by the egress rules. The default
	// is the interfaces with an address of the node's status and those of default routes.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	Interfaces []Interface `json:"interfaces,omitempty"`

	// Ingress is the list of rules for connections that arrive. The first rule that matches decides. If none
	// matches, the next policy is asked; after the last policy the connection is accepted.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Ingress []NodeIngressRule `json:"ingress,omitempty"`

	// Egress is the list of rules for connections that leave. The first rule that matches decides. If none
	// matches, the next policy is asked; after the last policy the connection is accepted.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Egress []NodeEgressRule `json:"egress,omitempty"`

	// Enforcement is Enforce or Audit. With Audit, the agents evaluate and log connections but do not deny them.
	// +optional
	// +kubebuilder:default=Enforce
	Enforcement Enforcement `json:"enforcement,omitempty"`

	// Denied is Reject or Drop. Reject answers a denied connection with an error where the kernel can; Drop
	// discards its packets.
	// +optional
	// +kubebuilder:default=Reject
	Denied Denied `json:"denied,omitempty"`

	// DNS configures the answers to DNS queries.
	// +optional
	// +kubebuilder:default={}
	DNS ClusterDNS `json:"dns,omitzero"`

	// TTL configures how long the addresses of a DNS answer count for the rules that match its name.
	// +optional
	// +kubebuilder:default={}
	TTL TTL `json:"ttl,omitzero"`

	// Safeguard turns a generation of the policy to Audit on each node where it is in force, unless the
	// annotation namegate.io/confirmed names it. Without a safeguard the policy is enforced until it is
	// changed or deleted.
	// +optional
	Safeguard *Safeguard `json:"safeguard,omitempty"`

	// Unreadable is set by the source of the policy where a part of the spec that is no rule is unknown to
	// this version or has another type: the reason. It is no part of the API.
	Unreadable string `json:"-"`
}

// ConfirmedAnnotation names the generation (metadata.generation) of a policy that its
// administrators have confirmed: "3".
const ConfirmedAnnotation = "namegate.io/confirmed"

// Safeguard ends the enforcement of a policy that locks its administrators out.
type Safeguard struct {
	// ConfirmWithin is how long a generation of the policy is enforced on a node before it is confirmed,
	// from 1m to 24h. After that time, or after a minute without the API server, the node only audits
	// it. To confirm a generation, set the annotation namegate.io/confirmed to metadata.generation. A
	// confirmed generation is enforced whether the API server is available or not.
	// +optional
	// +kubebuilder:default="5m"
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,6}[hms])+$') && duration(self) >= duration('1m') && duration(self) <= duration('24h')",message="write 1m to 24h, in hours, minutes and seconds: 5m, 1h30m"
	ConfirmWithin string `json:"confirmWithin,omitempty"`
}

// Traffic is Local, Forwarded, BeforeNAT or Untracked.
//
// +kubebuilder:validation:Enum=Local;Forwarded;BeforeNAT;Untracked
type Traffic string

// The kinds of traffic.
const (
	TrafficLocal     Traffic = "Local"
	TrafficForwarded Traffic = "Forwarded"
	TrafficBeforeNAT Traffic = "BeforeNAT"
	TrafficUntracked Traffic = "Untracked"
)

// Interface is the name of a network interface, or its beginning with an asterisk.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=16
// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9A-Za-z_.@+-]{1,15}|[0-9A-Za-z_.@+-]{0,14}[*])$')",message="write the name of an interface, at most 15 characters, or its beginning with one asterisk: eth0, eth*, *"
type Interface string

// NodePeers are the other ends of connections. A rule without peers is for every address.
type NodePeers struct {
	// Networks is the list of networks, for example 192.0.2.0/24 and 2001:db8::/32.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Networks []Network `json:"networks,omitempty"`

	// Nodes selects nodes of the cluster by their labels. An empty selector ({}) selects every node.
	// +optional
	Nodes *metav1.LabelSelector `json:"nodes,omitempty"`

	// Pods selects pods by the labels of their namespace and by their own.
	// +optional
	Pods *PodSubject `json:"pods,omitempty"`
}

// NodeIngressRule accepts or denies connections from the listed peers to the listed ports.
type NodeIngressRule struct {
	// Name is the name of the rule in logs and explanations.
	// +optional
	// +kubebuilder:validation:MaxLength=100
	// +kubebuilder:validation:XValidation:rule="!self.matches('[[:cntrl:]]')",message="write the name in one line, without control characters"
	Name string `json:"name,omitempty"`

	// Action is Accept or Deny.
	// +required
	Action NodeAction `json:"action"`

	NodePeers `json:",inline"`

	// Ports is the list of protocols and ports. If it is empty, the rule is for all protocols and ports.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Ports []Port `json:"ports,omitempty"`

	// Unreadable is set by the source of the policy where a part of the rule is unknown to this
	// version or has another type: the reason. It is no part of the API.
	Unreadable string `json:"-"`
}

// NodeEgressRule accepts or denies connections to the addresses of the matching names and to the listed
// peers, on the listed ports.
type NodeEgressRule struct {
	// Name is the name of the rule in logs and explanations.
	// +optional
	// +kubebuilder:validation:MaxLength=100
	// +kubebuilder:validation:XValidation:rule="!self.matches('[[:cntrl:]]')",message="write the name in one line, without control characters"
	Name string `json:"name,omitempty"`

	// Action is Accept or Deny.
	// +required
	Action NodeAction `json:"action"`

	// Matches is the list of names and patterns. It is for traffic: Local.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Matches []Match `json:"matches,omitempty"`

	NodePeers `json:",inline"`

	// Ports is the list of protocols and ports. If it is empty, the rule is for all protocols and ports.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Ports []Port `json:"ports,omitempty"`

	// Unreadable is set by the source of the policy where a part of the rule is unknown to this
	// version or has another type: the reason. It is no part of the API.
	Unreadable string `json:"-"`
}

// NodeAction is Accept or Deny.
//
// +kubebuilder:validation:Enum=Accept;Deny
type NodeAction string

// The actions of rules for nodes.
const (
	NodeAccept NodeAction = "Accept"
	NodeDeny   NodeAction = "Deny"
)

// NodeNetworkPolicyStatus is the state of the policy as reported by the agents.
type NodeNetworkPolicyStatus struct {
	// Conditions are Accepted and Enforced.
	//
	// Accepted is True if the policy is valid. Its reason is Accepted, or PartiallyInvalid if the message
	// names invalid rules: with Accept such a rule matches nothing, with Deny it denies every connection. If
	// the status is False, the reason is Invalid or NotEnabled, and the policy selects nothing.
	//
	// Enforced is False if the policy is not enforced. Its reason is Audit, NotAccepted, TurnedToAudit if the
	// safeguard ended its enforcement on nodes, or that of the nodes on which it is not enforced. It is
	// True with the reason Unconfirmed while the policy has a safeguard and this generation is not confirmed.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

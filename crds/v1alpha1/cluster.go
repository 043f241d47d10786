package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ClusterFQDNNetworkPolicy accepts, denies or passes on egress connections of the selected
// pods of the whole cluster, in the order of its rules, before the policies of the namespaces
// (tier Admin) or where these select nothing (tier Baseline).
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=cfqdnnp,path=clusterfqdnnetworkpolicies,singular=clusterfqdnnetworkpolicy
// +kubebuilder:printcolumn:name="Tier",type=string,JSONPath=`.spec.tier`
// +kubebuilder:printcolumn:name="Priority",type=integer,JSONPath=`.spec.priority`
// +kubebuilder:printcolumn:name="Enforcement",type=string,JSONPath=`.spec.enforcement`
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Enforced",type=string,JSONPath=`.status.conditions[?(@.type=="Enforced")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Accepted")].reason`
// +kubebuilder:printcolumn:name="Enforced Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Enforced")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ClusterFQDNNetworkPolicy struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec selects pods and lists what is accepted, denied or passed on for them.
	Spec ClusterFQDNNetworkPolicySpec `json:"spec"`
	// Status is the state of the policy as reported by the agents.
	// +optional
	Status ClusterFQDNNetworkPolicyStatus `json:"status,omitzero"`
}

// ClusterFQDNNetworkPolicyList is a list of policies.
//
// +kubebuilder:object:root=true
type ClusterFQDNNetworkPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterFQDNNetworkPolicy `json:"items"`
}

// ClusterFQDNNetworkPolicySpec selects pods and lists what is accepted, denied or passed on for them.
type ClusterFQDNNetworkPolicySpec struct {
	// Tier is Admin or Baseline. The Admin tier comes before the policies of the namespaces. The
	// Baseline tier is the default of the pods that no namespaced policy for egress selects.
	// +required
	Tier Tier `json:"tier"`

	// Priority is the place of the policy in its tier, 0 to 1000. The lower comes first. Policies of equal
	// priority are in the order of their names.
	// +required
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Priority *int32 `json:"priority"`

	// Subject selects the pods of the policy.
	// +required
	Subject ClusterSubject `json:"subject"`

	// Egress is the list of egress rules. The first rule that matches decides. If none matches, the next
	// policy is asked, and after the last policy of the tier the next tier.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Egress []ClusterEgressRule `json:"egress,omitempty"`

	// Enforcement is Enforce or Audit. With Audit, the agents evaluate and log connections but do not deny them.
	// +optional
	// +kubebuilder:default=Enforce
	Enforcement Enforcement `json:"enforcement,omitempty"`

	// Denied is Reject or Drop. Reject answers a denied connection with an error; Drop discards its packets.
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
}

// Tier is Admin or Baseline.
//
// +kubebuilder:validation:Enum=Admin;Baseline
type Tier string

// The tiers of cluster policies.
const (
	TierAdmin    Tier = "Admin"
	TierBaseline Tier = "Baseline"
)

// ClusterSubject is exactly one of pods and namespaces.
//
// +kubebuilder:validation:XValidation:rule="has(self.pods) != has(self.namespaces)",message="write exactly one of pods and namespaces; namespaces: {} selects every pod"
type ClusterSubject struct {
	// Pods selects pods by the labels of their namespace and by their own.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="(!has(self.namespaceSelector.matchExpressions) || self.namespaceSelector.matchExpressions.all(e, e.operator in ['In', 'NotIn', 'Exists', 'DoesNotExist'])) && (!has(self.podSelector.matchExpressions) || self.podSelector.matchExpressions.all(e, e.operator in ['In', 'NotIn', 'Exists', 'DoesNotExist']))",message="write In, NotIn, Exists or DoesNotExist as operator"
	// +kubebuilder:validation:XValidation:rule="(!has(self.namespaceSelector.matchExpressions) || self.namespaceSelector.matchExpressions.all(e, (e.operator in ['In', 'NotIn']) == (has(e.values) && size(e.values) > 0))) && (!has(self.podSelector.matchExpressions) || self.podSelector.matchExpressions.all(e, (e.operator in ['In', 'NotIn']) == (has(e.values) && size(e.values) > 0)))",message="write values with the operators In and NotIn, and none with Exists and DoesNotExist"
	Pods *PodSubject `json:"pods,omitempty"`

	// Namespaces selects all pods of namespaces, by the labels of the namespaces. An empty selector ({}) selects every pod.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn', 'Exists', 'DoesNotExist'])",message="write In, NotIn, Exists or DoesNotExist as operator"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, (e.operator in ['In', 'NotIn']) == (has(e.values) && size(e.values) > 0))",message="write values with the operators In and NotIn, and none with Exists and DoesNotExist"
	Namespaces *metav1.LabelSelector `json:"namespaces,omitempty"`

	// Unreadable is set by the source of the policy where a part of the subject is unknown to this
	// version or has another type: the reason. It is no part of the API.
	Unreadable string `json:"-"`
}

// PodSubject selects pods by the labels of their namespace and by their own. Pods in the host's
// network are not selected.
type PodSubject struct {
	// NamespaceSelector selects namespaces by their labels. An empty selector ({}) selects every namespace.
	//
	// +required
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector"`

	// PodSelector selects pods of these namespaces by their labels. An empty selector ({}) selects all of them.
	//
	// +required
	PodSelector *metav1.LabelSelector `json:"podSelector"`
}

// ClusterEgressRule accepts, denies or passes on connections to the addresses of the matching
// names and to the networks, on the listed ports. Without matches and networks it is for every
// destination.
//
// +kubebuilder:validation:XValidation:rule="!has(self.serverName) || self.serverName != 'Require' || has(self.ports) && size(self.ports) > 0 && self.ports.all(p, has(p.protocol) && p.protocol == 'TCP')",message="with serverName: Require, write ports, each with protocol: TCP, for example {protocol: TCP, port: 443}"
// +kubebuilder:validation:XValidation:rule="!has(self.serverName) || self.serverName != 'Require' || self.action == 'Accept'",message="serverName: Require is for rules with action: Accept; leave it out of other rules"
// +kubebuilder:validation:XValidation:rule="!has(self.serverName) || self.serverName != 'Require' || has(self.matches) && size(self.matches) > 0 && (!has(self.networks) || size(self.networks) == 0)",message="serverName: Require is for rules with matches alone; for networks, write two rules: one with matches and serverName: Require, one with networks"
type ClusterEgressRule struct {
	// Name is the name of the rule in logs and explanations.
	// +optional
	// +kubebuilder:validation:MaxLength=100
	// +kubebuilder:validation:XValidation:rule="!self.matches('[[:cntrl:]]')",message="write the name in one line, without control characters"
	Name string `json:"name,omitempty"`

	// Action is Accept, Deny or Pass. Pass leaves the connection to the next tier.
	// +required
	Action Action `json:"action"`

	// Matches is the list of names and patterns.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Matches []Match `json:"matches,omitempty"`

	// Networks is the list of networks, for example 192.0.2.0/24 and 2001:db8::/32.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Networks []Network `json:"networks,omitempty"`

	// Ports is the list of protocols and ports. If it is empty, the rule is for all protocols and ports.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Ports []Port `json:"ports,omitempty"`

	// ServerName is Ignore or Require. With Require, a connection must begin with a TLS server name that is one of the
	// names for which a DNS answer opened its address by such a rule. The node's agent checks and relays the
	// connection, so the destination sees the address of the node. Addresses of the cluster are not opened. Defaults to Ignore.
	// +optional
	ServerName ServerName `json:"serverName,omitempty"`

	// Unreadable is set by the source of the policy where a part of the rule is unknown to this
	// version or has another type: the reason. It is no part of the API.
	Unreadable string `json:"-"`
}

// Action is Accept, Deny or Pass.
//
// +kubebuilder:validation:Enum=Accept;Deny;Pass
type Action string

// The actions of rules.
const (
	ActionAccept Action = "Accept"
	ActionDeny   Action = "Deny"
	ActionPass   Action = "Pass"
)

// Network is an address and its length.
//
// +kubebuilder:validation:MaxLength=43
// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,3}([.][0-9]{1,3}){3}|[0-9A-Fa-f]*:[0-9A-Fa-f:]*(:[0-9]{1,3}([.][0-9]{1,3}){3})?)/[0-9]{1,3}$')",message="write an address and its length: 192.0.2.0/24, 2001:db8::/32"
type Network string

// ClusterDNS configures the answers to DNS queries.
type ClusterDNS struct {
	// Denied is the response to a query for a name that a Deny rule for all ports matches: NXDomain,
	// Refuse or Resolve (the answer; connections to its addresses are denied).
	// +optional
	// +kubebuilder:default=NXDomain
	Denied Unmatched `json:"denied,omitempty"`

	// Unmatched is the response to a query for a name that no rule matches: Resolve (the
	// answer, which opens no address), NXDomain or Refuse.
	// +optional
	// +kubebuilder:default=Resolve
	Unmatched Unmatched `json:"unmatched,omitempty"`

	// Encrypted is Accept or Deny. Deny denies connections to port 853 (DNS over TLS and DNS over QUIC), before the rules of the policy,
	// and answers the queries by which clients discover encrypted resolvers so that they do not use one.
	// +optional
	// +kubebuilder:default=Accept
	Encrypted EncryptedDNS `json:"encrypted,omitempty"`

	DNSLimits `json:",inline"`
}

// ClusterFQDNNetworkPolicyStatus is the state of the policy as reported by the agents.
type ClusterFQDNNetworkPolicyStatus struct {
	// Conditions are Accepted and Enforced.
	//
	// Accepted is True if the policy is valid. Its reason is Accepted, or PartiallyInvalid if the message
	// names invalid rules: with Accept such a rule matches nothing, with Deny or Pass it denies every
	// connection. If the status is False, the reason is Invalid, and the policy selects nothing.
	//
	// Enforced is False if the policy is not enforced. Its reason is Audit, NotAccepted, or that of the pods for
	// which it is not enforced.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

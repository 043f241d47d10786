package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// FQDNNetworkPolicy lets pods of its namespace open connections to the addresses
// of the names it lists, and to nothing else.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=fqdnnp,path=fqdnnetworkpolicies,singular=fqdnnetworkpolicy
// +kubebuilder:printcolumn:name="Enforcement",type=string,JSONPath=`.spec.enforcement`
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Enforced",type=string,JSONPath=`.status.conditions[?(@.type=="Enforced")].status`
// +kubebuilder:printcolumn:name="DNS Blocked",type=string,JSONPath=`.status.conditions[?(@.type=="DNSBlocked")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Accepted")].reason`
// +kubebuilder:printcolumn:name="Enforced Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Enforced")].reason`
// +kubebuilder:printcolumn:name="Unmatched",type=string,priority=1,JSONPath=`.spec.dns.unmatched`
// +kubebuilder:printcolumn:name="Denied",type=string,priority=1,JSONPath=`.spec.denied`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type FQDNNetworkPolicy struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec says which pods the policy selects and what they may reach.
	Spec FQDNNetworkPolicySpec `json:"spec"`
	// Status says what the agents made of the policy.
	// +optional
	Status FQDNNetworkPolicyStatus `json:"status,omitzero"`
}

// FQDNNetworkPolicyList is a list of policies.
//
// +kubebuilder:object:root=true
type FQDNNetworkPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []FQDNNetworkPolicy `json:"items"`
}

// FQDNNetworkPolicySpec says which pods the policy selects and what they may reach.
type FQDNNetworkPolicySpec struct {
	// PodSelector selects pods of the policy's namespace; {} is every one of them.
	//
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn', 'Exists', 'DoesNotExist'])",message="write In, NotIn, Exists or DoesNotExist as operator"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, (e.operator in ['In', 'NotIn']) == (has(e.values) && size(e.values) > 0))",message="write values with the operators In and NotIn, and none with Exists and DoesNotExist"
	PodSelector metav1.LabelSelector `json:"podSelector"`

	// Egress lists what the selected pods may reach. Without it they reach no name.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Egress []EgressRule `json:"egress,omitempty"`

	// Enforcement is Enforce, or Audit to decide and log but drop nothing.
	// +optional
	// +kubebuilder:default=Enforce
	Enforcement Enforcement `json:"enforcement,omitempty"`

	// Denied says how a denied connection fails: Reject, at once, or Drop, by silence.
	// +optional
	// +kubebuilder:default=Reject
	Denied Denied `json:"denied,omitempty"`

	// DNS says how names are answered.
	// +optional
	// +kubebuilder:default={}
	DNS DNS `json:"dns,omitzero"`

	// TTL says how long the addresses of an answer stay open.
	// +optional
	// +kubebuilder:default={}
	TTL TTL `json:"ttl,omitzero"`
}

// EgressRule opens the addresses of its matches on its ports.
type EgressRule struct {
	// Matches lists the names; a question needs to match one of them.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Matches []Match `json:"matches,omitempty"`

	// Ports lists the protocols and ports. Without it every protocol and port is open.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Ports []Port `json:"ports,omitempty"`
}

// Match is one name or one pattern.
//
// +kubebuilder:validation:XValidation:rule="has(self.name) != has(self.pattern)",message="write exactly one of name and pattern"
type Match struct {
	// Name is one exact name, such as www.example.org.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[0-9A-Za-z_-]{1,63}([.][0-9A-Za-z_-]{1,63})*[.]?$`
	// +kubebuilder:validation:XValidation:rule="!self.contains('*')",message="a name holds no wildcard; write it under pattern"
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9A-Za-z_.*-]*$')",message="write a bare domain name of letters, digits, - and _, without scheme, port or path, and a Unicode name as its A-label (xn--...)"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^[.]|[.][.]|[^.]{64}') && size(self) > 0",message="write labels of 1 to 63 characters with one dot between them and none in front"
	Name *string `json:"name,omitempty"`

	// Pattern is a name in which * stands for a part of one label and a first
	// label ** for one or more labels, such as *.example.org.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([*][*]?|[*]?[0-9A-Za-z_-]+([*][0-9A-Za-z_-]+)*[*]?)([.]([*]|[*]?[0-9A-Za-z_-]+([*][0-9A-Za-z_-]+)*[*]?))*[.]?$`
	// +kubebuilder:validation:XValidation:rule="!self.matches('[^.][*][*]|[*][*][^.]|[.][*][*]')",message="** may stand only as the whole first label; write * for a part of one label, or **.example.org for everything below example.org"
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9A-Za-z_.*-]*$')",message="write a bare domain name of letters, digits, -, _ and *, without scheme, port or path, and a Unicode name as its A-label (xn--...)"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^[.]|[.][.]|[^.]{64}') && size(self) > 0",message="write labels of 1 to 63 characters with one dot between them and none in front"
	Pattern *string `json:"pattern,omitempty"`
}

// Port is a protocol, or some of its ports.
//
// +kubebuilder:validation:XValidation:rule="!has(self.endPort) || has(self.port)",message="endPort stands alone; write the first port of the range as port"
// +kubebuilder:validation:XValidation:rule="!has(self.endPort) || !has(self.port) || self.endPort >= self.port",message="endPort is below port; write the greater one as endPort"
type Port struct {
	// Protocol is TCP, UDP, SCTP or ALL. Without it: TCP where a port is given, else ALL.
	// +optional
	Protocol *Protocol `json:"protocol,omitempty"`

	// Port is the port, or the first of a range. Without it every port of the
	// protocol is open. With ALL it is that port of TCP, UDP and SCTP.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port *int32 `json:"port,omitempty"`

	// EndPort is the last port of a range, itself included. It needs Port.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	EndPort *int32 `json:"endPort,omitempty"`
}

// Protocol is TCP, UDP, SCTP or ALL.
//
// +kubebuilder:validation:Enum=TCP;UDP;SCTP;ALL
type Protocol string

// The protocols that a port of a rule may name.
const (
	ProtocolTCP  Protocol = "TCP"
	ProtocolUDP  Protocol = "UDP"
	ProtocolSCTP Protocol = "SCTP"
	ProtocolALL  Protocol = "ALL"
)

// Enforcement is Enforce or Audit.
//
// +kubebuilder:validation:Enum=Enforce;Audit
type Enforcement string

// Enforce makes the selected pods default-deny; Audit decides and logs, and drops nothing.
const (
	EnforcementEnforce Enforcement = "Enforce"
	EnforcementAudit   Enforcement = "Audit"
)

// Denied is Reject or Drop.
//
// +kubebuilder:validation:Enum=Reject;Drop
type Denied string

// Reject answers a denied connection with a TCP reset or ICMP "prohibited"; Drop with silence.
const (
	DeniedReject Denied = "Reject"
	DeniedDrop   Denied = "Drop"
)

// Unmatched is Resolve, NXDomain or Refuse.
//
// +kubebuilder:validation:Enum=Resolve;NXDomain;Refuse
type Unmatched string

// What the question for a name that nothing matches gets: its answer, which opens
// nothing, NXDOMAIN, or REFUSED.
const (
	UnmatchedResolve  Unmatched = "Resolve"
	UnmatchedNXDomain Unmatched = "NXDomain"
	UnmatchedRefuse   Unmatched = "Refuse"
)

// DNS says how names are answered.
type DNS struct {
	// Unmatched says what a name gets that nothing matches: Resolve (an answer that
	// opens nothing), NXDomain or Refuse.
	// +optional
	// +kubebuilder:default=Resolve
	Unmatched Unmatched `json:"unmatched,omitempty"`
}

// TTL says how long the addresses of an answer stay open: the answer's TTL, not
// below MinSeconds and not above MaxSeconds, plus GraceSeconds.
//
// +kubebuilder:validation:XValidation:rule="!has(self.minSeconds) || !has(self.maxSeconds) || self.minSeconds <= self.maxSeconds",message="maxSeconds is below minSeconds; write both, the greater as maxSeconds"
type TTL struct {
	// MinSeconds is the least TTL that is reckoned with.
	// +optional
	// +kubebuilder:default=30
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=604800
	MinSeconds *int64 `json:"minSeconds,omitempty"`

	// MaxSeconds is the greatest TTL that is reckoned with.
	// +optional
	// +kubebuilder:default=3600
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=604800
	MaxSeconds *int64 `json:"maxSeconds,omitempty"`

	// GraceSeconds is added for connections that are opened a little late.
	// +optional
	// +kubebuilder:default=60
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	GraceSeconds *int64 `json:"graceSeconds,omitempty"`
}

// FQDNNetworkPolicyStatus says what the agents made of the policy.
type FQDNNetworkPolicyStatus struct {
	// Conditions holds Accepted, Enforced and DNSBlocked.
	//
	// Accepted says whether the policy works as it is written: its reason is Accepted;
	// PartiallyInvalid where the message names parts that do not work while the rest
	// does; or, with the status False, Invalid.
	//
	// Enforced is False where the policy does not hold, wholly or in part, for some
	// pod that it selects: the reason is the worst of what the nodes found, Audit or
	// NotAccepted.
	//
	// DNSBlocked is True where the queries of some selected pod do not reach the agent
	// of its node.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

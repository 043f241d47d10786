package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// FQDNNetworkPolicy allows the selected pods of its namespace to connect to the
// addresses of the listed names, and denies all other egress connections.
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

	// Spec selects pods and lists the destinations that they can reach.
	Spec FQDNNetworkPolicySpec `json:"spec"`
	// Status is the state of the policy as reported by the agents.
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

// FQDNNetworkPolicySpec selects pods and lists the destinations that they can reach.
type FQDNNetworkPolicySpec struct {
	// PodSelector selects pods in the policy's namespace. An empty selector ({}) selects all pods.
	//
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn', 'Exists', 'DoesNotExist'])",message="write In, NotIn, Exists or DoesNotExist as operator"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, (e.operator in ['In', 'NotIn']) == (has(e.values) && size(e.values) > 0))",message="write values with the operators In and NotIn, and none with Exists and DoesNotExist"
	PodSelector metav1.LabelSelector `json:"podSelector"`

	// Egress is the list of egress rules for the selected pods. If it is empty, the pods cannot reach any name.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Egress []EgressRule `json:"egress,omitempty"`

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
	DNS DNS `json:"dns,omitzero"`

	// TTL configures how long the addresses of a DNS answer stay open.
	// +optional
	// +kubebuilder:default={}
	TTL TTL `json:"ttl,omitzero"`
}

// EgressRule allows connections to the addresses of the matching names, on the listed ports.
//
// +kubebuilder:validation:XValidation:rule="!has(self.serverName) || self.serverName != 'Require' || has(self.ports) && size(self.ports) > 0 && self.ports.all(p, has(p.protocol) && p.protocol == 'TCP')",message="with serverName: Require, write ports, each with protocol: TCP, for example {protocol: TCP, port: 443}"
type EgressRule struct {
	// Matches is the list of names and patterns. A DNS query matches the rule if it matches at least one of them.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	Matches []Match `json:"matches,omitempty"`

	// Ports is the list of protocols and ports. If it is empty, the rule allows all protocols and ports.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Ports []Port `json:"ports,omitempty"`

	// ServerName is Ignore or Require. With Require, a connection must begin with a TLS server name that is one of the
	// names for which a DNS answer opened its address by such a rule. The node's agent checks and relays the
	// connection, so the destination sees the address of the node. Addresses of the cluster are not opened. Defaults to Ignore.
	// +optional
	ServerName ServerName `json:"serverName,omitempty"`
}

// ServerName is Ignore or Require.
//
// +kubebuilder:validation:Enum=Ignore;Require
type ServerName string

// What a rule asks of the TLS server name of a connection.
const (
	ServerNameIgnore  ServerName = "Ignore"
	ServerNameRequire ServerName = "Require"
)

// Match is exactly one name or one pattern.
//
// +kubebuilder:validation:XValidation:rule="has(self.name) != has(self.pattern)",message="write exactly one of name and pattern"
type Match struct {
	// Name is an exact domain name, for example www.example.org.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[0-9A-Za-z_-]{1,63}([.][0-9A-Za-z_-]{1,63})*[.]?$`
	// +kubebuilder:validation:XValidation:rule="!self.contains('*')",message="a name holds no wildcard; write it under pattern"
	// +kubebuilder:validation:XValidation:rule=`!self.matches(r'[^\w.*-]')`,message="write a bare domain name of letters, digits, - and _, without scheme, port or path, and a Unicode name as its A-label (xn--...)"
	// +kubebuilder:validation:XValidation:rule="size(self) > 0 && !self.startsWith('.') && !self.contains('..')",message="write labels of 1 to 63 characters with one dot between them and none in front"
	// +kubebuilder:validation:XValidation:rule="!self.matches('[^.]{64}')",message="write labels of 1 to 63 characters with one dot between them and none in front"
	Name *string `json:"name,omitempty"`

	// Pattern is a domain name with wildcards, for example *.example.org. An asterisk (*)
	// matches a part of one label. A double asterisk (**) as the first label matches one or more labels.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([*][*]?|[*]?[0-9A-Za-z_-]+([*][0-9A-Za-z_-]+)*[*]?)([.]([*]|[*]?[0-9A-Za-z_-]+([*][0-9A-Za-z_-]+)*[*]?))*[.]?$`
	// +kubebuilder:validation:XValidation:rule="!self.matches('.[*]{2}') && (!self.startsWith('**') || self.startsWith('**.') || size(self) == 2)",message="** may stand only as the whole first label; write * for a part of one label, or **.example.org for everything below example.org"
	// +kubebuilder:validation:XValidation:rule=`!self.matches(r'[^\w.*-]')`,message="write a bare domain name of letters, digits, -, _ and *, without scheme, port or path, and a Unicode name as its A-label (xn--...)"
	// +kubebuilder:validation:XValidation:rule="size(self) > 0 && !self.startsWith('.') && !self.contains('..')",message="write labels of 1 to 63 characters with one dot between them and none in front"
	// +kubebuilder:validation:XValidation:rule="!self.matches('[^.]{64}')",message="write labels of 1 to 63 characters with one dot between them and none in front"
	Pattern *string `json:"pattern,omitempty"`
}

// Port is a protocol and, optionally, a port or a range of ports.
//
// +kubebuilder:validation:XValidation:rule="!has(self.endPort) || has(self.port)",message="endPort stands alone; write the first port of the range as port"
// +kubebuilder:validation:XValidation:rule="!has(self.endPort) || !has(self.port) || self.endPort >= self.port",message="endPort is below port; write the greater one as endPort"
type Port struct {
	// Protocol is TCP, UDP, SCTP or ALL. Defaults to ALL.
	// +optional
	Protocol *Protocol `json:"protocol,omitempty"`

	// Port is the port, or the first port of a range. If it is not set, the rule is for all ports of the
	// protocol. With protocol ALL, it is the port of TCP, UDP and SCTP.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port *int32 `json:"port,omitempty"`

	// EndPort is the last port of a range, inclusive. It requires port.
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

// Enforce isolates the selected pods (default deny); Audit evaluates and logs but denies nothing.
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

// The responses to a query for a name that matches no rule: the answer, which opens
// no address, NXDOMAIN, or REFUSED.
const (
	UnmatchedResolve  Unmatched = "Resolve"
	UnmatchedNXDomain Unmatched = "NXDomain"
	UnmatchedRefuse   Unmatched = "Refuse"
)

// DNS configures the answers to DNS queries.
type DNS struct {
	// Unmatched is the response to a query for a name that matches no rule: Resolve (the
	// answer, which opens no address), NXDomain or Refuse.
	// +optional
	// +kubebuilder:default=Resolve
	Unmatched Unmatched `json:"unmatched,omitempty"`

	// Encrypted is Accept or Deny. Deny denies connections to port 853 (DNS over TLS and DNS over QUIC), whatever the policies of the namespace allow,
	// and answers the queries by which clients discover encrypted resolvers so that they do not use one.
	// +optional
	// +kubebuilder:default=Accept
	Encrypted EncryptedDNS `json:"encrypted,omitempty"`

	DNSLimits `json:",inline"`
}

// EncryptedDNS is Accept or Deny.
//
// +kubebuilder:validation:Enum=Accept;Deny
type EncryptedDNS string

// What becomes of DNS over TLS and QUIC.
const (
	EncryptedDNSAccept EncryptedDNS = "Accept"
	EncryptedDNSDeny   EncryptedDNS = "Deny"
)

// DNSLimits limits the DNS queries of the selected pods.
type DNSLimits struct {
	// Types lists the query types that the pods may ask for. A query of another type gets an empty answer. If
	// it is not set, all types are answered.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Types []QueryType `json:"types,omitempty"`

	// MaxLabels is the number of labels that a name may have below its registered zone (example.org,
	// example.co.uk). A query for a name with more labels gets REFUSED. Names that a rule of the same tier or of
	// an earlier one lists as name, and names of the cluster, are not limited.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=126
	MaxLabels *int32 `json:"maxLabels,omitempty"`

	// MaxQueryRate is the number of queries per minute that an agent sends to the resolver for a pod, for names of
	// one registered zone. Further queries get REFUSED. Names that a rule of the same tier or of an earlier one
	// lists as name, names of the cluster, and answers from the agent's cache do not count.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=600000
	MaxQueryRate *int32 `json:"maxQueryRate,omitempty"`
}

// QueryType is the type of a DNS query.
//
// +kubebuilder:validation:Enum=A;AAAA;ANY;CAA;CDNSKEY;CDS;CERT;CNAME;DNAME;DNSKEY;DS;HINFO;HTTPS;LOC;MX;NAPTR;NS;NSEC;NSEC3;NSEC3PARAM;OPENPGPKEY;PTR;RRSIG;SMIMEA;SOA;SRV;SSHFP;SVCB;TLSA;TXT;URI
type QueryType string

// TTL configures how long the addresses of a DNS answer stay open: for the answer's TTL, limited to
// minSeconds and maxSeconds, plus graceSeconds. With inUse: Renew an address that the pod uses then stays
// open for longer.
//
// +kubebuilder:validation:XValidation:rule="!has(self.minSeconds) || !has(self.maxSeconds) || self.minSeconds <= self.maxSeconds",message="maxSeconds is below minSeconds; write both, the greater as maxSeconds"
type TTL struct {
	// MinSeconds is the lower limit of the TTL.
	// +optional
	// +kubebuilder:default=30
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=604800
	MinSeconds *int64 `json:"minSeconds,omitempty"`

	// MaxSeconds is the upper limit of the TTL.
	// +optional
	// +kubebuilder:default=3600
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=604800
	MaxSeconds *int64 `json:"maxSeconds,omitempty"`

	// GraceSeconds is added to the TTL, for connections that start shortly after it expires.
	// +optional
	// +kubebuilder:default=60
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	GraceSeconds *int64 `json:"graceSeconds,omitempty"`

	// InUse is Renew or Expire. With Renew, the agent queries the name of an address again, before its time ends,
	// if the pod uses the address. The address stays open while the response contains it; otherwise while a
	// connection to it is active, up to reuseSeconds. With Expire, the address closes when its time ends.
	// +optional
	// +kubebuilder:default=Renew
	InUse InUse `json:"inUse,omitempty"`

	// ReuseSeconds is how long applications may use an address after the last response that contained it. For
	// this long a connection keeps the address open with inUse: Renew, and for this long the address counts
	// for the rules with Deny and Pass of cluster policies that match its name.
	// +optional
	// +kubebuilder:default=86400
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=604800
	ReuseSeconds *int64 `json:"reuseSeconds,omitempty"`
}

// InUse is Renew or Expire.
//
// +kubebuilder:validation:Enum=Renew;Expire
type InUse string

// What happens at the end of its time to an address that a pod uses.
const (
	InUseRenew  InUse = "Renew"
	InUseExpire InUse = "Expire"
)

// FQDNNetworkPolicyStatus is the state of the policy as reported by the agents.
type FQDNNetworkPolicyStatus struct {
	// Conditions are Accepted, Enforced and DNSBlocked.
	//
	// Accepted is True if the policy is valid. Its reason is Accepted, or PartiallyInvalid if
	// the message names invalid parts and the other parts are in force. If the status is False, the
	// reason is Invalid.
	//
	// Enforced is False if the policy is not enforced, or not fully, for at least one selected
	// pod. Its reason is the most severe finding of the nodes, Audit or NotAccepted.
	//
	// DNSBlocked is True if the DNS queries of at least one selected pod do not reach the agent
	// on its node.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

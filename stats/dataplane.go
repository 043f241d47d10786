package stats

// Dataplane is how the kernel of a node keeps the rules and grants of the Namespace tier.
type Dataplane struct {
	// Name is "iptables" or "nftables".
	Name string `json:"name"`
	// Variant of iptables is "legacy", "nft", or "" where its programs are of one alone.
	Variant string `json:"variant,omitempty"`
	// Reason says why it is this one.
	Reason string `json:"reason"`
}

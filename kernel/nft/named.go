package nft

import "slices"

const (
	servicesSet = "services" // State.Services
	namedChain  = "named"
)

// namedRules are asked of a connection that a rule by name accepts, which looks at what was dialled. Its
// translation may lead anywhere: tenants write Services with spec.externalIPs. A packet that returns is not
// accepted by the rule.
func namedRules(accept string) []string {
	return slices.Concat([]string{"ct status & dnat == 0 " + accept},
		each("ct original %[2]s daddr @"+servicesSet+"%[1]s "+accept), []string{"fib daddr type local " + accept})
}

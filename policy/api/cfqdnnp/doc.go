// Package cfqdnnp reads ClusterFQDNNetworkPolicies: it validates a policy and makes its
// ordered rules.
//
// The compiler reads policies with it; status and check validate with it. The package knows
// the model, package peers and the API type, and no other policy: it does no I/O and reads
// no clock.
//
// A rule with a part that cannot be read is broken, not dropped: dropped, a Deny would open
// what it is to close. See policy.Rule.
package cfqdnnp

// Package cnp reads ClusterNetworkPolicies of policy.networking.k8s.io: which pods a policy
// is for, and its rules for both directions in order.
//
// The compiler reads policies with it; status and check validate with it. The package knows
// the model, package peers and the API type, and no other policy: it does no I/O and reads
// no clock.
//
// Objects are read as they were sent, and a rule with an unknown field or a value that
// cannot be is broken: as Accept it matches nothing, as Deny or Pass it denies everything.
package cnp

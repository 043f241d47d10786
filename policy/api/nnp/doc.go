// Package nnp reads NodeNetworkPolicies: it validates a policy and makes its ordered rules, and it
// reads the time and the confirmation of its safeguard.
//
// The compiler and the agent's safeguard read policies with it; status and check validate with it. It
// does no I/O and reads no clock. A rule with a part that cannot be read is broken, not dropped, as in
// package cfqdnnp.
package nnp

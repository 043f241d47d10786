// Package fqdnnp reads FQDNNetworkPolicies: it validates a policy and makes its rules.
//
// The compiler reads policies with it; status, check and suggest validate with it. The
// package knows the model and the API type, and no other policy: it does no I/O and
// reads no clock.
package fqdnnp

// Package netpol reads NetworkPolicies of networking.k8s.io: which pods a policy isolates in
// which direction, and which peers its rules allow on which ports.
//
// The compiler reads policies with it; source tells by it which NetworkPolicies are for another
// engine alone. The package knows the model, package peers and the API type, and
// no other policy: it does no I/O and reads no clock.
package netpol

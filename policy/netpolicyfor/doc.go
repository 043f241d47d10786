// Package netpolicyfor makes the NetworkPolicy that another NetworkPolicy engine needs beside a
// policy of Namegate: it opens DNS to the node's endpoint and the ports of the policy's rules, for
// pods that the policy and a NetworkPolicy that limits egress both select. Namegate does not
// write the object. A user applies the printed text.
//
// The other engine knows no names, so the ports are open there to every destination; Namegate
// decides which destinations these are. The object has the label netpol.IgnoreLabel, so that it
// opens nothing in Namegate itself.
//
// The package is pure: it knows the model, the readers of the kinds and the API types. Conditions
// and the commands of the console call it.
package netpolicyfor

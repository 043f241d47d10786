// Package proxy answers the DNS queries of a node's pods: whose is the packet,
// what may that pod ask, what does the upstream say, is its answer honest, grant
// its addresses, reply, log.
package proxy

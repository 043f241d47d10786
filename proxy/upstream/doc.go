// Package upstream asks the resolvers that the configuration forwards to. The proxy
// gives a query to the Zone of its name and gets one answer or one error back. In
// between a Zone orders its upstreams by policy and health, sends over UDP, retransmits,
// repeats a truncated answer over TCP, and fails over until the deadline of the zone. A
// Pool holds the upstreams of all zones: their sockets and their health outlive a
// change of the configuration. An answer is believed only from the connected socket of
// its query, with the query's id and question.
//
// The package knows queries and addresses. It knows nothing of pods, views, grants and
// caches, and does not read answers beyond their response code.
package upstream

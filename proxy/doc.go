// Package proxy answers the DNS queries of a node's pods. The agent makes a Server,
// publishes snapshots to it and reads its counters. The package decides by package
// policy's views and knows neither the kernel nor where policies come from: a Granter
// opens addresses, a DecisionLog takes the decisions.
//
// A query is one value that goes through these states, each of which is a method:
//
//	packet → client → decide → cache | join | upstream → check → guard → grant → reply → audit
//
//	packet    udp.go, tcp.go   package listener hands it over; query.start reads the question
//	client    identity.go      which pod's is the address? An unidentified client's query is parked
//	decide    plan.go          what may the pod ask, by its view?
//	cache     lookup.go        query.lookup: an answer that is kept
//	join      call.go          query.join: the call in flight for the same question
//	upstream  call.go          else a call of its own, by package upstream
//	check     check.go         query.check: is the answer honest, and what does it open?
//	guard     check.go         query.guard: no outside name opens an address of the cluster
//	grant     grant.go         query.grant: the kernel acknowledges the addresses first
//	reply     reply.go         query.reply: in place, or by the dns library
//	audit     reply.go         query.audit: counters and log
//
// No goroutine waits for a query: a call, a granter or a timer resumes it. Queries over
// UDP and TCP and parked ones differ in their replier, and queries that no client sent have
// an errand. The one shortcut is the packet cache: Server.cached sends a finished reply from
// package cache, for as long as its view, the guard's verdicts and its grants hold.
package proxy

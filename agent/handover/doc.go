// Package handover decides which agent has a node. One agent at a time writes to the
// kernel; the next one stands by, and queries are answered from the one to the other.
//
//	predecessor: … serves ── ends ─► Finish: release ─► TakenOver? ─► stop heartbeat ─► drains
//	                                            │             ▲
//	next agent:  Take: stands by ───────────────┴─► serves: intercepts queries …
//
// The agent calls Take at its start and Finish at its end. What serving and intercepting
// are is for its Steps to know.
package handover

// Package agent is the life of one node's agent.
//
//	Take ─► start ─► Offer ─► Attach ─► Prepare ─► Publish ─► Warm ─► Commit ─► Settle ─► Finish
//	                   ▲                                                           │
//	                   └──────────────── the source's next state ──────────────────┘
//
// Take waits for the node. The start is that of enforcer, proxy and socket. Offer to Settle
// roll one state out, with interception renewed by a heartbeat from the first on. Finish
// hands the node over.
//
// cmd/namegate calls Run, Cleanup and Uninstall with options made from flags. The order of
// a roll-out is agent/rollout, that of a hand-over agent/handover; the package implements
// their steps by the enforcer, the proxy, the source and the kernel's seams. It knows no
// flag, no rule of the kernel and no DNS message, and decides nothing about a pod.
package agent

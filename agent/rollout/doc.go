// Package rollout applies the states of a source, policies and pods, one after another.
// Of the states that arrive during a roll-out only the last is applied.
//
//	Offer ─► compile ─► Attach ─► Prepare ─► Publish ─► Warm ─► Commit ─► Settle
//
// A pod that becomes isolated is left out of the commit until its exact names are
// resolved; no other pod, and no later state, waits for that. The agent implements the
// stages by its enforcer and its proxy. A Rollout knows neither: it holds their order.
package rollout

// Package stats is the state and the counters that the enforcer and the proxy report of
// themselves, as the agent's status has them in JSON. The console reads them on every
// operating system, so the package imports nothing of Namegate.
package stats

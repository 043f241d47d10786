// Package counters counts the proxy's work: its totals, the verdicts by query type, and
// the duration of queries by stage. The proxy counts, each without a lock or an
// allocation; the agent's metrics and status read Stats. It decides nothing, and knows no
// query.
package counters

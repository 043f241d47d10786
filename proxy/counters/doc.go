// Package counters counts what the proxy does: its totals, the verdicts by the type of the
// question, and how long questions took, by what they waited for. The proxy counts, each
// without a lock or an allocation; the agent's metrics and status read Stats. It decides
// nothing, and knows no query.
package counters

// Package metrics serves the agent's numbers to Prometheus, with its probes and profiles
// on the same port. docs/metrics.md lists every metric.
//
// The agent calls it with Facts, which are plain values read at each scrape, and measures
// its roll-outs by a Timing. Nothing here knows how the agent comes by its numbers.
package metrics

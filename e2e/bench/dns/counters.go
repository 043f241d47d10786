package main

import (
	"encoding/json"
	"fmt"
)

// counters are those totals of the agent that tell whether it did all of its work.
type counters struct {
	Snapshot uint64 `json:"snapshot"`
	Proxy    struct {
		Allowed         uint64 `json:"allowed"`
		UpstreamQueries uint64 `json:"upstreamQueries"`
	} `json:"proxy"`
	Audit struct {
		Written uint64 `json:"written"`
		Dropped uint64 `json:"dropped"`
	} `json:"audit"`
	Enforcer struct {
		Grants  uint64 `json:"grants"`
		Evicted uint64 `json:"evictedGrants"`
	} `json:"enforcer"`
}

func (g *gate) counters() (c counters, err error) {
	out, err := g.agent.Command("status", "-o", "json", "--socket", g.agent.Socket()).Output()
	if err != nil {
		return c, fmt.Errorf("ask the agent for its counters: %w", err)
	}
	if err := json.Unmarshal(out, &c); err != nil {
		return c, fmt.Errorf("read the agent's counters: %w", err)
	}
	return c, nil
}

// work says what the agent did between two readings, an error if it did not decide,
// log and grant what it answered, or logged although it is silent.
func work(before, after counters, good int, silent bool) (string, error) {
	allowed := after.Proxy.Allowed - before.Proxy.Allowed
	logged := after.Audit.Written - before.Audit.Written + after.Audit.Dropped - before.Audit.Dropped
	// The last lines may still be on their way to the log.
	if int(allowed) < good || !silent && logged < allowed/2 || silent && logged > 0 || after.Enforcer.Grants == 0 {
		return "", fmt.Errorf("the agent gave %d good answers but allowed %d, logged %d and has %d grants: that is not what is to be measured",
			good, allowed, logged, after.Enforcer.Grants)
	}
	return fmt.Sprintf("; asked upstream %d, grants now %d, evicted %d, logged %d of which dropped %d", after.Proxy.UpstreamQueries-before.Proxy.UpstreamQueries,
		after.Enforcer.Grants, after.Enforcer.Evicted-before.Enforcer.Evicted, logged, after.Audit.Dropped-before.Audit.Dropped), nil
}

package main

import (
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/namegate/namegate/testkit/fatal"
)

// counters are those totals of the agent that tell whether it did all of its work.
type counters struct {
	Snapshot uint64 `json:"snapshot"`
	Proxy    struct {
		Allowed uint64 `json:"allowed"`
	} `json:"proxy"`
	Audit struct {
		Written uint64 `json:"written"`
		Dropped uint64 `json:"dropped"`
	} `json:"audit"`
	Enforcer struct {
		Grants uint64 `json:"grants"`
	} `json:"enforcer"`
}

func (g *gate) counters() (c counters, err error) {
	resp, err := g.agent.Get("/v1/status")
	if err != nil {
		return c, fmt.Errorf("ask the agent for its counters: %w", err)
	}
	defer resp.Body.Close()
	return c, json.NewDecoder(resp.Body).Decode(&c)
}

// watch is the agent under a run; of a peer it does nothing.
type watch struct {
	*gate
	before counters
	began  time.Time
	stop   func() error
	// stirred: snapshots follow each other.
	stirred bool
}

func (b *bench) watch(t target) (w watch) {
	w = watch{gate: t.gate, began: time.Now(), stop: func() error { return nil }}
	if t.gate == nil {
		return w
	}
	var err error
	w.before, err = t.gate.counters()
	fatal.If(b, err)
	if t.changes {
		w.stop, w.stirred = sync.OnceValue(t.gate.churn()), true
	}
	return w
}

const (
	// drainLimit is how long grants of new names may take to end.
	drainLimit = 15 * time.Second
	// minSnapshots is how many snapshots a second have to come into force, of nearly
	// ten on a quiet machine.
	minSnapshots = 5
)

// check ends the benchmark if the agent did not decide, log and grant the good answers of a run,
// or logged although it is silent. It waits until there are no more grants than before.
func (b *bench) check(w watch, good int) {
	fatal.If(b, w.stop())
	if w.gate == nil {
		return
	}
	took := time.Since(w.began).Seconds()
	after, err := w.counters()
	fatal.If(b, err)
	allowed := after.Proxy.Allowed - w.before.Proxy.Allowed
	logged := after.Audit.Written - w.before.Audit.Written + after.Audit.Dropped - w.before.Audit.Dropped
	// The last lines may still be on their way to the log.
	if int(allowed) < good || !w.silent && logged < allowed/2 || w.silent && logged > 0 || after.Enforcer.Grants == 0 {
		b.Fatal(fmt.Errorf("the agent gave %d good answers but allowed %d, logged %d and has %d grants: that is not to be measured",
			good, allowed, logged, after.Enforcer.Grants))
	}
	if rate := float64(after.Snapshot-w.before.Snapshot) / took; w.stirred && rate < minSnapshots {
		b.Fatal(fmt.Errorf("only %.1f snapshots a second came into force: that is not to be measured", rate))
	}
	for until := time.Now().Add(drainLimit); after.Enforcer.Grants > w.before.Enforcer.Grants; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(until) {
			b.Fatal(fmt.Errorf("grants of new names have not ended after %s", drainLimit))
		}
		after, err = w.counters()
		fatal.If(b, err)
	}
}

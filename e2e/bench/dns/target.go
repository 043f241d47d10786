package main

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"path/filepath"
	"sync"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/bench/dnsperf"
	"github.com/namegate/namegate/e2e/bench/fake"
	"github.com/namegate/namegate/e2e/bench/ground"
	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
)

// target is a server that is measured.
type target struct {
	name string
	pid  int
	// pod is where the client runs, at the address that it asks.
	pod *lab.Host
	at  netip.AddrPort
	// gate is the node of the agent; nil of a peer.
	gate *gate
	// changes: pods of other nodes come and go meanwhile.
	changes bool
}

const (
	// clients are dnsperf's sockets, outstanding its queries under way: enough
	// that the server is never without work.
	clients, outstanding = 10, 100
	// keptNames is how many names are asked for again and again.
	keptNames = 1000
)

// ask lets dnsperf ask a target.
func (b *bench) ask(t target, r dnsperf.Run) (dnsperf.Result, error) {
	r.Server = t.at
	if r.Clients == 0 {
		r.Clients, r.Outstanding = clients, outstanding
	}
	return r.On(b.Context, t.pod)
}

// keptQuestions writes the file of questions whose answers are kept, and lets the targets
// answer each of them once, slowly.
func (b *bench) keptQuestions(targets ...target) (file string) {
	file = filepath.Join(b.Dir, "kept.txt")
	fatal.If(b, dnsperf.WriteQuestions(file, keptNames, false, func(n int) string { return fmt.Sprintf("c%d.%s", n, fake.KeptZone) }))
	for _, t := range targets {
		r, err := b.ask(t, dnsperf.Run{File: file, Clients: 1, Outstanding: 20})
		if err == nil && r.Good != r.Sent {
			err = fmt.Errorf("%s did not answer everything: %+v", t.name, r)
		}
		fatal.If(b, err)
	}
	return file
}

// newQuestions writes questions for names that were not asked for before.
func (b *bench) newQuestions(count int) (file string) {
	b.files++
	file = filepath.Join(b.Dir, fmt.Sprintf("new%d.txt", b.files%2)) // two are in use at a time at most
	first := b.next
	b.next += count
	fatal.If(b, dnsperf.WriteQuestions(file, count, false, func(n int) string {
		return fmt.Sprintf("n%d.w%d.%s", first+n, (first+n)%newZones, fake.NewZone)
	}))
	return file
}

// wakeLimit is how long a server may take until it answers.
const wakeLimit = time.Minute

// wake waits until servers answer.
func (b *bench) wake(targets ...target) {
	for _, t := range targets {
		for until := time.Now().Add(wakeLimit); ; time.Sleep(20 * time.Millisecond) {
			_, err := t.pod.Ask("udp", t.at, "wake."+fake.KeptZone, dns.TypeA, ground.AskLimit)
			if err == nil {
				break
			}
			if b.peers != nil {
				if failed := b.peers.failed(); failed != nil {
					b.Fatal(failed)
				}
			}
			if b.Context.Err() != nil || time.Now().After(until) {
				b.Fatal(fmt.Errorf("wait for %s: %w", t.name, err))
			}
		}
	}
}

// meter measures the processor time of a target.
func (b *bench) meter(t target) *ground.Meter {
	var ours []int
	for _, g := range b.gates {
		ours = append(ours, g.upstream.PID())
	}
	if b.peers != nil {
		ours = append(ours, b.peers.upstream.PID())
	}
	return b.NewMeter(t.pid, ours...)
}

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

package main

import (
	"fmt"
	"net/netip"
	"path/filepath"
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

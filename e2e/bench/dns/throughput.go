package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/namegate/namegate/e2e/bench/dnsperf"
	"github.com/namegate/namegate/e2e/bench/fake"
	"github.com/namegate/namegate/e2e/bench/figure"
	"github.com/namegate/namegate/e2e/bench/ground"
)

const (
	// keptNames is how many names are asked for again and again.
	keptNames = 1000
	// clients are dnsperf's sockets, outstanding its queries under way: enough
	// that the server is never without work.
	clients, outstanding = 10, 100
	// fastest is more new names a second than any server here takes.
	fastest = 250_000
	// slowRate is a rate that every server takes easily.
	slowRate = 5000
)

// asking gives the file of questions for the next run.
type asking func() (file string, err error)

// cached measures answers that every server has kept.
func (b *bench) cached() error {
	targets, err := b.targets(udpEcho, corednsCache, dnsmasqCache)
	if err != nil {
		return err
	}
	file, err := b.keptQuestions()
	if err != nil {
		return err
	}
	for _, t := range targets {
		if err := b.prime(t, file); err != nil {
			return err
		}
	}
	return b.compare("dns.cached", targets, func() (string, error) { return file, nil })
}

// keptQuestions writes the file of questions whose answers are kept.
func (b *bench) keptQuestions() (file string, err error) {
	file = filepath.Join(b.Dir, "kept.txt")
	return file, writeQuestions(file, 0, keptNames, func(n int) string { return fmt.Sprintf("c%d.%s", n, fake.KeptZone) })
}

// forwarded measures uncached answers, each to a name of its own.
func (b *bench) forwarded() error {
	targets, err := b.targets(udpEcho, corednsForward, dnsmasqIPSet)
	if err != nil {
		return err
	}
	return b.compare("dns.forwarded", targets, b.newNames)
}

// targets are the agent and peers, all of them running and answering.
func (b *bench) targets(peers ...string) ([]target, error) {
	g, err := b.gate(raised)
	if err != nil {
		return nil, err
	}
	rivals, err := b.rivals(peers...)
	if err != nil {
		return nil, err
	}
	targets := append([]target{g.target()}, rivals...)
	for _, t := range targets {
		if err := b.wake(t); err != nil {
			return nil, err
		}
	}
	return targets, nil
}

// compare measures every target in every round, first as fast as it can, then at
// one rate, and reports the medians.
func (b *bench) compare(name string, targets []target, ask asking) error {
	for _, rate := range []int{0, slowRate} {
		samples, err := b.rotate(name, targets, rate, ask)
		if err != nil {
			return err
		}
		if err := b.reportThroughput(name, targets, rate, samples); err != nil {
			return err
		}
	}
	return b.profiled(name, targets[0], ask)
}

// profiled runs the questions at the agent once more while perf looks on.
func (b *bench) profiled(name string, t target, ask asking) error {
	if b.profile == "" {
		return nil
	}
	questions, err := ask()
	if err != nil {
		return err
	}
	return b.Profile(b.profile, name, t.pid, b.span, func() error {
		_, _, err := b.dnsperf(t, dnsperf.Run{File: questions, For: b.span + 200*time.Millisecond, Clients: clients, Outstanding: outstanding})
		return err
	})
}

// rotate measures the targets in turn, in each round beginning with another, and
// returns the samples of each target by its name.
func (b *bench) rotate(name string, targets []target, rate int, ask asking) (map[string][]sample, error) {
	samples := map[string][]sample{}
	for round := range b.options.rounds {
		for i := range targets {
			t := targets[(round+i)%len(targets)]
			questions, err := ask()
			if err != nil {
				return nil, err
			}
			s, did, err := b.watched(t, questions, rate)
			if err != nil {
				return nil, err
			}
			b.Note("%s%s %s round %d: %s%s", name, ground.At(rate), t.name, round+1, s, did)
			samples[t.name] = append(samples[t.name], s)
		}
	}
	return samples, nil
}

func at(rate int) string {
	if rate == 0 {
		return ""
	}
	return fmt.Sprintf(" at %d q/s", rate)
}

// watched is sample; of the agent it tells what it did meanwhile, and waits until
// the grants have ended, so that removing them costs no other run.
func (b *bench) watched(t target, questions string, rate int) (s sample, did string, err error) {
	if t.gate == nil {
		s, err = b.sample(t, questions, rate)
		return s, "", err
	}
	before, err := t.gate.counters()
	if err != nil {
		return s, "", err
	}
	began, stop := time.Now(), func() error { return nil }
	if t.changes {
		stop = t.gate.churn()
	}
	s, err = b.sample(t, questions, rate)
	if err = errors.Join(err, stop()); err != nil {
		return s, "", err
	}
	took := time.Since(began)
	after, err := t.gate.counters()
	if err != nil {
		return s, "", err
	}
	if did, err = work(before, after, s.good, t.gate.silent); err != nil {
		return s, "", err
	}
	if t.changes {
		s.snapshots = float64(after.Snapshot-before.Snapshot) / took.Seconds()
		did += fmt.Sprintf("; %.1f snapshots a second", s.snapshots)
	}
	s.removal, err = b.drain(t, after.Enforcer.Grants, before.Enforcer.Grants)
	return s, did, err
}

// drainLimit is how long grants of new names may take to end.
const drainLimit = 15 * time.Second

// drain waits until the agent has no more grants than it had, and returns the
// processor time in µs that ending one took.
func (b *bench) drain(t target, have, had uint64) (float64, error) {
	if have <= had {
		return 0, nil
	}
	began, err := b.costs(t)
	if err != nil {
		return 0, err
	}
	for until := time.Now().Add(drainLimit); time.Now().Before(until); time.Sleep(100 * time.Millisecond) {
		if b.Context.Err() != nil {
			return 0, ground.ErrInterrupted
		}
		s, err := t.gate.agent.Status()
		if err != nil {
			return 0, fmt.Errorf("ask how many grants there are: %w", err)
		}
		if uint64(s.Enforcer.Grants) <= had {
			ended, err := b.costs(t)
			return float64((ended.server - began.server).Nanoseconds()) / 1e3 / float64(have-had), err
		}
	}
	return 0, fmt.Errorf("grants of new names have not ended after %s", drainLimit)
}

// kind is a figure that samples give.
type kind struct {
	name, unit string
	of         func(sample) float64
}

var (
	cpuOf     = kind{".cpu_us", "us", func(s sample) float64 { return s.cpu }}
	qpsOf     = kind{".qps", "1/s", func(s sample) float64 { return s.qps }}
	removalOf = kind{".removal_us", "us", func(s sample) float64 { return s.removal }}
	// snapshotsOf is no figure, but says what others are worth.
	snapshotsOf = kind{".snapshots", "1/s", func(s sample) float64 { return s.snapshots }}
)

// read returns one number of samples.
func (k kind) read(samples []sample) (out figure.Series) {
	for _, s := range samples {
		out = append(out, figure.Reading{Value: k.of(s), Others: s.others})
	}
	return out
}

// reportThroughput writes the figures of one comparison: the agent's median, and
// those of each peer.
func (b *bench) reportThroughput(name string, targets []target, rate int, samples map[string][]sample) error {
	own := samples[targets[0].name]
	kinds := []kind{cpuOf, qpsOf}
	if rate > 0 {
		kinds = kinds[:1] // the other is the rate
	}
	for _, k := range kinds {
		s := k.read(own)
		f := figure.Figure{Name: name + k.name, Value: s.Median(), Unit: k.unit, Rate: rate}
		for _, peer := range targets[1:] {
			p := k.read(samples[peer.name])
			if err := b.Report(f.Against(peer.name, p.Median()), max(s.Others(), p.Others())); err != nil {
				return err
			}
		}
	}
	if s := removalOf.read(own); s.Median() > 0 && rate == 0 {
		return b.Report(figure.Figure{Name: name + removalOf.name, Value: s.Median(), Unit: removalOf.unit}, s.Others())
	}
	return nil
}

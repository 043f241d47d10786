package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/namegate/namegate/e2e/bench/dnsperf"
	"github.com/namegate/namegate/e2e/bench/figure"
	"github.com/namegate/namegate/testkit/fatal"
)

// fastest is more new names a second than any server here takes.
const fastest = 250_000

// asking gives the file of questions for the next run.
type asking func() (file string)

func always(file string) asking { return func() string { return file } }

// cached measures answers that every server has kept.
func (b *bench) cached() {
	targets := b.targets(udpEcho, corednsCache, dnsmasqCache)
	file := b.keptQuestions(targets...)
	b.compare(figure.Figure{Name: "dns.cached"}, targets, b.Rounds, b.Span, always(file))
}

// forwarded measures uncached answers, each to a name of its own.
func (b *bench) forwarded() {
	targets := b.targets(udpEcho, corednsForward, dnsmasqIPSet)
	b.compare(figure.Figure{Name: "dns.forwarded"}, targets, b.Rounds, b.Span, func() string {
		return b.newQuestions(int(b.Span.Seconds() * fastest))
	})
}

const (
	// noAudit is an agent like the one that is measured, without an audit log.
	noAudit = "no-audit"
	// shortTurns is how many turns a round of the others is where agents are compared that
	// differ little, each so much shorter: the machine's speed changes within a second.
	shortTurns = 4
)

// audit measures what the audit log takes of the throughput: kept answers, as many
// as go, from two agents that differ in the log alone.
func (b *bench) audit() {
	var targets []target
	for _, silent := range []bool{false, true} {
		g := b.gate(manner{limits: raised, silent: silent})
		targets = append(targets, g.target())
	}
	b.wake(targets...)
	file := b.keptQuestions(targets...)
	samples := b.rotate("dns.audit", targets, b.Rounds*shortTurns, max(b.Span/shortTurns, 100*time.Millisecond), always(file))
	with, without := qpsOf(samples[targets[0].name]), qpsOf(samples[noAudit])
	cost := 100 * (1 - with.Median()/without.Median())
	b.Report(figure.Figure{Name: "dns.audit.cost", Value: cost, Unit: "%", Peer: noAudit}, max(with.Others(), without.Others()))
}

// targets are the agent and peers, all of them running and answering.
func (b *bench) targets(peers ...string) []target {
	g := b.gate(manner{limits: raised})
	rivals := b.rivals(peers...)
	targets := append([]target{g.target()}, rivals...)
	b.wake(targets...)
	return targets
}

// compare measures every target in every round, as fast as it can, and reports the median of
// the first beside that of each other one.
func (b *bench) compare(f figure.Figure, targets []target, rounds int, span time.Duration, ask asking) {
	samples := b.rotate(f.Name, targets, rounds, span, ask)
	for _, k := range []struct {
		name, unit string
		of         func([]sample) figure.Series
	}{{".cpu_us", "us", cpuOf}, {".qps", "1/s", qpsOf}} {
		own, f := k.of(samples[targets[0].name]), figure.Figure{Name: f.Name + k.name, Unit: k.unit, State: f.State}
		f.Value = own.Median()
		for _, peer := range targets[1:] {
			p := k.of(samples[peer.name])
			b.Report(f.Against(peer.name, p.Median()), max(own.Others(), p.Others()))
		}
	}
}

// sample is what one run at one server gave: its processor time a good answer, in µs, and the
// good answers a second. others is the processor time of unrelated programs, in shares of one
// core: how much the run was disturbed.
type sample struct{ cpu, qps, others float64 }

func cpuOf(samples []sample) (out figure.Series) {
	for _, s := range samples {
		out = append(out, figure.Reading{Value: s.cpu, Others: s.others})
	}
	return out
}

func qpsOf(samples []sample) (out figure.Series) {
	for _, s := range samples {
		out = append(out, figure.Reading{Value: s.qps, Others: s.others})
	}
	return out
}

// rotate measures the targets in turn, in each round beginning with another, and
// returns the samples of each target by its name.
func (b *bench) rotate(name string, targets []target, rounds int, span time.Duration, ask asking) map[string][]sample {
	samples := map[string][]sample{}
	for round := range rounds {
		for i := range targets {
			t := targets[(round+i)%len(targets)]
			questions := ask()
			s := b.sample(t, dnsperf.Run{File: questions, For: span})
			b.Note("%s %s round %d: %.1f µs, %.0f q/s, others took %.0f %% of a core", name, t.name, round+1, s.cpu, s.qps, s.others*100)
			samples[t.name] = append(samples[t.name], s)
		}
	}
	return samples
}

// sample runs dnsperf once at a server. Of the agent it checks the work meanwhile, and waits
// until the grants have ended, so that removing them costs no other run.
func (b *bench) sample(t target, run dnsperf.Run) sample {
	w := b.watch(t)
	defer func() { _ = w.stop() }()
	m := b.meter(t)
	r, err := b.ask(t, run)
	fatal.If(b, err)
	server, others := m.End(r.CPU)
	b.check(w, r.Good)
	return sample{float64(server.Nanoseconds()) / 1e3 / float64(r.Good), r.QPS(), others}
}

const (
	// withSnapshots is the state of figures that were taken while snapshots followed
	// each other, noSnapshots the same agent while none came.
	withSnapshots, noSnapshots = "snapshots", "no-snapshots"
	// folderRead is in the agent's log each time that it has read its folder, which it
	// does 100 ms after the last change; logPoll is how often the log is read.
	folderRead = "manifests read"
	logPoll    = 2 * time.Millisecond
)

// snapshots measures kept answers while pods of other nodes come and go, and without
// that, in turns as short as those of the audit log.
func (b *bench) snapshots() {
	g := b.gate(manner{limits: raised})
	still, moving := g.target(), g.target()
	still.name, moving.changes = noSnapshots, true
	b.wake(still)
	file := b.keptQuestions(still)
	b.compare(figure.Figure{Name: "dns.cached", State: withSnapshots}, []target{moving, still},
		b.Rounds*shortTurns, max(b.Span/shortTurns, time.Second), always(file))
}

// churn changes a pod of another node, and does so again as soon as the agent has read
// that, until stop is called.
func (g *gate) churn() (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- g.change(ctx) }()
	return func() error {
		cancel()
		return <-ended
	}
}

func (g *gate) change(ctx context.Context) error {
	log, err := os.Open(filepath.Join(g.agent.Dir, "agent.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	if _, err := log.Seek(0, io.SeekEnd); err != nil {
		return err
	}
	tick := time.NewTicker(logPoll)
	defer tick.Stop()
	for i := 0; ; i++ {
		if err := g.agent.Write(map[string]string{"pod-elsewhere.yaml": elsewhere(i)}); err != nil {
			return err
		}
		for read := false; !read; {
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
			news, err := io.ReadAll(log)
			if err != nil {
				return err
			}
			read = bytes.Contains(news, []byte(folderRead))
		}
	}
}

// elsewhere is the manifest of a pod of another node at its i-th address.
func elsewhere(i int) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {namespace: %s, name: elsewhere, uid: elsewhere-%d}\n"+
		"spec: {nodeName: another-node, containers: []}\nstatus: {phase: Running, podIPs: [{ip: 10.1.1.%d}]}\n", manifestSpace, i, 1+i%250)
}

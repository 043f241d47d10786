package main

import (
	"bytes"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/namegate/namegate/e2e/bench/dnsperf"
	"github.com/namegate/namegate/e2e/bench/ground"
	"github.com/namegate/namegate/e2e/bench/process"
)

// sample is what one run at one server gave.
type sample struct {
	// cpu is the server's processor time a good answer, in µs; qps the good
	// answers a second, good their number.
	cpu, qps float64
	good     int
	// bad is the share of queries without a good answer.
	bad float64
	// others is the processor time of unrelated programs, in
	// shares of one core: how much the run was disturbed.
	others float64
	// removal is the processor time, in µs, that ending one grant took afterwards.
	removal float64
	// snapshots is how many came into force a second, while pods of other nodes changed.
	snapshots float64
}

// String is for people.
func (s sample) String() string {
	return fmt.Sprintf("%.1f µs, %.0f q/s, without a good answer %.2f %%, others took %.0f %% of a core", s.cpu, s.qps, s.bad*100, s.others*100)
}

// sample runs dnsperf once at a server.
func (b *bench) sample(t target, questions string, rate int) (sample, error) {
	m, err := b.measure(t)
	if err != nil {
		return sample{}, err
	}
	r, used, err := b.dnsperf(t, dnsperf.Run{File: questions, For: b.span, Rate: rate, Clients: clients, Outstanding: outstanding})
	if err != nil {
		return sample{}, err
	}
	server, others, err := m.end(used)
	if err != nil {
		return sample{}, err
	}
	if r.Good == 0 {
		return sample{}, fmt.Errorf("%s gave no good answer: %+v", t.name, r)
	}
	return sample{
		cpu: float64(server.Nanoseconds()) / 1e3 / float64(r.Good),
		qps: r.QPS(), good: r.Good,
		bad:    1 - float64(r.Good)/float64(max(r.Sent, 1)),
		others: others,
	}, nil
}

// cost is processor time used so far: by the server, by the benchmark's own
// processes, by everybody.
type cost struct{ server, ours, busy time.Duration }

func (b *bench) costs(t target) (c cost, err error) {
	if t.pid != 0 {
		if c.server, err = process.CPU(t.pid); err != nil {
			return c, fmt.Errorf("%s is gone: %w", t.name, err)
		}
	}
	for _, pid := range b.ours() {
		d, err := process.CPU(pid)
		if err != nil {
			return c, fmt.Errorf("a part of the benchmark is gone: %w", err)
		}
		c.ours += d
	}
	c.busy, err = process.Busy()
	return c, err
}

// ours are the benchmark's own processes beside the servers that are measured.
func (b *bench) ours() []int {
	pids := []int{os.Getpid()}
	for _, g := range b.gates {
		pids = append(pids, g.upstream.PID())
	}
	if b.peers != nil {
		pids = append(pids, b.peers.upstream.PID())
	}
	return pids
}

// meter is a measurement under way.
type meter struct {
	bench  *bench
	target target
	before cost
	began  time.Time
}

func (b *bench) measure(t target) (*meter, error) {
	before, err := b.costs(t)
	return &meter{b, t, before, time.Now()}, err
}

// end returns the processor time of the server, and of others in shares of a core.
// used is the time of programs that began and ended meanwhile.
func (m *meter) end(used time.Duration) (server time.Duration, others float64, err error) {
	after, err := m.bench.costs(m.target)
	if err != nil {
		return 0, 0, err
	}
	server = after.server - m.before.server
	rest := after.busy - m.before.busy - (after.ours - m.before.ours) - server - used
	// The times are in ticks: a difference may be a little below zero.
	return server, max(0, rest.Seconds()/time.Since(m.began).Seconds()), nil
}

// dnsperf runs it in the target's pod; used is its processor time.
func (b *bench) dnsperf(t target, r dnsperf.Run) (result dnsperf.Result, used time.Duration, err error) {
	r.Server = t.at
	cmd := r.Command(b.Context)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := t.pod.Do(cmd.Start); err != nil {
		return result, 0, fmt.Errorf("start dnsperf: %w", err)
	}
	err = cmd.Wait()
	if b.Context.Err() != nil {
		return result, 0, ground.ErrInterrupted
	}
	if err == nil {
		result, err = dnsperf.Parse(out.String())
	}
	if err != nil {
		return result, 0, fmt.Errorf("dnsperf at %s: %w\n%s", t.name, err, out.String())
	}
	return result, cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), nil
}

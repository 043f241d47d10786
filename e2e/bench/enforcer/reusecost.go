package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"sync"
	"time"

	"github.com/namegate/namegate/e2e/bench/figure"
	"github.com/namegate/namegate/e2e/bench/process"
)

const (
	// One name of usedShare is in use.
	usedShare = 10
	usedMax   = maxGrants / usedShare
	// reuseTTL is of the upstream's answers, in seconds. With the other times of a policy at
	// their defaults a grant lives for reuseLife, up to the next multiple of reuseStep.
	reuseTTL, graceSeconds = 30, 60
	reuseLife              = (reuseTTL + graceSeconds) * time.Second
	reuseStep              = 16 * time.Second
	// longTTL has times and steps that are longLife times as long.
	longTTL  = 300
	longLife = (longTTL + graceSeconds) / (reuseTTL + graceSeconds)
	// questionEvery is the time between two questions of a node's pods: they ask for each grant
	// within the mean time of a grant, and for the next idle ones then.
	questionEvery = (reuseLife + reuseStep/2) / maxGrants
	// useEvery is how often a used address is connected to.
	useEvery = reuseLife / 2
	// reuseReadings is how many steps are measured.
	reuseReadings = 6
	// podsAtOnce is how many pods of a node ask at the same time.
	podsAtOnce = 8
)

// cost is what an agent needed.
type cost struct {
	cpu, rss, rate figure.Series // in percent of a core, in MiB, in queries a second
}

func reuseState(dataplane string, ttl int) string {
	return fmt.Sprintf("%s, %d in use, TTL %d, %s", grantsState, usedMax, ttl, dataplane)
}

func peakState(dataplane string) string { return reuseState(dataplane, reuseTTL) + ", peak" }

// reuseCost measures agents with many grants of which a share is used, each name resolved once,
// while pods resolve new names in place of those that end unused.
func (b *bench) reuseCost(both []*renewing, dataplane string) error {
	ctx, cancel := context.WithCancelCause(b.Context)
	var clients sync.WaitGroup
	defer clients.Wait()
	defer cancel(nil)
	for _, r := range both {
		if err := r.lives(""); err != nil {
			return err
		}
	}
	b.Note("reuse: pods ask for %d names in %.0f s", maxGrants, (questionEvery * maxGrants).Seconds())
	begun := time.Now().Add(time.Second)
	for _, r := range both {
		for k := range podsAtOnce {
			clients.Go(func() { cancel(r.askFrom(ctx, begun, k)) })
		}
		if !r.expires {
			clients.Go(func() { cancel(r.reconnect(ctx, usedFrom(begun), useEvery, math.MaxInt)) })
		}
	}
	// The first that are used are renewed, and the first unused ones gone.
	sleepUntil(ctx, begun.Add(reuseLife+2*reuseStep))
	for range reuseReadings {
		if err := b.readCost(ctx, both); err != nil {
			return err
		}
	}
	for _, r := range both {
		s, err := r.agent.Status()
		if err != nil {
			return err
		}
		b.Note("reuse: %s has %d grants; %d queries of pods failed", r.name, s.Enforcer.Grants, r.failed.Load())
		if want := maxGrants - usedMax; s.Enforcer.Grants < want*9/10 || !r.expires && s.Enforcer.Grants < maxGrants*9/10 {
			return fmt.Errorf("%s has %d grants", r.name, s.Enforcer.Grants)
		}
	}
	if cancel(nil); !errors.Is(context.Cause(ctx), context.Canceled) {
		return context.Cause(ctx)
	}
	clients.Wait()
	return b.reportCost(both[0], both[1], dataplane)
}

// readCost reads what the agents need during a step.
func (b *bench) readCost(ctx context.Context, both []*renewing) error {
	before, err := spentBy(both)
	if err != nil {
		return err
	}
	began, queries := time.Now(), []int64{both[0].queries.Load(), both[1].queries.Load()}
	for until := began.Add(reuseStep); time.Now().Before(until); {
		if !sleepUntil(ctx, time.Now().Add(time.Second)) {
			return context.Cause(ctx)
		}
		for i, r := range both {
			size, err := process.RSS(before.pids[i])
			if err != nil {
				return err
			}
			r.rss = append(r.rss, figure.Reading{Value: float64(size) / (1 << 20)})
		}
	}
	after, err := spentBy(both)
	if err != nil {
		return err
	}
	took := time.Since(began).Seconds()
	others := max(0, (after.others-before.others).Seconds()/took)
	for i, r := range both {
		r.cpu = append(r.cpu, figure.Reading{Value: 100 * (after.agents[i] - before.agents[i]).Seconds() / took, Others: others})
		r.rate = append(r.rate, figure.Reading{Value: float64(r.queries.Load()-queries[i]) / took, Others: others})
		last := len(r.cpu) - 1
		b.Note("reuse: %s: %.2f %% of a core, %.0f queries a second for used names, %.1f MiB; others took %.0f %%", r.name, r.cpu[last].Value, r.rate[last].Value, r.rss[len(r.rss)-1].Value, others*100)
	}
	return nil
}

// agentsSpent is processor time: of each agent, and of everybody but the agents, the benchmark and
// its servers.
type agentsSpent struct {
	pids   []int
	agents []time.Duration
	others time.Duration
}

func spentBy(nodes []*renewing) (s agentsSpent, err error) {
	if s.others, err = process.Busy(); err != nil {
		return s, err
	}
	own, err := process.CPU(os.Getpid())
	if err != nil {
		return s, err
	}
	s.others -= own
	for _, r := range nodes {
		pid, err := process.Listener(r.agent.Socket())
		if err != nil {
			return s, err
		}
		agent, err := process.Whole(pid)
		if err != nil {
			return s, err
		}
		sink, err := process.CPU(r.sink.PID())
		if err != nil {
			return s, err
		}
		s.pids, s.agents = append(s.pids, pid), append(s.agents, agent)
		s.others -= agent + sink
	}
	return s, nil
}

// reportCost reports what renewal needs more than expiry.
func (b *bench) reportCost(renews, expires *renewing, dataplane string) error {
	short, long := reuseState(dataplane, reuseTTL), reuseState(dataplane, longTTL)
	var more figure.Series
	for i, c := range renews.cpu {
		more = append(more, figure.Reading{Value: c.Value - expires.cpu[i].Value, Others: c.Others})
	}
	b.Note("reuse: %d connections to used addresses of %s", renews.tried, renews.name)
	rate, others := renews.rate.Median(), more.Others()
	for _, f := range []figure.Figure{
		figure.Figure{Name: "reuse.agent_cpu_percent", Value: renews.cpu.Median(), Unit: "%", State: short}.Against(expire, expires.cpu.Median()),
		{Name: "reuse.cpu_percent", Value: more.Median(), Unit: "%", State: short},
		{Name: "reuse.cpu_percent", Value: more.Median() / longLife, Unit: "%", State: long},
		figure.Figure{Name: "reuse.queries_per_s", Value: rate, Unit: "1/s", State: short}.Against(expire, expires.rate.Median()),
		figure.Figure{Name: "reuse.queries_per_s", Value: rate / longLife, Unit: "1/s", State: long}.Against(expire, expires.rate.Median()/longLife),
		figure.Figure{Name: "agent.rss_mib", Value: renews.rss.Median(), Unit: "MiB", State: short}.Against(expire, expires.rss.Median()),
		figure.Figure{Name: "agent.rss_mib", Value: renews.peak(), Unit: "MiB", State: peakState(dataplane)}.Against(expire, expires.peak()),
		{Name: "reuse.lost_connections", Value: float64(renews.lost), Unit: "connections", State: short},
	} {
		b.Note("%s, %s: %.4g, %s %.4g", f.Name, f.State, f.Value, f.Peer, f.PeerValue)
		if err := b.Report(f, others); err != nil {
			return err
		}
	}
	return nil
}

func (c *cost) peak() (most float64) {
	for _, r := range c.rss {
		most = max(most, r.Value)
	}
	return most
}

// question is the i-th of a node's pods; used tells whether it is for a name that is used. A used
// name is asked for once: the place of another question is empty, without a name.
func question(i int) (u used, isUsed bool) {
	k := i / (2 * maxPods)
	u = used{pod: i / 2 % maxPods, qtype: families[i%2]}
	switch {
	case k%usedShare != 0:
		u.name = fmt.Sprintf("h%d-p%d.set-%d.bench.test.", k, u.pod, k%portSets)
	case i < maxGrants:
		u.name = fmt.Sprintf("%s%d-p%d.set-%d.bench.test.", usedPrefix, k, u.pod, portSets/2)
	}
	return u, k%usedShare == 0 && u.name != ""
}

func due(begun time.Time, i int) time.Time { return begun.Add(time.Duration(i) * questionEvery) }

// usedFrom are the used names, in the order of their questions.
func usedFrom(begun time.Time) (all []used) {
	for i := range maxGrants {
		if u, is := question(i); is {
			u.at = due(begun, i)
			all = append(all, u)
		}
	}
	return all
}

// askFrom asks the questions of the k-th part of the pods, until the context ends.
func (r *renewing) askFrom(ctx context.Context, begun time.Time, k int) error {
	conns := map[int]net.Conn{}
	for pod := k; pod < maxPods; pod += podsAtOnce {
		c, err := r.asPod(pod)
		if err != nil {
			return err
		}
		defer c.Close()
		conns[pod] = c
	}
	for i := 0; ; i++ {
		u, _ := question(i)
		if u.name == "" || conns[u.pod] == nil {
			continue
		}
		if !sleepUntil(ctx, due(begun, i)) {
			return nil
		}
		for first := time.Now(); ; r.failed.Add(1) { // a stub resolver asks again
			err := exchange(conns[u.pod], u.name, u.qtype)
			if err == nil {
				break
			}
			if time.Since(first) > askLimit {
				return fmt.Errorf("pods of %s: %w", r.name, err)
			}
		}
	}
}

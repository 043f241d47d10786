package kube

import (
	"errors"
	"os"
	"time"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
)

// clockSteps is how far the clocks of agents are set.
var clockSteps = []time.Duration{time.Hour, -time.Hour}

// clocksSet: agents whose clocks are set by an hour, forward and back, enforce what is confirmed and what is
// not: the time of an unconfirmed policy, which ends a minute after since at the earliest, goes on as
// before. It ends in time after the agents were replaced.
func (s *scenario) clocksSet(since time.Time) {
	var clocks []*lab.Clock
	for _, n := range nodes {
		pid, err := the.Node(n).Process("namegate agent ")
		fatal.If(s, err)
		c, err := lab.ClockOf(pid)
		if errors.Is(err, lab.ErrNoClock) || errors.Is(err, os.ErrPermission) {
			s.Skipf("the agents cannot be given clocks of their own: %v", err)
		}
		fatal.If(s, err)
		defer c.Close()
		clocks = append(clocks, c)
	}
	for _, ahead := range clockSteps {
		for _, c := range clocks {
			fatal.If(s, c.Step(ahead))
		}
		// Safeguards are compared with the clock each second.
		for begin := time.Now(); time.Since(begin) < 3*time.Second; time.Sleep(500 * time.Millisecond) {
			for _, n := range nodes {
				if err := s.hostDialled(n, raw, denied); err != nil && (n == "node-a" || time.Since(since) < time.Minute) {
					s.Fatalf("the clock is set by %v: %v", ahead, err)
				}
			}
		}
		for _, n := range nodes {
			if err := s.nodeWorks(n); err != nil {
				s.Errorf("the clock is set by %v: %v", ahead, err)
			}
		}
		s.clusterCondition(soon, closed("node-a"), "True", "NoBlindSpot", "")
	}
	if passed := time.Since(since); passed > time.Minute {
		s.Logf("node-b was looked at after its time, %v", passed)
	}
}

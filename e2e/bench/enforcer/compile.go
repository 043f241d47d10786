package main

import (
	"fmt"
	"os"
	"time"

	"github.com/namegate/namegate/e2e/bench/figure"
	"github.com/namegate/namegate/e2e/bench/process"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
)

// spaces are in how many namespaces the policies are: spread as in most clusters, or
// all in one, where each change concerns more of them.
var spaces = []int{50, 1}

// compile measures compiling all policies at once, and one change to one of them.
func (b *bench) compile() error {
	for _, namespaces := range spaces {
		full, change := figure.Series{}, figure.Series{}
		for turn := range b.rounds {
			in := cluster(maxPolicies, namespaces)
			c := compile.New()
			r, err := b.timed(func() error { return selects(c.Compile(in), maxPods) })
			if err != nil {
				return err
			}
			full = append(full, r)
			in = changed(in, turn, true)
			if r, err = b.timed(func() error { return selects(c.Compile(in), maxPods) }); err != nil {
				return err
			}
			change = append(change, r)
		}
		for _, m := range []struct {
			name string
			of   figure.Series
		}{{"compile.full_ms", full}, {"compile.change_ms", change}} {
			b.Note("%s, %s: %.3g", m.name, clusterState(namespaces), m.of.Median())
			if err := b.Report(figure.Figure{Name: m.name, Value: m.of.Median(), Unit: "ms", State: clusterState(namespaces)}, m.of.Others()); err != nil {
				return err
			}
		}
	}
	return nil
}

func selects(s *policy.Snapshot, pods int) error {
	if len(s.Views) != pods {
		return fmt.Errorf("%d pods are selected, not %d", len(s.Views), pods)
	}
	return nil
}

// shortest is what has to take longer for others' processor time to be told: /proc
// counts in ticks of 10 ms.
const shortest = 100 * time.Millisecond

// timed returns how long something took, in ms.
func (b *bench) timed(do func() error) (figure.Reading, error) {
	before, err := process.Busy()
	if err != nil {
		return figure.Reading{}, err
	}
	own, err := process.CPU(os.Getpid())
	if err != nil {
		return figure.Reading{}, err
	}
	began := time.Now()
	if err := do(); err != nil {
		return figure.Reading{}, err
	}
	took := time.Since(began)
	after, err := process.Busy()
	if err != nil {
		return figure.Reading{}, err
	}
	used, err := process.CPU(os.Getpid())
	if err != nil {
		return figure.Reading{}, err
	}
	others := (after - before - (used - own)).Seconds() / took.Seconds()
	if took < shortest {
		others = 0
	}
	return figure.Reading{Value: took.Seconds() * 1e3, Others: max(0, others)}, nil
}

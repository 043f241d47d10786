package main

import (
	"context"
	"encoding/json"
	"io"
	"slices"
	"time"

	"github.com/namegate/namegate/e2e/bench/figure"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
)

// clusterSteps are the changes that are measured while there are cluster rules.
var clusterSteps = []struct {
	name string
	do   func(in *compile.Input, turn int)
}{
	{"names", func(in *compile.Input, turn int) { *in = changedCluster(*in, changedNames, turn) }},
	{"networks", func(in *compile.Input, turn int) { *in = changedCluster(*in, changedNetworks, turn) }},
	{"namespaced", func(in *compile.Input, turn int) { *in = changed(*in, turn, true) }},
	{"pod", func(in *compile.Input, turn int) {
		if turn%2 == 1 {
			in.Pods = in.Pods[1:]
		} else {
			in.Pods = cluster(0, spaces[0]).Pods
		}
	}},
}

func clusterRulesState(step string) string {
	state := clusterState(spaces[0]) + ", " + clusterRules
	if step != "" {
		state += ", " + step
	}
	return state
}

// cluster measures compiling and applying cluster rules beside all policies.
func (b *bench) cluster() error {
	if err := b.compileCluster(); err != nil {
		return err
	}
	return b.applyCluster()
}

// compileCluster measures what compile does beside cluster rules.
func (b *bench) compileCluster() error {
	var full figure.Series
	change := make([]figure.Series, len(clusterSteps))
	for range b.rounds {
		in := withClusterRules(cluster(maxPolicies, spaces[0]))
		c := compile.New()
		var s *policy.Snapshot
		compiled := func() error { s = c.Compile(in); return nil }
		r, err := b.timed(compiled)
		if err != nil {
			return err
		}
		if err := selects(s, maxPods); err != nil {
			return err
		}
		full = append(full, r)
		for turn := 1; turn <= 2; turn++ {
			for i, step := range clusterSteps {
				step.do(&in, turn)
				if r, err = b.timed(compiled); err != nil {
					return err
				}
				change[i] = append(change[i], r)
			}
		}
		if len(s.Problems) > 0 {
			return &problems{s.Problems}
		}
	}
	if err := b.reportClusterMS("compile.cluster_full_ms", "", full); err != nil {
		return err
	}
	for i, step := range clusterSteps {
		if err := b.reportClusterMS("compile.cluster_change_ms", step.name, change[i]); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) reportClusterMS(name, step string, of figure.Series) error {
	state := clusterRulesState(step)
	b.Note("%s, %s: %.3g", name, state, of.Median())
	return b.Report(figure.Figure{Name: name, Value: of.Median(), Unit: "ms", State: state}, of.Others())
}

// problems are those of a cluster that has to have none.
type problems struct{ of []policy.Problem }

func (p *problems) Error() string {
	return p.of[0].Object + ": " + p.of[0].Message
}

// clusterApplied is how long, in ms, it took to bring cluster rules into force: everything on a
// node that had nothing, and changes by step.
type clusterApplied struct {
	Full    float64
	Changes [][]float64
}

// applyCluster measures what apply does beside cluster rules.
func (b *bench) applyCluster() error {
	var full figure.Series
	changes := make([]figure.Series, len(clusterSteps))
	reading := func(ms float64) figure.Reading { return figure.Reading{Value: ms} }
	for range nodesApplied {
		var a clusterApplied
		if err := b.onNewNode("applycluster", &a); err != nil {
			return err
		}
		full = append(full, reading(a.Full))
		for i := range a.Changes {
			for _, ms := range a.Changes[i] {
				changes[i] = append(changes[i], reading(ms))
			}
		}
	}
	if err := b.reportClusterMS("apply.cluster_full_ms", "", full); err != nil {
		return err
	}
	for i, step := range clusterSteps {
		if err := b.reportClusterMS("apply.cluster_change_ms", step.name, changes[i]); err != nil {
			return err
		}
	}
	return nil
}

// applyClusterChild is the child of applyCluster; outside is the namespace that it must not
// be in.
func applyClusterChild(outside string, rounds int, out io.Writer) error {
	if err := inside(outside); err != nil {
		return err
	}
	e, _, err := openEnforcer()
	if err != nil {
		return err
	}
	ctx := context.Background()
	if _, err := e.Start(ctx); err != nil {
		return err
	}
	in, c := withClusterRules(cluster(maxPolicies, spaces[0])), compile.New()
	var last *policy.Snapshot
	force := func() (float64, error) {
		last = c.Compile(in)
		began := time.Now()
		err := e.Prepare(ctx, last)
		if err == nil {
			err = e.Commit(ctx)
		}
		return time.Since(began).Seconds() * 1e3, err
	}
	a := clusterApplied{Changes: make([][]float64, len(clusterSteps))}
	if a.Full, err = force(); err != nil {
		return err
	}
	if len(last.Problems) > 0 {
		return &problems{last.Problems}
	}
	in.Pods = slices.Clone(in.Pods)
	for turn := 1; turn <= rounds; turn++ {
		for i, step := range clusterSteps {
			step.do(&in, turn)
			took, err := force()
			if err != nil {
				return err
			}
			a.Changes[i] = append(a.Changes[i], took)
		}
	}
	return json.NewEncoder(out).Encode(a)
}

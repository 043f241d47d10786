package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"time"

	"github.com/namegate/namegate/e2e/bench/figure"
	"github.com/namegate/namegate/enforcer"
	"github.com/namegate/namegate/enforcer/dataplane/xtables"
	"github.com/namegate/namegate/enforcer/ruleset/layout"
	"github.com/namegate/namegate/kernel/conntrack"
	"github.com/namegate/namegate/kernel/ipset"
	"github.com/namegate/namegate/kernel/iptables"
	"github.com/namegate/namegate/kernel/link"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/testkit/fatal"
)

// timings are times in ms: of everything at once, and of each round's changes by step.
type timings struct {
	Full    []float64
	Changes [][]float64
}

// compile measures compiling all policies at once, and changes of one.
func (b *bench) compile() {
	var t timings
	for range b.Rounds {
		fatal.If(b, t.measure(2, compile.New().Compile, nil))
	}
	b.reportTimings("compile", t)
}

// nodesApplied is how many nodes are set up, one after the other.
const nodesApplied = 3

// apply measures bringing the same snapshots into force in the kernel.
func (b *bench) apply() {
	var all timings
	all.Changes = make([][]float64, len(steps))
	for range nodesApplied {
		var t timings
		b.onNewNode("apply", &t)
		all.Full = append(all.Full, t.Full...)
		for i := range steps {
			all.Changes[i] = append(all.Changes[i], t.Changes[i]...)
		}
	}
	b.reportTimings("apply", all)
}

func (b *bench) reportTimings(what string, t timings) {
	report := func(name, state string, values []float64) {
		f := figure.Figure{Name: what + name, Value: figure.Median(values), Unit: "ms", State: state}
		b.Note("%s, %s: %.3g", f.Name, state, f.Value)
		b.Report(f, 0)
	}
	report(".full_ms", clusterState, t.Full)
	for i, s := range steps {
		report(".change_ms", clusterState+", "+s.name, t.Changes[i])
	}
}

// measure compiles the cluster and all changes of so many turns, and brings each snapshot into
// force. It takes the times of the latter or, without it, of compiling.
func (t *timings) measure(turns int, compiled func(compile.Input) *policy.Snapshot, force func(*policy.Snapshot) error) error {
	in := cluster()
	t.Changes = append(t.Changes, make([][]float64, len(steps)-len(t.Changes))...)
	timed := func(to *[]float64) error {
		began := time.Now()
		s := compiled(in)
		if force != nil {
			began = time.Now()
			if err := force(s); err != nil {
				return err
			}
		}
		*to = append(*to, time.Since(began).Seconds()*1e3)
		if len(s.Problems) > 0 || len(s.Views) < maxPods-1 {
			return fmt.Errorf("%d pods are selected, with the problems %+v", len(s.Views), s.Problems)
		}
		return nil
	}
	if err := timed(&t.Full); err != nil {
		return err
	}
	for turn := 1; turn <= turns; turn++ {
		for i, s := range steps {
			s.do(&in, turn)
			if err := timed(&t.Changes[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// onNewNode lets a child of a role measure in the namespace of a new node: iptables
// works on the namespace of the whole process. The child's answer goes into a value.
func (b *bench) onNewNode(role string, value any) {
	n := b.newNode(role, "", true)
	own, err := os.Readlink(ownNetwork)
	fatal.If(b, err)
	out, _ := b.child(n.Node, nil, role, own, fmt.Sprint(b.Rounds))
	fatal.If(b, json.Unmarshal(out, value))
	b.Clean()
}

// ownNetwork names the network namespace of a process.
const ownNetwork = "/proc/self/ns/net"

// applyChild is the child of apply: "OUTSIDE ROUNDS", the namespace that it must not be in and
// how often it measures.
func applyChild(args []string) error {
	if here, err := os.Readlink(ownNetwork); err != nil || here == args[0] {
		return fmt.Errorf("this changes rules and is not in a namespace of its own: %w", err)
	}
	rounds, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	e, err := openEnforcer()
	if err != nil {
		return err
	}
	ctx := context.Background()
	if _, err := e.Start(ctx); err != nil {
		return err
	}
	var t timings
	err = t.measure(rounds, compile.New().Compile, func(s *policy.Snapshot) error {
		if err := e.Prepare(ctx, s); err != nil {
			return err
		}
		return e.Commit(ctx)
	})
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(t)
}

// openEnforcer is an enforcer on the kernel's own sets, chains and tables.
func openEnforcer() (*enforcer.Enforcer, error) {
	chains, err := iptables.NewExec(iptables.Default)
	if err != nil {
		return nil, err
	}
	tables, err := layout.Open()
	if err != nil {
		return nil, err
	}
	sets, err := ipset.Open()
	if err != nil {
		return nil, err
	}
	flows, err := conntrack.Open()
	if err != nil {
		return nil, err
	}
	links, err := link.Open()
	if err != nil {
		return nil, err
	}
	return enforcer.New(enforcer.Config{Mark: enforcer.DefaultMark, Candidate: enforcer.DefaultCandidate, Accepted: enforcer.DefaultAccepted, Hold: enforcer.DefaultHold},
		enforcer.Kernel{Dataplane: xtables.Config{Sets: sets, Chains: chains}.New, Tables: tables, Flows: flows, Links: links}, nil, slog.New(slog.DiscardHandler))
}

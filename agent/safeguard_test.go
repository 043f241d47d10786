package agent

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/knftables"

	"github.com/namegate/namegate/agent/rollout"
	"github.com/namegate/namegate/agent/safeguard"
	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/enforcer/ruleset/layout"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/policytest"
)

// TestARollOutThatHangsHoldsNoPolicyBeyondItsTime: the agent has the kernel enforce an unconfirmed policy for
// its time, and not longer, although no roll-out takes it out of force. Another policy that was turned before
// changes nothing about it.
func TestARollOutThatHangsHoldsNoPolicyBeyondItsTime(t *testing.T) {
	a, _, tables := agentOn(t, slog.New(slog.DiscardHandler))
	now := time.Hour
	a.safeguard = safeguard.New(safeguard.Options{File: filepath.Join(t.TempDir(), "safeguard.json"), Boot: "1",
		Now: func() time.Duration { return now }, Away: func() time.Duration { return 0 }, Log: a.log})
	closed := func(name string) *v1alpha1.NodeNetworkPolicy {
		p := policytest.NodePolicy(t, name, "{nodeSelector: {}, priority: 1, safeguard: {confirmWithin: 5m}, egress: [{action: Deny}]}")
		p.UID, p.Generation = "u", 1
		return p
	}
	stages := &stages{a}
	inForce := func(policies ...*v1alpha1.NodeNetworkPolicy) *policy.Snapshot {
		t.Helper()
		in := compile.Input{NodePolicies: policies, Node: &policy.Node{Name: "n1", Interfaces: []string{"eth0"}}}
		a.safeguard.Amend(&in)
		fatal.If(t, stages.enforce.Prepare(context.Background(), compile.New().Compile(in)))
		snap, err := stages.Commit(context.Background(), nil)
		fatal.If(t, err)
		return snap
	}
	held := func(s *policy.Snapshot) bool {
		t.Helper()
		tx := tables.NewTransaction() // the minute in the kernel is over
		tx.Flush(&knftables.Set{Name: "nodeheld4"})
		fatal.If(t, tables.Run(context.Background(), tx))
		a.holdUnconfirmed(context.Background(), s)
		elements, err := tables.ListElements(context.Background(), "set", "nodeheld4")
		fatal.If(t, err)
		return len(elements) > 0
	}
	earlier := closed("earlier")
	inForce(earlier)
	now += 5 * time.Minute
	s := inForce(earlier, closed("later"))
	if !held(s) {
		t.Error("a policy that waits for confirmation is not held")
	}
	now += 5 * time.Minute
	if !a.safeguard.Due() || held(s) {
		t.Error("a policy whose time is over is held")
	}
}

// TestUnconfirmedPoliciesAreHeld: for as long as a policy for the node waits for confirmation, the
// agent renews its hold in the kernel well within the time after which the kernel ends the policy.
func TestUnconfirmedPoliciesAreHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, inet := agentOn(t, slog.New(slog.DiscardHandler))
		a.safeguard = safeguard.New(safeguard.Options{})
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer cancel()
		go a.rollout.Run(ctx)
		edge := policytest.NodePolicy(t, "edge", "{nodeSelector: {}, priority: 1, egress: [{action: Deny, networks: [192.0.2.0/24]}]}")
		in := compile.Input{Node: &policy.Node{Name: "node", Interfaces: []string{"eth0"}}, NodePolicies: []*v1alpha1.NodeNetworkPolicy{edge}, Unconfirmed: map[string]bool{"edge": true}}
		a.rollout.Offer(rollout.State{Input: in})
		<-a.rollout.First()
		go a.keepUnconfirmed(ctx)
		sets := []string{"nodeheld4", "nodeheld6"}
		// held ends the elements as the kernel does, and tells whether a minute brings them back.
		held := func() bool {
			synctest.Wait()
			tx := inet.NewTransaction()
			for _, name := range sets {
				tx.Flush(&knftables.Set{Name: name})
			}
			fatal.If(t, inet.Run(ctx, tx))
			time.Sleep(layout.UnconfirmedTimeout / 2)
			synctest.Wait()
			count := 0
			for _, name := range sets {
				elements, err := inet.ListElements(ctx, "set", name)
				fatal.If(t, err)
				count += len(elements)
			}
			if count != 0 && count != len(sets) {
				t.Errorf("%d of %d families are held", count, len(sets))
			}
			return count > 0
		}
		for half := range 10 {
			if !held() {
				t.Fatalf("after %v the agent renews the hold no more", time.Duration(half)*layout.UnconfirmedTimeout/2)
			}
		}
		in.Unconfirmed = nil
		a.rollout.Offer(rollout.State{Input: in})
		if held() {
			t.Error("a confirmed policy is held")
		}
	})
}

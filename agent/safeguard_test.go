package agent

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/knftables"
	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/agent/safeguard"
	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/e2e/fatal"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
)

// TestARollOutThatHangsHoldsNoPolicyBeyondItsTime: the agent has the kernel enforce an unconfirmed policy for
// its time, and not longer, although no roll-out takes it out of force. Another policy that was turned before
// changes nothing about it.
func TestARollOutThatHangsHoldsNoPolicyBeyondItsTime(t *testing.T) {
	a, _, tables := agentOn(t, slog.New(slog.DiscardHandler))
	now := time.Hour
	a.safeguard = safeguard.New(safeguard.Options{File: filepath.Join(t.TempDir(), "safeguard.json"), Boot: "1",
		Now: func() time.Duration { return now }, Away: func() time.Duration { return 0 }, Log: a.log})
	closed := func(name string) *v1alpha1.ClusterFQDNNetworkPolicy {
		p := &v1alpha1.ClusterFQDNNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u", Generation: 1}}
		fatal.If(t, yaml.UnmarshalStrict([]byte("{tier: Admin, priority: 1, subject: {nodes: {}}, safeguard: {confirmWithin: 5m}, egress: [{action: Deny}]}"), &p.Spec))
		return p
	}
	stages := &stages{a}
	inForce := func(policies ...*v1alpha1.ClusterFQDNNetworkPolicy) *policy.Snapshot {
		t.Helper()
		in := compile.Input{ClusterPolicies: policies, Node: &policy.Node{Name: "n1"}}
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

package safeguard

import (
	"bytes"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/policytest"
)

// node is a node of a test with its agent's guard.
type node struct {
	t       *testing.T
	o       Options
	at      time.Duration
	away    time.Duration
	said    bytes.Buffer
	waiting []string // of the last compile
	*Guard
}

func newNode(t *testing.T) *node {
	n := &node{t: t, at: time.Hour}
	n.o = Options{File: filepath.Join(t.TempDir(), "safeguard.json"), Boot: "1", Now: func() time.Duration { return n.at }, Away: func() time.Duration { return n.away },
		Log: slog.New(slog.NewTextHandler(&n.said, nil))}
	n.restart()
	return n
}

// restart has another agent follow.
func (n *node) restart() { n.Guard = New(n.o) }

// turned returns the names that a compile gets.
func (n *node) turned(policies ...*v1alpha1.NodeNetworkPolicy) []string {
	in := compile.Input{NodePolicies: policies, Node: &policy.Node{Name: "n1", Labels: map[string]string{"role": "edge"}}}
	n.Amend(&in)
	for name := range in.TurnedToAudit {
		if in.Unconfirmed[name] {
			n.t.Errorf("%s is turned, and waits", name)
		}
	}
	n.waiting = slices.Sorted(maps.Keys(in.Unconfirmed))
	return slices.Sorted(maps.Keys(in.TurnedToAudit))
}

func (n *node) wants(want []string, policies ...*v1alpha1.NodeNetworkPolicy) {
	n.t.Helper()
	diff.Error(n.t, want, n.turned(policies...), "turned")
}

func aPolicy(t *testing.T, name, spec string, generation int64) *v1alpha1.NodeNetworkPolicy {
	t.Helper()
	p := policytest.NodePolicy(t, name, spec)
	p.UID, p.Generation = "u", generation
	return p
}

const guarded = "{nodeSelector: {matchLabels: {role: edge}}, priority: 1, safeguard: {confirmWithin: 2m}}"

// TestAnAgentThatRestarts: the time goes on over restarts, however many there are, and what was
// turned stays turned.
func TestAnAgentThatRestarts(t *testing.T) {
	n := newNode(t)
	p := aPolicy(t, "edge", guarded, 1)
	for range 3 {
		n.wants(nil, p)
		n.restart()
		n.at += 30 * time.Second
		if n.Due() {
			t.Error("due before the policies are known")
		}
	}
	n.wants(nil, p)
	n.at += 29 * time.Second
	if n.Due() {
		t.Error("due too early")
	}
	if !slices.Equal(n.waiting, []string{"edge"}) || len(n.Turned()) > 0 {
		t.Errorf("%q wait, turned %v", n.waiting, n.Turned())
	}
	n.at += time.Second
	if !n.Due() || n.Due() {
		t.Error("not due once")
	}
	n.wants([]string{"edge"}, p)
	if len(n.waiting) > 0 || len(n.Turned()) == 0 {
		t.Errorf("%q wait, turned %v", n.waiting, n.Turned())
	}
	n.restart()
	n.wants([]string{"edge"}, p)
	p.Annotations = map[string]string{v1alpha1.ConfirmedAnnotation: "1"}
	if n.wants(nil, p); len(n.waiting) > 0 {
		t.Errorf("%q wait, and are confirmed", n.waiting)
	}
	n.at, n.away = n.at+time.Hour, time.Hour
	if n.Due() {
		t.Error("a confirmed generation is turned")
	}
	n.wants(nil, p)
	if n.said.Len() > 0 {
		t.Error(n.said.String())
	}
}

// TestSelection: safeguards are of enforcing policies that select the node, from an API server.
func TestSelection(t *testing.T) {
	n := newNode(t)
	n.away = time.Hour
	policies := []*v1alpha1.NodeNetworkPolicy{
		aPolicy(t, "edge", guarded, 1),
		aPolicy(t, "other", strings.Replace(guarded, "edge", "other", 1), 1),
		aPolicy(t, "without", "{nodeSelector: {}, priority: 1}", 1),
		aPolicy(t, "audit", guarded, 1),
		aPolicy(t, "none", "{priority: 1, safeguard: {}}", 1),
		aPolicy(t, "folder", guarded, 0),
	}
	policies[3].Spec.Enforcement = v1alpha1.EnforcementAudit
	n.wants(nil, policies...)
	n.at += time.Minute
	n.wants([]string{"edge"}, policies...)
	in := compile.Input{NodePolicies: policies}
	if n.Amend(&in); len(in.TurnedToAudit) > 0 {
		t.Errorf("without a node: %v", in.TurnedToAudit)
	}
}

// TestTheFile: a file that cannot be read or written is told, and does not stop the guard.
func TestTheFile(t *testing.T) {
	n := newNode(t)
	p := aPolicy(t, "edge", guarded, 1)
	fatal.If(t, os.WriteFile(n.o.File, []byte("{"), 0o600))
	n.wants(nil, p)
	diff.Has(t, "cannot read since when", n.said.String(), "said")
	folder := filepath.Join(t.TempDir(), "missing")
	n.o.File = filepath.Join(folder, "safeguard.json")
	n.said.Reset()
	n.restart()
	n.wants(nil, p)
	n.at += time.Minute
	n.Due()
	if got := strings.Count(n.said.String(), "cannot save since when"); got != 1 {
		t.Errorf("said %d times: %q", got, n.said.String())
	}
	fatal.If(t, os.Mkdir(folder, 0o700))
	n.Due()
	n.restart()
	n.at += time.Minute
	n.wants([]string{"edge"}, p)
}

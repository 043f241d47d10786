package enforcer

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/enforcer/dataplane/entries"
	"github.com/namegate/namegate/kernel/nft/timed"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/granttest"
)

// unlisted is entries that cannot be listed.
type unlisted struct{ entries.Tables }

func (unlisted) ListEntries([]string, func(string, []timed.Entry)) error { return errInjected }

// TestEntriesThatAreNotRecovered: a pod whose entries an agent cannot list is selected and
// gets no grant, and its entries stay, until they are listed.
func TestEntriesThatAreNotRecovered(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cluster := clusterPolicy(t, "deny", "{tier: Admin, priority: 1, subject: {namespaces: {}}, dns: {denied: Resolve}, egress: [{action: Deny, matches: [{name: paste.test}]}]}")
	p := pod("web", "10.1.0.5")
	snapshot := func() *policy.Snapshot {
		return compile.New().Compile(compile.Input{Pods: []policy.Pod{p}, ClusterPolicies: []*v1alpha1.ClusterFQDNNetworkPolicy{cluster}})
	}
	ask := func(s *policy.Snapshot) error {
		gs := w.grants(s, p.PodRef, "paste.test", 60, "192.0.2.1")
		gs[0].Rule = s.ViewOf(p.PodRef).Rules.Admin[0].ID
		return granttest.Grant(context.Background(), w.e.grants, gs)
	}
	s := snapshot()
	fatal.If(t, w.rollOut(s))
	fatal.If(t, ask(s))
	held := func() (n int) {
		fatal.If(t, w.e.k.Tables.ListEntries([]string{string(s.Views[0].Rules.Admin[0].ID)}, func(_ string, part []timed.Entry) { n += len(part) }))
		return n
	}
	if held() != 1 || w.e.Status().Grants != 1 {
		t.Fatalf("%d entries, %d grants", held(), w.e.Status().Grants)
	}

	w.restart()
	listed := *w.e.entries
	*w.e.entries = *entries.New(unlisted{w.e.k.Tables}, w.e.plane, false, w.e.Coexisting)
	s = snapshot()
	if err := w.e.Prepare(context.Background(), s); !errors.Is(err, errInjected) {
		t.Fatalf("Prepare says %v", err)
	}
	if ask(s) == nil {
		t.Error("a grant is acknowledged")
	}
	if held() != 1 || !slices.Contains(w.selected(), "10.1.0.5") {
		t.Errorf("%d entries, selected: %v", held(), w.selected())
	}

	*w.e.entries = listed
	fatal.If(t, w.rollOut(s))
	if got := w.e.grants.ListGrants(p.PodRef); len(got) != 1 || got[0].Rule != s.Views[0].Rules.Admin[0].ID || got[0].By != "deny paste.test" {
		t.Errorf("recovered: %+v", got)
	}
}

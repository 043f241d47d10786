package agent

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/namegate/namegate/enforcer"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
)

// TestPathTests: each selected pod is tested once, the second failure in a row is
// reported, an unselected pod is forgotten.
func TestPathTests(t *testing.T) {
	now := time.Unix(0, 0)
	a, b := policy.PodRef{Namespace: "shop", Name: "a"}, policy.PodRef{Namespace: "shop", Name: "b"}
	view := func(ref policy.PodRef, enforced bool) *policy.View {
		return &policy.View{Pod: policy.Pod{PodRef: ref, IPs: []netip.Addr{netip.MustParseAddr("10.1.0.5")}}, Enforced: enforced}
	}
	audit := policy.PodRef{Namespace: "shop", Name: "audit"}
	views := []*policy.View{view(a, true), view(audit, false), view(b, true)}
	paths := map[policy.PodRef]enforcer.Path{a: enforcer.PathWorks, b: enforcer.PathBlocked}
	var asked []policy.PodRef
	p := newSelfTest(func(_ context.Context, ref policy.PodRef) (enforcer.Path, error) {
		asked = append(asked, ref)
		return paths[ref], nil
	}, func() []*policy.View { return views }, slog.Default())
	p.now = func() time.Time { return now }
	round := func(after time.Duration, wantAsked []policy.PodRef, wantFailed map[policy.PodRef]enforcer.Path) {
		t.Helper()
		now = now.Add(after)
		asked = nil
		for range 5 {
			p.one(context.Background())
		}
		diff.Error(t, wantAsked, asked, "tested")
		diff.Error(t, wantFailed, p.failed(), "failed")
	}
	none := map[policy.PodRef]enforcer.Path{}
	round(0, []policy.PodRef{a, b}, none)
	round(testRetry-1, nil, none)
	round(1, []policy.PodRef{b}, map[policy.PodRef]enforcer.Path{b: enforcer.PathBlocked})
	paths[b] = enforcer.PathUnseen
	round(testRetry, []policy.PodRef{b}, none) // another failure starts again
	round(testRetry, []policy.PodRef{b}, map[policy.PodRef]enforcer.Path{b: enforcer.PathUnseen})
	paths[b] = enforcer.PathWorks
	round(testRetry, []policy.PodRef{b}, none)
	paths[a] = enforcer.PathBlocked
	round(testPeriod-1, []policy.PodRef{a}, none)
	views = views[1:]
	round(time.Hour, []policy.PodRef{b}, none)
	diff.Equal(t, 1, len(p.paths), "pods remembered; one is selected")
}

// TestPathTestThatCannotRun is no failure of the path.
func TestPathTestThatCannotRun(t *testing.T) {
	ref := policy.PodRef{Namespace: "shop", Name: "a"}
	p := newSelfTest(func(context.Context, policy.PodRef) (enforcer.Path, error) {
		return enforcer.PathUntested, errors.New("no mirred")
	}, func() []*policy.View {
		return []*policy.View{{Pod: policy.Pod{PodRef: ref, IPs: []netip.Addr{netip.MustParseAddr("10.1.0.5")}}, Enforced: true}}
	}, slog.Default())
	p.one(context.Background())
	p.one(context.Background())
	if len(p.failed()) != 0 || len(p.paths) != 1 {
		t.Errorf("failed %v of %v", p.failed(), p.paths)
	}
}

package rollout

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/namegate/namegate/agent/health"
	"github.com/namegate/namegate/agent/metrics"
	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/testkit/diff"
)

// stagesFake are stages that take no time but for names. Those of the domain dead.test
// have no answer, others one after half a second.
type stagesFake struct {
	t     *testing.T
	began time.Time

	mu              sync.Mutex
	lines           []string
	coming, inForce *policy.Snapshot
	refuse          error // what commit says
	unserved        error // what attach says
	closes          bool  // prepare closes rules
}

// nameTakes is how long a name takes that has an answer.
const nameTakes = 500 * time.Millisecond

// note notes a stage and when it was.
func (f *stagesFake) note(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lines = append(f.lines, fmt.Sprintf("%v ", time.Since(f.began).Round(time.Millisecond))+fmt.Sprintf(format, args...))
}

func (f *stagesFake) Attach(context.Context, State) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.unserved
}

func (f *stagesFake) Prepare(_ context.Context, s *policy.Snapshot) (*policy.Snapshot, error) {
	f.mu.Lock()
	if f.closes {
		s = s.Close(nil)
	}
	f.mu.Unlock()
	f.coming = s
	f.note("prepare %d", s.Number)
	return s, nil
}

func (f *stagesFake) Publish(s *policy.Snapshot) { f.note("publish %d", s.Number) }

func (f *stagesFake) Warm(ctx context.Context, v *policy.View, names []fqdn.Name) {
	takes := nameTakes
	if slices.ContainsFunc(names, func(n fqdn.Name) bool { return strings.HasSuffix(n.String(), "dead.test") }) {
		takes = time.Hour
	}
	select {
	case <-time.After(takes):
		f.note("open %s %v", v.Pod.Name, names)
	case <-ctx.Done():
		f.note("no answer %s", v.Pod.Name)
	}
}

func (f *stagesFake) Commit(_ context.Context, waiting map[policy.PodRef]bool) (*policy.Snapshot, error) {
	f.mu.Lock()
	refuse := f.refuse
	f.mu.Unlock()
	if refuse != nil {
		f.note("refuse %d", f.coming.Number)
		return nil, refuse
	}
	f.inForce = f.coming.Defer(f.inForce, waiting)
	var isolated []string
	for _, v := range f.inForce.Views {
		if v.InForce() {
			isolated = append(isolated, v.Pod.Name)
		}
	}
	f.note("commit %d isolates %s", f.inForce.Number, strings.Join(isolated, " "))
	return f.inForce, nil
}

// refusing makes commit say an error.
func (f *stagesFake) refusing(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refuse = err
}

func (f *stagesFake) Settle(context.Context) error { return nil }

// since returns the notes since the last call.
func (f *stagesFake) since() []string {
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	lines := f.lines
	f.lines = nil
	return lines
}

// expect compares what happened since the last call.
func (f *stagesFake) expect(want ...string) {
	f.t.Helper()
	if got := f.since(); !slices.Equal(got, want) {
		f.t.Errorf("stages:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// inStages runs a test of a roll-out on fakes, in a bubble of its own time.
func inStages(t *testing.T, test func(f *stagesFake, r *Rollout)) {
	synctest.Test(t, func(t *testing.T) {
		f := &stagesFake{t: t, began: time.Now()}
		r := New(Options{Stages: f, Health: health.New(time.Now), Timing: metrics.NewTiming(time.Now), Log: slog.New(slog.DiscardHandler)})
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() { r.Run(ctx); close(ended) }()
		test(f, r)
		cancel()
		<-ended
	})
}

// tenants is a state: pods, each with the names of a policy of its own, none for an
// unselected pod.
func tenants(pods ...string) State {
	in := compile.Input{Namespaces: map[string]map[string]string{"shop": {}}}
	for _, text := range pods {
		words := strings.Fields(text)
		number := map[string]byte{"web": 1, "db": 2, "sick": 3}[words[0]]
		in.Pods = append(in.Pods, policy.Pod{PodRef: policy.PodRef{Namespace: "shop", Name: words[0], UID: words[0]},
			Labels: map[string]string{"app": words[0]}, IPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 1, 0, number})}})
		if len(words) == 1 {
			continue
		}
		p := &v1alpha1.FQDNNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: words[0]}}
		p.Spec.PodSelector.MatchLabels = map[string]string{"app": words[0]}
		var rule v1alpha1.EgressRule
		for _, w := range words[1:] {
			m := v1alpha1.Match{Name: &w}
			if strings.Contains(w, "*") {
				m = v1alpha1.Match{Pattern: &w}
			}
			rule.Matches = append(rule.Matches, m)
		}
		p.Spec.Egress = []v1alpha1.EgressRule{rule}
		in.Policies = append(in.Policies, p)
	}
	return State{Input: in}
}

// TestCommitDoesNotWaitForNamesOfOtherPods: a tenant with a name without an answer, and a
// label that flips, delays no other pod; each pod is isolated when its own names are
// open.
func TestCommitDoesNotWaitForNamesOfOtherPods(t *testing.T) {
	inStages(t, func(f *stagesFake, r *Rollout) {
		r.Offer(tenants("web", "db", "sick"))
		f.expect("0s prepare 1", "0s publish 1", "0s commit 1 isolates ")
		r.Offer(tenants("web", "db", "sick a.dead.test"))
		f.expect("0s prepare 2", "0s publish 2") // there is nothing to commit for others
		time.Sleep(time.Second)
		r.Offer(tenants("web www.example.org", "db *.example.org", "sick a.dead.test"))
		f.expect("1s prepare 3", "1s publish 3", "1s commit 3 isolates db")
		time.Sleep(2 * time.Second)
		f.expect("1.5s open web [www.example.org]", "1.52s commit 3 isolates db web", "2s no answer sick", "2s commit 3 isolates db sick web")
	})
}

// TestUnservedResolversHoldUpNoIsolation: pods become isolated although the addresses of
// resolvers cannot be served; that is reported, and retried.
func TestUnservedResolversHoldUpNoIsolation(t *testing.T) {
	inStages(t, func(f *stagesFake, r *Rollout) {
		f.mu.Lock()
		f.unserved = errors.New("the address is taken")
		f.mu.Unlock()
		r.Offer(tenants("web *.example.org"))
		f.expect("0s prepare 1", "0s publish 1", "0s commit 1 isolates web")
		if err := r.o.Health.Ready(); err == nil || !strings.Contains(r.Status().Failing, "the address is taken") {
			t.Errorf("ready: %v, failing: %q", err, r.Status().Failing)
		}
		f.mu.Lock()
		f.unserved = nil
		f.mu.Unlock()
		time.Sleep(retryAfter)
		f.expect("1s prepare 1", "1s commit 1 isolates web")
		diff.Equal(t, "", r.Status().Failing, "failing")
	})
}

// TestLastingFailureBacksOff: an error of attach that lasts repeats the other stages ever more rarely, up to once
// in ten seconds; the next state is tried at once.
func TestLastingFailureBacksOff(t *testing.T) {
	inStages(t, func(f *stagesFake, r *Rollout) {
		f.unserved = errors.New("the address is taken")
		r.Offer(tenants("web *.example.org"))
		time.Sleep(10 * time.Minute)
		tries := len(f.since()) / 2
		if tries < 60 || tries > 66 { // at 0, 1, 3, 7, 15 s, and each 10 s from there
			t.Errorf("%d tries in ten minutes", tries)
		}
		r.Offer(tenants("web *.example.org", "db"))
		if lines := f.since(); len(lines) == 0 || !strings.HasPrefix(lines[0], "10m0s prepare") {
			t.Errorf("the next state: %q", lines)
		}
		time.Sleep(retryAfter)
		if lines := f.since(); len(lines) == 0 || !strings.HasPrefix(lines[0], "10m1s prepare") {
			t.Errorf("its second try: %q", lines)
		}
	})
}

// TestALabelThatFlips: a pod whose isolation comes and goes waits again when it is
// isolated later, and not longer because it came and went meanwhile.
func TestALabelThatFlips(t *testing.T) {
	inStages(t, func(f *stagesFake, r *Rollout) {
		off, on := tenants("db *.example.org", "sick"), tenants("db *.example.org", "sick a.dead.test")
		r.Offer(off)
		f.since()
		r.Offer(on)
		time.Sleep(500 * time.Millisecond)
		r.Offer(off)
		time.Sleep(500 * time.Millisecond)
		r.Offer(on)
		time.Sleep(2 * time.Second)
		f.expect("0s prepare 2", "0s publish 2", "500ms prepare 3", "500ms publish 3", "500ms commit 3 isolates db",
			"1s prepare 4", "1s publish 4", "2s no answer sick", "2s no answer sick", "2s commit 4 isolates db sick")
		r.Offer(off)
		f.expect("3s prepare 5", "3s publish 5", "3s commit 5 isolates db")
		time.Sleep(time.Hour)
		r.Offer(on)
		time.Sleep(3 * time.Second)
		f.expect("1h0m3s prepare 6", "1h0m3s publish 6", "1h0m5s no answer sick", "1h0m5s commit 6 isolates db sick")
	})
}

// TestFirstSnapshotWaitsForAllNames: nothing is in force before all names are resolved;
// later states decide immediately, and prolong nothing.
func TestFirstSnapshotWaitsForAllNames(t *testing.T) {
	inStages(t, func(f *stagesFake, r *Rollout) {
		r.Offer(tenants("db *.example.org", "sick a.dead.test"))
		time.Sleep(time.Second)
		if r.Status().InForce != nil || inForce(r.o.Health) {
			t.Error("it is said to be in force")
		}
		r.Offer(tenants("web b.dead.test", "db *.example.org", "sick a.dead.test"))
		time.Sleep(2 * time.Second)
		got, want := f.since(), []string{"0s prepare 1", "0s publish 1", "1s prepare 2", "1s publish 2", "2s no answer sick", "2s no answer web", "2s commit 2 isolates db sick web"}
		if len(got) == len(want) {
			slices.Sort(got[4:6]) // both at once
		}
		diff.Error(t, want, got, "stages")
		<-r.First()
		if !inForce(r.o.Health) {
			t.Error("it is not said to be in force")
		}
	})
}

// TestNamesThatAPolicyBrings: an isolated pod has the names resolved that are new to it,
// and what else its policies say is in force before.
func TestNamesThatAPolicyBrings(t *testing.T) {
	inStages(t, func(f *stagesFake, r *Rollout) {
		r.Offer(tenants("web www.example.org"))
		time.Sleep(time.Second)
		f.expect("0s prepare 1", "0s publish 1", "500ms open web [www.example.org]", "500ms commit 1 isolates web")
		r.Offer(tenants("web www.example.org mail.example.org *.test"))
		time.Sleep(time.Second)
		f.expect("1s prepare 2", "1s publish 2", "1s commit 2 isolates web", "1.5s open web [mail.example.org]")
		r.Offer(tenants("web mail.example.org"))
		time.Sleep(time.Second)
		f.expect("2s prepare 3", "2s publish 3", "2s commit 3 isolates web")
	})
}

// TestNamesOfClusterPolicies: a pod that only cluster policies select has the names resolved
// before these deny anything, those that they deny after the others, for which alone it waits;
// names of Audit policies are not asked.
func TestNamesOfClusterPolicies(t *testing.T) {
	inStages(t, func(f *stagesFake, r *Rollout) {
		r.compiler = compile.New()
		under := func(names ...string) State {
			s := tenants("web", "db")
			for i, name := range names {
				p := &v1alpha1.ClusterFQDNNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("p", i)}}
				p.Spec.Tier, p.Spec.Priority = v1alpha1.TierAdmin, ptr(int32(i))
				p.Spec.Subject.Pods = &v1alpha1.PodSubject{NamespaceSelector: &metav1.LabelSelector{}, PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}
				action := v1alpha1.Action(strings.Split(name, ".")[0])
				if action == "Audit" {
					action, p.Spec.Enforcement = v1alpha1.ActionDeny, v1alpha1.EnforcementAudit
				}
				p.Spec.Egress = []v1alpha1.ClusterEgressRule{{Action: action, Matches: []v1alpha1.Match{{Name: &name}}, Ports: []v1alpha1.Port{{Port: ptr(int32(443))}}}}
				s.Input.ClusterPolicies = append(s.Input.ClusterPolicies, p)
			}
			return s
		}
		r.Offer(under())
		f.expect("0s prepare 1", "0s publish 1", "0s commit 1 isolates ")
		r.Offer(under("Accept.test", "Audit.test", "Deny.test", "Pass.test"))
		time.Sleep(time.Second)
		f.expect("0s prepare 2", "0s publish 2", "500ms open web [pass.test accept.test]", "500ms commit 2 isolates web", "1s open web [deny.test]")
		r.Offer(under("Accept.test", "Audit.test", "Deny.test", "Pass.test", "Deny.more.test"))
		time.Sleep(time.Second)
		f.expect("1s prepare 3", "1s publish 3", "1s commit 3 isolates web", "1.5s open web [deny.more.test]")
		r.Offer(under())
		f.expect("2s prepare 4", "2s publish 4", "2s commit 4 isolates ")
		r.Offer(under("Deny.test", "Deny.more.test", "Audit.test"))
		time.Sleep(time.Second)
		f.expect("2s prepare 5", "2s publish 5", "2s commit 5 isolates web", "2.5s open web [deny.more.test deny.test]")
	})
}

func ptr[T any](v T) *T { return &v }

// TestRefusedCommitIsRetried: with pods that wait, and pods that no longer wait.
func TestRefusedCommitIsRetried(t *testing.T) {
	inStages(t, func(f *stagesFake, r *Rollout) {
		r.Offer(tenants("web", "db", "sick"))
		synctest.Wait()
		f.refusing(errors.New("the kernel is busy"))
		r.Offer(tenants("web www.example.org", "db *.example.org", "sick a.dead.test"))
		time.Sleep(900 * time.Millisecond)
		f.expect("0s prepare 1", "0s publish 1", "0s commit 1 isolates ", "0s prepare 2", "0s publish 2", "0s refuse 2", "500ms open web [www.example.org]")
		if r.Status().Failing == "" || inForce(r.o.Health) {
			t.Error("the refusal is not told")
		}
		if s := r.Status(); len(s.State.Input.Policies) != 3 || len(s.Applied.Input.Policies) != 0 || s.InForce.Number != 1 {
			t.Errorf("snapshot %d is in force with %d policies, and %d come", s.InForce.Number, len(s.Applied.Input.Policies), len(s.State.Input.Policies))
		}
		f.refusing(nil)
		time.Sleep(2 * time.Second)
		f.expect("1s prepare 2", "1s commit 2 isolates db web", "2s no answer sick", "2s commit 2 isolates db sick web")
		if r.Status().Failing != "" || !inForce(r.o.Health) {
			t.Error("the refusal is still told")
		}
		if s := r.Status(); len(s.Applied.Input.Policies) != 3 {
			t.Errorf("%d policies in force", len(s.Applied.Input.Policies))
		}
	})
}

// inForce tells whether health says that all known policies are in force.
func inForce(h *health.Health) bool {
	h.Synced()
	h.Active()
	err := h.Ready()
	return err == nil || !strings.Contains(err.Error(), "in force")
}

// TestAmend: each compile has the parts that are no source's, and Recompile takes them to force
// without a state of the source.
func TestAmend(t *testing.T) {
	inStages(t, func(f *stagesFake, r *Rollout) {
		turned := map[string]string{}
		r.o.Amend = func(in *compile.Input) { in.TurnedToAudit = turned }
		r.Recompile()
		f.expect()
		state := tenants("web")
		state.Input.Node = &policy.Node{Name: "n1", Interfaces: []string{"eth0"}}
		p := &v1alpha1.NodeNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "edge"}}
		p.Spec = v1alpha1.NodeNetworkPolicySpec{NodeSelector: &metav1.LabelSelector{}, Priority: ptr(int32(1)), Egress: []v1alpha1.NodeEgressRule{{Action: v1alpha1.NodeDeny}}}
		state.Input.NodePolicies = []*v1alpha1.NodeNetworkPolicy{p}
		r.Offer(state)
		f.expect("0s prepare 1", "0s publish 1", "0s commit 1 isolates n1")
		turned = map[string]string{"edge": "it was not confirmed"}
		r.Recompile()
		f.expect("0s prepare 2", "0s publish 2", "0s commit 2 isolates ")
		if got := r.Status().Problems; len(got) != 1 || got[0].Reason != policy.ReasonTurnedToAudit {
			t.Errorf("problems %+v", got)
		}
	})
}

// TestClosedRulesAreTriedAgain: while a rule is closed for a pod without room for its addresses, the
// snapshot is prepared again each minute.
func TestClosedRulesAreTriedAgain(t *testing.T) {
	inStages(t, func(f *stagesFake, r *Rollout) {
		f.closes = true
		r.Offer(tenants("web *.test"))
		f.expect("0s prepare 1", "0s publish 1", "0s commit 1 isolates web")
		time.Sleep(reopenAfter)
		f.expect("1m0s prepare 1", "1m0s commit 1 isolates web")
		f.mu.Lock()
		f.closes = false
		f.mu.Unlock()
		time.Sleep(reopenAfter)
		f.expect("2m0s prepare 1", "2m0s commit 1 isolates web")
		time.Sleep(10 * reopenAfter)
		f.expect()
	})
}

// TestPeersAreKnownToTheProxy: it decides by them whether a pod may ask a resolver, whose pods come and go.
func TestPeersAreKnownToTheProxy(t *testing.T) {
	inStages(t, func(f *stagesFake, r *Rollout) {
		resolver := func(addr string) State {
			s := tenants("web *.example.org")
			np := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "dns"}}
			np.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{{To: []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{}}}}}
			s.Input.NetworkPolicies = []*networkingv1.NetworkPolicy{np}
			s.Input.Remote = []*policy.Pod{{PodRef: policy.PodRef{Namespace: "shop", Name: "dns"}, NodeName: "n2", IPs: []netip.Addr{netip.MustParseAddr(addr)}}}
			return s
		}
		first, second := resolver("10.2.0.1"), resolver("10.2.0.2")
		second.Input.Policies, second.Input.NetworkPolicies = first.Input.Policies, first.Input.NetworkPolicies
		r.Offer(first)
		f.expect("0s prepare 1", "0s publish 1", "0s commit 1 isolates web")
		r.Offer(second)
		f.expect("0s prepare 2", "0s publish 2", "0s commit 2 isolates web")
		r.Offer(second)
		f.expect("0s prepare 3", "0s commit 3 isolates web")
	})
}

package status

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
)

// listener is a recorder that keeps its events.
type listener struct{ heard []string }

func (l *listener) Eventf(regarding, related runtime.Object, kind, reason, _, note string, args ...any) {
	r := regarding.(*corev1.ObjectReference)
	text := fmt.Sprintf("%s %s/%s: ", reason, r.Kind, r.Name) + fmt.Sprintf(note, args...)
	if r.UID == "" || r.APIVersion == "" || kind != corev1.EventTypeWarning || (related != nil) != (strings.HasSuffix(r.Kind, "NetworkPolicy")) {
		text = "incomplete " + text
	}
	l.heard = append(l.heard, text)
}

func (l *listener) take() (heard []string) {
	heard, l.heard = l.heard, nil
	return heard
}

func TestEventsOfFindings(t *testing.T) {
	l := &listener{}
	policies := &State{Policies: listed(aPolicy("shop", "web"), aPolicy("shop", "api"))}
	findings := []Finding{blocked("shop/web", "a"), blocked("shop/web", "b"), blocked("shop/api", "a"), blocked("shop/gone", "c"), blocked("", "d")}
	emit(l, sortedFindings(findings), policies)
	want := []string{
		"DNSBlocked FQDNNetworkPolicy/api: queries of a are dropped",
		"DNSBlocked FQDNNetworkPolicy/web: queries of a are dropped (and other pods of this node)",
		"DNSBlocked Pod/a: queries of a are dropped",
		"DNSBlocked Pod/b: queries of b are dropped",
		"DNSBlocked Pod/c: queries of c are dropped",
		"DNSBlocked Pod/d: queries of d are dropped",
	}
	got := l.take()
	slices.Sort(got)
	diff.Error(t, want, got)
}

// TestEventsOfALastingFinding: they are one object each, which is refreshed before the API server
// deletes it after an hour, and cost few requests.
func TestEventsOfALastingFinding(t *testing.T) {
	inWorld(t, []*v1alpha1.FQDNNetworkPolicy{aPolicy("shop", "web")}, nil, func(t *testing.T, w *world) {
		defer w.start("n1")()
		for range 2 {
			w.client.ClearActions()
			for i := range 120 {
				if w.findings["n1"] = nil; i%2 == 0 { // it comes and goes
					w.findings["n1"] = []Finding{blocked("shop/web", "a")}
				}
				w.tell()
				time.Sleep(30 * time.Second)
			}
			requests := 0
			for _, a := range w.client.Actions() {
				if a.GetResource().Resource == "events" && a.GetVerb() != "list" {
					requests++
				}
			}
			if requests < 2 || requests > 12 {
				t.Errorf("%d requests in an hour", requests)
			}
		}
		diff.Error(t, []string{"FQDNNetworkPolicy/web Warning DNSBlocked", "Pod/a Warning DNSBlocked"}, w.events())
	})
}

// TestNoEventsBesideNetworkPolicies: nothing is wrong with the pod.
func TestNoEventsBesideNetworkPolicies(t *testing.T) {
	l := &listener{}
	beside := blocked("shop/web", "a")
	beside.Reason = ReasonBesideNetworkPolicies
	emit(l, []Finding{beside, blocked("shop/web", "b")}, &State{})
	if got := l.take(); len(got) != 1 || !strings.Contains(got[0], "Pod/b") {
		t.Errorf("%q", got)
	}
}

func TestEventNote(t *testing.T) {
	for _, others := range []int{0, 7} {
		note := eventNote(Finding{Message: strings.Repeat("é", 2000)}, others)
		if len(note) > maxNote || strings.Contains(note, "other pods") != (others > 0) {
			t.Errorf("%d bytes: …%s", len(note), note[len(note)-40:])
		}
	}
}

// TestEventsOfNodes: a finding of the node is at the Node and at the cluster policy, whose condition
// alone says more.
func TestEventsOfNodes(t *testing.T) {
	l := &listener{}
	p := aClusterPolicy(v1alpha1.ClusterSubject{})
	emit(l, []Finding{{Policy: "p", Pod: policy.NodeRef("n1"), Reason: TurnedToAudit, Message: "the node n1 only audits the policy: registry.example.org is not known"}}, &State{ClusterPolicies: []*v1alpha1.ClusterFQDNNetworkPolicy{p}})
	const says = ": node n1 does not enforce a policy for nodes: the condition Enforced of the policy says why"
	diff.Error(t, []string{"TurnedToAudit ClusterFQDNNetworkPolicy/p" + says, "TurnedToAudit Node/n1" + says}, l.take())
}

func TestClip(t *testing.T) {
	for _, c := range []struct {
		text, want string
		n          int
	}{{"short", "short", 5}, {"longer", "lo…", 5}, {"üüüü", "ü…", 6}, {"", "", 3}} {
		got := clip(c.text, c.n)
		if got != c.want || !utf8.ValidString(got) || len(got) > max(c.n, len(c.text)) {
			t.Errorf("clip(%q, %d) = %q, want %q", c.text, c.n, got, c.want)
		}
	}
}

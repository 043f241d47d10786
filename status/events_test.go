package status

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
)

// listener is a recorder that keeps its events.
type listener struct{ heard []string }

func (l *listener) Eventf(regarding, related runtime.Object, kind, reason, _, note string, args ...any) {
	r := regarding.(*corev1.ObjectReference)
	text := fmt.Sprintf("%s %s/%s: ", reason, r.Kind, r.Name) + fmt.Sprintf(note, args...)
	if r.UID == "" || r.APIVersion == "" || kind != corev1.EventTypeWarning || related == nil {
		text = "incomplete " + text
	}
	l.heard = append(l.heard, text)
}

func (l *listener) take() (heard []string) {
	heard, l.heard = l.heard, nil
	return heard
}

func TestEventsAreEmittedOnce(t *testing.T) {
	l := &listener{}
	h := &findingEvents{recorder: l}
	policies := &State{Policies: listed(aPolicy("shop", "web"), aPolicy("shop", "api"))}
	findings := sortedFindings([]Finding{blocked("shop/web", "a"), blocked("shop/web", "b"), blocked("shop/api", "a")})
	h.emit(at(0), findings, policies)
	want := []string{
		"DNSBlocked FQDNNetworkPolicy/api: queries of a are dropped",
		"DNSBlocked FQDNNetworkPolicy/web: queries of a are dropped (and 1 more pods of this node)",
		"DNSBlocked Pod/a: queries of a are dropped",
		"DNSBlocked Pod/b: queries of b are dropped",
	}
	got := l.take()
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	for d := time.Second; d < 50*time.Minute; d += time.Minute {
		h.emit(at(d), findings, policies)
	}
	if got := l.take(); len(got) > 0 {
		t.Errorf("said again: %q", got)
	}
	h.emit(at(50*time.Minute), findings, policies)
	if got := l.take(); len(got) != 4 {
		t.Errorf("after an hour: %q", got)
	}
}

// TestEventsOfFlappingFindings: flapping findings are reported now and then, not each
// time.
func TestEventsOfFlappingFindings(t *testing.T) {
	l := &listener{}
	h := &findingEvents{recorder: l}
	policies := &State{Policies: listed(aPolicy("shop", "web"))}
	for second := range 3600 {
		var findings []Finding
		if second%4 < 2 {
			findings = []Finding{blocked("shop/web", "a")}
		}
		h.emit(at(time.Duration(second)*time.Second), findings, policies)
	}
	if got := len(l.take()); got != 12 {
		t.Errorf("%d events in an hour, want six of the policy and six of the pod", got)
	}
}

// TestEventsInABurst: a burst is spread, and nothing of it lost or doubled.
func TestEventsInABurst(t *testing.T) {
	l := &listener{}
	h := &findingEvents{recorder: l}
	var findings []Finding
	for i := range 100 {
		findings = append(findings, blocked("shop/web", fmt.Sprint("pod-", i)))
	}
	findings = sortedFindings(findings)
	var all []string
	for second := range 10 {
		h.emit(at(time.Duration(second)*time.Second), findings, &State{Policies: listed(aPolicy("shop", "web"))})
		said := l.take()
		if len(said) > 32 {
			t.Errorf("%d events at once", len(said))
		}
		all = append(all, said...)
	}
	slices.Sort(all)
	if n := len(slices.Compact(all)); n != 101 || len(all) != 101 {
		t.Errorf("%d events, %d different ones", len(all), n)
	}
}

// TestEventsOfUnknownPolicies: without a known policy the pod has its event, and a
// recreated policy has one of its own.
func TestEventsOfUnknownPolicies(t *testing.T) {
	l := &listener{}
	h := &findingEvents{recorder: l}
	findings := []Finding{blocked("shop/web", "a")}
	h.emit(at(0), findings, &State{})
	if got := l.take(); len(got) != 1 || !strings.Contains(got[0], "Pod/a") {
		t.Errorf("%q", got)
	}
	h.emit(at(time.Second), findings, &State{Policies: listed(aPolicy("shop", "web"))})
	renewed := aPolicy("shop", "web")
	renewed.UID = "uid-2"
	h.emit(at(2*time.Second), findings, &State{Policies: listed(renewed)})
	if got := l.take(); len(got) != 2 {
		t.Errorf("%q", got)
	}
}

// TestNoEventsBesideNetworkPolicies: nothing is wrong with the pod.
func TestNoEventsBesideNetworkPolicies(t *testing.T) {
	l := &listener{}
	h := &findingEvents{recorder: l}
	beside := blocked("shop/web", "a")
	beside.Reason = ReasonBesideNetworkPolicies
	h.emit(at(0), []Finding{beside, blocked("shop/web", "b")}, &State{})
	if got := l.take(); len(got) != 1 || !strings.Contains(got[0], "Pod/b") {
		t.Errorf("%q", got)
	}
}

func TestEventNote(t *testing.T) {
	for _, others := range []int{0, 7} {
		note := eventNote(Finding{Message: strings.Repeat("é", 2000)}, others)
		if len(note) > maxNote || strings.Contains(note, "7 more") != (others > 0) {
			t.Errorf("%d bytes: …%s", len(note), note[len(note)-40:])
		}
	}
}

// TestEventsOfNodes: a finding of the node is at the Node and at the cluster policy, whose condition
// alone says more.
func TestEventsOfNodes(t *testing.T) {
	l := &listener{}
	h := &findingEvents{recorder: l}
	p := aClusterPolicy(v1alpha1.ClusterSubject{})
	h.emit(at(0), []Finding{{Policy: "p", Pod: policy.NodeRef("n1"), Reason: TurnedToAudit, Message: "the node n1 only audits the policy: registry.example.org is not known"}}, &State{ClusterPolicies: []*v1alpha1.ClusterFQDNNetworkPolicy{p}})
	const says = ": node n1 only audits a policy for nodes: the condition Enforced of the policy says why"
	if got := l.take(); !slices.Equal(got, []string{"TurnedToAudit ClusterFQDNNetworkPolicy/p" + says, "TurnedToAudit Node/n1" + says}) {
		t.Errorf("%q", got)
	}
}

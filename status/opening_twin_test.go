package status

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
)

// situation is a random cluster, for the question which policies' companions open ports.
type situation struct {
	policies  map[string]*v1alpha1.FQDNNetworkPolicy
	pods      []*placedPod
	standings map[string]standing // of nodes
	findings  map[string][]entry
	open      map[types.UID]bool          // whose companions do
	age       map[types.UID]time.Duration // for how long they enforce
}

var tiers = []string{"front", "back", "store"}

func randomSituation(rng *rand.Rand) *situation {
	s := &situation{
		policies: map[string]*v1alpha1.FQDNNetworkPolicy{}, standings: map[string]standing{}, findings: map[string][]entry{},
		open: map[types.UID]bool{}, age: map[types.UID]time.Duration{},
	}
	for i := range 1 + rng.IntN(4) {
		s.standings[fmt.Sprint("n", i)] = []standing{notInForce, inForce, inForce, inForce, notSure}[rng.IntN(5)]
	}
	for i := range rng.IntN(6) {
		p := &placedPod{metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprint("pod-", i), Labels: map[string]string{"tier": tiers[rng.IntN(3)]}}, fmt.Sprint("n", rng.IntN(6))}
		if rng.IntN(4) == 0 {
			p.node = ""
		}
		if rng.IntN(4) == 0 {
			p.Namespace = "bank"
		}
		s.pods = append(s.pods, p)
	}
	for i := range 1 + rng.IntN(4) {
		p := withPort(aPolicy("shop", fmt.Sprint("p", i)), 443)
		if rng.IntN(3) > 0 {
			selecting(p, map[string]string{"tier": tiers[rng.IntN(3)]})
		}
		switch rng.IntN(8) {
		case 0:
			p.Spec.Enforcement = v1alpha1.EnforcementAudit
		case 1:
			annotated(p, []string{"DNS", "None", "Ports", "?"}[rng.IntN(4)])
		case 2:
			p.Spec.Egress = nil
		}
		id := "shop/" + p.Name
		s.policies[id] = p
		s.open[p.UID] = rng.IntN(2) == 0
		s.age[p.UID] = time.Duration(rng.IntN(20)) * time.Second
		if rng.IntN(4) == 0 {
			reasons := append([]string{DNSBlocked}, blindSpots[:]...)
			s.findings[id] = []entry{{Policy: id, Node: "n0", Reason: reasons[rng.IntN(len(reasons))]}}
		}
	}
	return s
}

// mayOpen is the rule in plain words: every pod of the policy is on a node that enforces.
func (s *situation) mayOpen(id string) bool {
	p := s.policies[id]
	if p.Spec.Enforcement == v1alpha1.EnforcementAudit || len(p.Spec.Egress) == 0 {
		return false
	}
	if value, written := p.Annotations[CompanionAnnotation]; written && value != "Ports" {
		return false
	}
	for _, e := range s.findings[id] {
		if e.Reason == NotSeen || e.Reason == IPVS || e.Reason == BridgeNotFiltered {
			return false
		}
	}
	for _, pod := range s.pods {
		tier, limited := p.Spec.PodSelector.MatchLabels["tier"]
		if pod.Namespace != "shop" || pod.node == "" || limited && pod.Labels["tier"] != tier {
			continue
		}
		switch s.standings[pod.node] {
		case notInForce:
			return false
		case notSure:
			if !s.open[p.UID] {
				return false
			}
		}
	}
	return s.open[p.UID] || s.age[p.UID] >= openAfter
}

// listedInformer has listed what there is.
type listedInformer struct{ cache.SharedIndexInformer }

func (listedInformer) HasSynced() bool { return true }

// decide asks the term.
func (s *situation) decide(t *testing.T) map[string]bool {
	r, err := New(Options{Client: fake.NewClientset(), Dynamic: newPolicyServer(t), Namespace: "namegate", Log: silent, Companion: true, CompanionPorts: PortsAlways, Endpoint: endpoint})
	must(t, err)
	r.recorder = events.NewFakeRecorder(100)
	term := r.newTerm()
	term.pods, term.nodes = listedInformer{term.pods}, listedInformer{term.nodes}
	for _, p := range s.pods {
		must(t, term.pods.GetStore().Add(p))
	}
	for node, is := range s.standings {
		term.survey.seen[leaseName(node)] = &sighting{node: node, digest: digest{Ready: is != notInForce}, proven: is == inForce}
	}
	now := at(0)
	var others []*networkingv1.NetworkPolicy
	for _, p := range s.policies {
		term.openable[p.UID] = openableSince{now.Add(-s.age[p.UID]), &p.Spec.PodSelector}
		if s.open[p.UID] {
			c := newCompanion(p, &metav1.LabelSelector{}, endpoint)
			c.Spec.Egress = append(c.Spec.Egress, portRules(podPorts("tcp/443"))...)
			others = append(others, c)
		}
	}
	o := term.opening(now, s.policies, others, map[string][]policy.Problem{}, s.findings)
	opens := map[string]bool{}
	for id, p := range s.policies {
		opens[id] = !wantsNone(p) && o.ports(p, newCompanion(p, &metav1.LabelSelector{}, endpoint)).Numbers == "tcp/443"
	}
	return opens
}

// TestOpeningAgainstTheRule: over random clusters.
func TestOpeningAgainstTheRule(t *testing.T) {
	var opened, held int
	for seed := range uint64(1500) {
		s := randomSituation(rand.New(rand.NewPCG(7, seed)))
		for id, got := range s.decide(t) {
			want := s.mayOpen(id)
			if got != want {
				t.Fatalf("seed %d: %s opens ports: %v, want %v", seed, id, got, want)
			}
			if want {
				opened++
			} else {
				held++
			}
		}
	}
	if opened < 200 || held < 200 {
		t.Errorf("%d opened, %d held: that says little", opened, held)
	}
}

// TestPodsOfCalmNodesWakeNobody: the churn of a large cluster does not keep the elected
// agent busy where every node is ready.
func TestPodsOfCalmNodesWakeNobody(t *testing.T) {
	inShop(t, nil, func(t *testing.T, w *world) {
		w.want(soonOpen, "ports", "at first")
		reads := func() int { return len(w.client.Actions()) }
		w.pass(40 * time.Second)
		r := w.agents["n1"]
		for len(r.leadNews) > 0 {
			<-r.leadNews
		}
		before, woken := reads(), 0
		for i := range 50 {
			w.addPod(runningPod(fmt.Sprint("calm-", i), "n1"))
			w.addPod(runningPod(fmt.Sprint("waits-", i), ""))
			time.Sleep(10 * time.Millisecond)
			woken += len(r.leadNews)
		}
		if woken > 2 || reads() < before+100 {
			t.Errorf("woken %d times by %d requests", woken, reads()-before)
		}
	})
}

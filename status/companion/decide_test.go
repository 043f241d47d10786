package companion

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
)

// situation is a random cluster, for the question which policies' companions open ports.
type situation struct {
	policies map[string]*v1alpha1.FQDNNetworkPolicy
	pods     []*podPlacement
	nodes    map[string]Node
	bypassed map[string]Bypass
	open     map[types.UID]bool          // whose companions do
	age      map[types.UID]time.Duration // for how long they enforce
}

var tiers = []string{"front", "back", "store"}

func randomSituation(rng *rand.Rand) *situation {
	s := &situation{
		policies: map[string]*v1alpha1.FQDNNetworkPolicy{}, nodes: map[string]Node{}, bypassed: map[string]Bypass{},
		open: map[types.UID]bool{}, age: map[types.UID]time.Duration{},
	}
	for i := range 1 + rng.IntN(4) {
		s.nodes[fmt.Sprint("n", i)] = Node{Standing: []Standing{NotInForce, InForce, InForce, InForce, Unproven}[rng.IntN(5)]}
	}
	for i := range rng.IntN(6) {
		p := &podPlacement{metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprint("pod-", i), Labels: map[string]string{"tier": tiers[rng.IntN(3)]}}, fmt.Sprint("n", rng.IntN(6))}
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
		if rng.IntN(6) == 0 {
			s.bypassed[id] = Bypass{Node: "n0", Reason: "NotSeen"}
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
	if value, written := p.Annotations[Annotation]; written && value != "Ports" {
		return false
	}
	if _, bypassed := s.bypassed[id]; bypassed {
		return false
	}
	for _, pod := range s.pods {
		tier, limited := p.Spec.PodSelector.MatchLabels["tier"]
		if pod.Namespace != "shop" || pod.node == "" || limited && pod.Labels["tier"] != tier {
			continue
		}
		switch s.nodes[pod.node].Standing {
		case NotInForce:
			return false
		case Unproven:
			if !s.open[p.UID] {
				return false
			}
		}
	}
	return s.open[p.UID] || s.age[p.UID] >= OpenAfter
}

// listedInformer has listed what there is.
type listedInformer struct{ cache.SharedIndexInformer }

func (listedInformer) HasSynced() bool { return true }

// decide asks a Controller.
func (s *situation) decide(t *testing.T) map[string]bool {
	o := options(fake.NewClientset(), events.NewFakeRecorder(100))
	o.Ports = PortsAlways
	c := New(o)
	c.pods, c.nodes = listedInformer{c.pods}, listedInformer{c.nodes}
	for _, p := range s.pods {
		must(t, c.pods.GetStore().Add(p))
	}
	now := at(0)
	c.state = State{Policies: s.policies, Accepted: map[string]bool{}, Bypassed: s.bypassed, Nodes: s.nodes}
	var others []*networkingv1.NetworkPolicy
	for id, p := range s.policies {
		c.state.Accepted[id] = true
		c.openable[p.UID] = openableSince{now.Add(-s.age[p.UID]), &p.Spec.PodSelector}
		if s.open[p.UID] {
			n := newCompanion(p, &metav1.LabelSelector{}, endpoint)
			n.Spec.Egress = append(n.Spec.Egress, portRules(podPorts("tcp/443"))...)
			others = append(others, n)
		}
	}
	r := c.newRound(now, others)
	opens := map[string]bool{}
	for id, p := range s.policies {
		opens[id] = !unwanted(p) && r.portsOf(p, newCompanion(p, &metav1.LabelSelector{}, endpoint)).Numbers == "tcp/443"
	}
	return opens
}

// TestDecisionsAgainstTheRule: over random clusters.
func TestDecisionsAgainstTheRule(t *testing.T) {
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
